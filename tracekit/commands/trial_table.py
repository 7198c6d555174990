"""How runs of a program under several settings are printed: one as sentences, several as a table.

The rows come finished from `tracekit.what_if`; only words are decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit import terminal
from tracekit.terminal import mib, printable
from tracekit.units import format_size

Row = dict[str, Any]


def write(rows: Sequence[Row]) -> None:
    """Print one run in sentences, or several as a table; then how each that failed ran out of memory."""
    if len(rows) > 1:
        terminal.write_grid(
            ["settings", "allocated MiB", "reserved MiB", "retries", "fits"],
            [
                [
                    row["name"],
                    mib(row["peak_allocated_bytes"]),
                    mib(row["peak_reserved_bytes"]),
                    f"{row['retry_count']:,}",
                    "yes" if row["fits"] else f"no: out of memory at event {_event(row)}",
                ]
                for row in rows
            ],
            [False, True, True, True, False],
        )
    for row in rows:
        if len(rows) == 1 or not row["fits"]:
            print(("\n" if len(rows) > 1 else "") + "\n".join(sentences(row)))


def flat(row: Row) -> Row:
    """One run as a row of CSV: nested values become columns of their own or JSON."""
    oom: Row = row["oom"] or {}
    kept = {key: value for key, value in row.items() if key not in ("oom", "settings")}
    names = ("event_ix", "request_bytes", "allocated_bytes", "reserved_bytes", "requested_by")
    return kept | {f"oom_{name}": oom.get(name) for name in names}


def sentences(row: Row) -> list[str]:
    """One run in lines of text."""
    limit = "" if row["limit_bytes"] is None else f" under a limit of {mib(row['limit_bytes'])} MiB"
    told = [f"device {row['device']}, {row['name']}{limit}: {'fits' if row['fits'] else 'runs out of memory'}"]
    told.append(
        f"peak {mib(row['peak_allocated_bytes'])} MiB allocated ({row['peak_allocated_bytes']:,} bytes),"
        f" {mib(row['peak_reserved_bytes'])} MiB reserved ({row['peak_reserved_bytes']:,} bytes)"
    )
    if row["retry_count"]:
        times = "once" if row["retry_count"] == 1 else f"{row['retry_count']:,} times"
        told.append(f"the allocator ran short and released its cache {times}")
    if row["oom"] is not None:
        told += oom_sentences(row["oom"])
    return told


def oom_sentences(oom: Row) -> list[str]:
    """How a request failed, in lines of text."""
    where = f"at event {oom['event_ix']:,}" if oom["event_ix"] is not None else "before the first event"
    if oom["step"] is not None:
        where += f", in step {oom['step']}"
    if oom["phase"] is not None:
        where += f", {oom['phase']}"
    asker = f" by {printable(oom['requested_by'])}" if oom["requested_by"] else ""
    told = [f"{where}: asked for {format_size(oom['request_bytes'])}{asker}"]
    told.append(
        f"then {mib(oom['allocated_bytes'])} MiB were allocated and {mib(oom['reserved_bytes'])} MiB reserved,"
        f" after {mib(oom['released_bytes'])} MiB of idle segments had been given back"
    )
    if oom["free_bytes"] is not None:
        told.append(
            f"{mib(oom['free_bytes'])} MiB were left to reserve, {mib(oom['segment_bytes'])} MiB were needed;"
            f" {mib(oom['cached_bytes'])} MiB lay free in segments in use"
        )
    for block in oom["largest_cached"]:
        pins = " and ".join(
            f"{pin.get('bucket')} of {mib(pin.get('requested_bytes'))} MiB"
            + (f" ({printable(pin['requested_by'])})" if pin.get("requested_by") else "")
            for pin in block["pinned_by"]
        )
        told.append(
            f"  free {mib(block['size_bytes'])} MiB: {block['obstacle']}" + (f"; pinned by {pins}" if pins else "")
        )
    return told


def _event(row: Row) -> str:
    event_ix = row["oom"]["event_ix"]
    return "-" if event_ix is None else f"{event_ix:,}"
