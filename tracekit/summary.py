"""What a recording says in summary: the printed lines, and the three sentences that the page opens with.

The numbers come finished from queries/; only words are decided here, and nothing is printed or marked up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracekit.ledger import BESIDE
from tracekit.terminal import brief, mib, printable
from tracekit.units import format_size

Row = dict[str, Any]

Sentence = list[str | int]
"""Words, and between them bytes as whole numbers, for whoever shows them to say the unit and the exact count."""

_NAMED = 3
"""Buckets that the second sentence names."""

_LONGEST_NAME = 80
"""Characters of a name within a sentence."""


def lines(row: Row, source: str) -> list[str]:
    """What one row of the view device_summary says, in sentences."""
    told = [f"{printable(source)}, device {row['device']}: {row['event_count']:,} events"]
    if row["step_count"]:
        told[0] += f", {row['step_count']:,} steps"
    if row["event_count"] == 0:
        told.append("No events were recorded: this is the state when the snapshot was taken.")
    peak = f"peak {mib(row['peak_allocated_bytes'])} MiB allocated ({row['peak_allocated_bytes']:,} bytes)"
    if row["peak_event_ix"] is None:
        told.append(f"{peak}, held before the first event" if row["event_count"] else peak.replace("peak ", "", 1))
    else:
        where = f"at event {row['peak_event_ix']:,}"
        if row["peak_step"] is not None:
            where += f" in step {row['peak_step']}"
        if row["peak_phase"] is not None:
            where += f", {row['peak_phase']}"
        told.append(f"{peak} {where}")
        asker = printable(row["requested_by"]) if row["requested_by"] else "a stack without frames"
        told.append(f"set by a request for {format_size(row['request_bytes'])} by {asker}")
    told.append(
        f"reserved {mib(row['peak_reserved_bytes'])} MiB then, {format_size(row['highest_reserved_bytes'])} at most"
    )
    if row["oom_count"]:
        told.append(f"out of memory: {row['oom_count']:,} requests failed; see: tracekit ledger DATASET --at oom")
    told.append(f"replay: {row['verdict']}")
    return told


def basis(evidence: Sequence[Row], phases: Sequence[str], compiled_bytes: int) -> list[str]:
    """What an account rests on, in sentences: its labels, its phases, and what compiled code hides where it does.

    Args:
        evidence: see `tracekit.ledger.evidence`.
        phases: see `tracekit.ledger.phase_evidence`.
        compiled_bytes: see `tracekit.ledger.compiled_bytes`.
    """
    told = [evidence_line(evidence), phase_line(phases)]
    if compiled_bytes:
        told.append(
            f"code that torch.compile generated asked for {mib(compiled_bytes)} MiB of this: its stacks name lines and"
            " no operators, so what a compiled loss made is in activation and the temporaries (see --by user-line)"
        )
    return told


def evidence_line(rows: Sequence[Row]) -> str:
    """How many bytes rest on each kind of evidence, in a sentence."""
    total = sum(row["requested_bytes"] for row in rows)
    if not total:
        return "nothing is held"
    parts = [
        f"{'nothing' if row['evidence'] == 'none' else row['evidence']} {mib(row['requested_bytes'])} MiB"
        f" ({100 * row['requested_bytes'] / total:.1f} %)"
        for row in rows
    ]
    return f"the labels rest on: {', '.join(parts)}"


def phase_line(told: Sequence[str]) -> str:
    """What the phases rest on, in a sentence."""
    words = {
        "annotation": "annotations",
        "stack": "stacks",
        "mark": "the recorder's marks",
        "pattern": "the repeating pattern of allocations",
    }
    if not told:
        return "nothing in the recording tells phases"
    return f"phases are told by {' and '.join(words[one] for one in told)}"


def story(row: Row, account: Sequence[Row], meanings: Mapping[str, str], failed: Sequence[Row] = ()) -> list[Sentence]:
    """What happened on one device in three sentences: how high and why, what it was, and what that took.

    Args:
        row: its row of the view device_summary.
        account: its ledger at the peak.
        meanings: what belongs in a bucket, by bucket.
        failed: its requests that failed, see `tracekit.oom.as_json`.
    """
    return [_height(row), _substance(row, account, meanings), _failure(failed[0]) if failed else _reserve(row, account)]


def _height(row: Row) -> Sentence:
    peak: int = row["peak_allocated_bytes"]
    device = f"device {row['device']}"
    if not row["event_count"]:
        return [f"No events were recorded: when the snapshot was taken, {device} held ", peak, "."]
    if row["peak_event_ix"] is None:
        return [f"{device.capitalize()} held at most ", peak, ", as it did before the first event."]
    where = f" at event {row['peak_event_ix']:,} of {row['event_count']:,}"
    if row["peak_step"] is not None:
        where += f", in step {row['peak_step']}"
    if row["peak_phase"] is not None:
        where += f", {row['peak_phase']}"
    where += f", when {_asker(row)} asked for "
    return [f"{device.capitalize()} held at most ", peak, where, row["request_bytes"], "."]


def _asker(row: Row) -> str:
    return brief(row["requested_by"], _LONGEST_NAME) if row["requested_by"] else "a stack without frames"


def _substance(row: Row, account: Sequence[Row], meanings: Mapping[str, str]) -> Sentence:
    held = [line for line in account if line["bucket"] not in BESIDE and line["requested_bytes"]]
    held.sort(key=lambda line: -line["requested_bytes"])
    if not held:
        return ["Nothing was held then."]
    told: Sentence = ["Of these "]
    for index, line in enumerate(held[:_NAMED]):
        if index:
            told.append(" and " if index == min(len(held), _NAMED) - 1 else ", ")
        share = 100 * line["requested_bytes"] / row["peak_allocated_bytes"]
        meaning = f" ({meanings[line['bucket']]})" if not index else ""
        told += [line["requested_bytes"], f", {share:.1f} %, are {line['bucket']}{meaning}"]
    return [*told, "."]


def _reserve(row: Row, account: Sequence[Row]) -> Sentence:
    cached = sum(line["held_bytes"] for line in account if line["bucket"] == "cached")
    reserved: int = row["peak_reserved_bytes"]
    told: Sentence = ["To hold them the allocator had ", reserved, " reserved from the device, "]
    if row["highest_reserved_bytes"] != reserved:
        told += ["and at most ", row["highest_reserved_bytes"], " at any time; "]
    share = f" ({100 * cached / reserved:.1f} %)" if reserved else ""
    return [*told, cached, f"{share} of it free inside its segments."]


def _failure(failed: Row) -> Sentence:
    told: Sentence = [f"It ran out of memory at event {failed['event_ix']:,}, when {_asker(failed)} asked for "]
    told += [failed["asked_bytes"], " and the largest usable free piece had ", failed["largest_free_bytes"], ": "]
    verdicts: dict[str, Sentence] = {
        "fragmented": [
            "fragmented, for live and asked bytes together are ",
            failed["needed_bytes"],
            ", no more than the ",
            failed["limit_from_bytes"],
            " that it has had reserved before.",
        ],
        "full": ["full, for ", failed["needed_bytes"], " would have been live, and that much was refused."],
    }
    return told + verdicts.get(failed["verdict"], ["full or fragmented, the file cannot tell."])
