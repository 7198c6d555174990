"""The balanced account at a moment, and what the recording says in summary: the queries behind the verbs.

The numbers are made by queries/; here a moment's name becomes an event and rows get the shape that scripts rely on.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit.errors import QueryError
from tracekit.terminal import some
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

BESIDE = ("block_slack", "pending_free", "cached")
"""The lines of an account that are no allocations: what the allocator keeps beside them."""

GROUPINGS = (
    "bucket",
    "phase",
    "step",
    "module",
    "name",
    "layer",
    "operator",
    "node",
    "user-line",
    "stack",
    "library",
    "stream",
    "pool",
    "evidence",
    "rule",
)
"""What an account can be grouped by: the columns of the view held_at, - for _."""

_EVENT = re.compile(r"event:(\d+)")


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of one device: the state after an event, -1 being before the first."""

    device: int
    name: str
    event_ix: int


def summaries(warehouse: Warehouse) -> list[Row]:
    """One row a device, see the view device_summary."""
    return warehouse.rows("from device_summary")


def find_moments(warehouse: Warehouse, name: str, device: int | None = None) -> list[Moment]:
    """The moments a name stands for: one of each device that has it, or of the one device asked for.

    Args:
        warehouse: the dataset.
        name: peak, end, oom, oom:N, start, step:N, event:N, or mark:NAME where the recorder left marks.
        device: a device's ordinal.

    Raises:
        QueryError: where there is no such device or moment, with those that there are.
    """
    devices = {row["device"]: row["event_count"] for row in warehouse.rows("select device, event_count from device")}
    if device is not None and device not in devices:
        known = ", ".join(map(str, devices)) or "none"
        raise QueryError(f"the recording has no device {device}", f"devices in it: {known}")
    wanted = devices if device is None else {device: devices[device]}
    event = _EVENT.fullmatch(name)
    if event:
        event_ix = int(event[1])
        found = [Moment(one, name, event_ix) for one, count in wanted.items() if event_ix < count]
        if not found:
            longest = max(wanted.values(), default=0)
            raise QueryError(
                f"there is no event {event_ix:,}",
                f"events are numbered from 0 to {longest - 1:,}" if longest else "the recording has no events",
            )
        return found
    if name.startswith("mark:"):
        return _marked(warehouse, name, wanted)
    rows = warehouse.rows("select device, moment, event_ix from moment order by device, moment_ix")
    found = [
        Moment(row["device"], name, -1 if row["event_ix"] is None else row["event_ix"])
        for row in rows
        if row["moment"] == name and row["device"] in wanted
    ]
    if not found:
        there = list(dict.fromkeys(row["moment"] for row in rows if row["device"] in wanted))
        raise QueryError(f"the recording has no moment {name!r}", f"it has: {some(there)}, and event:N")
    return found


def _marked(warehouse: Warehouse, name: str, wanted: Container[int]) -> list[Moment]:
    """The moment of the recorder's mark of that name on each device, the first one where there are several."""
    rows = [row for row in warehouse.rows("from mark_seat order by device, mark_ix") if row["device"] in wanted]
    named = [row for row in rows if row["name"] == name.removeprefix("mark:")]
    seated = {row["device"]: row["event_ix"] for row in reversed(named) if row["event_ix"] is not None}
    if not named:
        there = list(dict.fromkeys(f"mark:{row['name']}" for row in rows))
        raise QueryError(
            f"the recording has no moment {name!r}",
            f"its marks are: {some(there)}" if there else "marks are left by the recorder, see: tracekit capture",
        )
    if not seated:
        raise QueryError(f"it is not known where {name} lies: {named[0]['problem']}", "name another moment, or event:N")
    return [Moment(device, name, event_ix) for device, event_ix in sorted(seated.items())]


def lines(warehouse: Warehouse, moment: Moment) -> list[Row]:
    """The account at a moment: bucket, requested_bytes, held_bytes, allocation_count, entry_bytes."""
    return warehouse.rows("from ledger_at(?, ?)", [moment.device, moment.event_ix])


def pools(warehouse: Warehouse, moment: Moment) -> list[Row]:
    """The fragmentation account at a moment, see the macro pool_at: what each pool does with what it reserved."""
    return warehouse.rows("from pool_at(?, ?)", [moment.device, moment.event_ix])


def lines_by(warehouse: Warehouse, moment: Moment, by: Sequence[str], top: int | None = None) -> list[Row]:
    """The allocations held at a moment, grouped: the largest first, each row with its values of what they go by.

    Args:
        warehouse: the dataset.
        moment: the moment.
        by: one or two of `GROUPINGS`.
        top: at most so many rows; one more then holds the rest, so that the sum stays.

    Returns:
        Rows of a column for each of `by`, then requested_bytes, held_bytes and allocation_count.
    """
    columns = [name.replace("-", "_") for name in by]
    found = warehouse.rows(
        "from ledger_by(?, ?, ?, ?)",
        [moment.device, moment.event_ix, columns[0], columns[1] if len(columns) > 1 else None],
    )
    counts = ("requested_bytes", "held_bytes", "allocation_count")
    rows = [
        {
            **{name: row[value] for name, value in zip(columns, ("first_value", "second_value"), strict=False)},
            **{name: row[name] for name in counts},
        }
        for row in found
    ]
    if top is None or len(rows) <= top:
        return rows
    rest = rows[top:]
    more = {name: f"({len(rest):,} more)" if index == 0 else None for index, name in enumerate(columns)}
    return [*rows[:top], {**more, **{name: sum(row[name] for row in rest) for name in counts}}]


def evidence(warehouse: Warehouse, moment: Moment) -> list[Row]:
    """How many bytes of the account at a moment rest on each kind of evidence, the most first."""
    return warehouse.rows("from evidence_at(?, ?)", [moment.device, moment.event_ix])


def compiled_bytes(warehouse: Warehouse, moment: Moment) -> int:
    """Bytes requested by code that torch.compile generated and held at a moment, where no loss is told apart in them.

    A stack of compiled code names the line of the program and no operator, and one such function may run a model's
    layers and its loss alike. Zero where the bucket logits_and_loss holds something: then the loss was not compiled.
    """
    rows = lines_by(warehouse, moment, ["library", "bucket"])
    if any(row["bucket"] == "logits_and_loss" and row["requested_bytes"] for row in rows):
        return 0
    return sum(row["requested_bytes"] for row in rows if row["library"] == "inductor")


def phase_evidence(warehouse: Warehouse, device: int) -> list[str]:
    """What told the phases of a device: annotation, stack or pattern, those that told any; see the view span."""
    rows = warehouse.rows(
        "select distinct phase_evidence from span where device = ? and phase is not null order by phase_evidence",
        [device],
    )
    return [row["phase_evidence"] for row in rows]


def basis(warehouse: Warehouse, moment: Moment) -> tuple[list[Row], list[str], int]:
    """What the account at a moment rests on: `evidence`, `phase_evidence` and `compiled_bytes`."""
    return evidence(warehouse, moment), phase_evidence(warehouse, moment.device), compiled_bytes(warehouse, moment)


def as_json(warehouse: Warehouse) -> list[Row]:
    """Each device's summary with its ledger at the peak, in the shape of `tracekit analyze --format json`."""
    told = summaries(warehouse)
    peaks = {moment.device: moment for moment in find_moments(warehouse, "peak")} if told else {}
    return [
        {
            "device": row["device"],
            "event_count": row["event_count"],
            "step_count": row["step_count"],
            "peak": {
                "event_ix": row["peak_event_ix"],
                "allocated_bytes": row["peak_allocated_bytes"],
                "requested_bytes": row["peak_requested_bytes"],
                "reserved_bytes": row["peak_reserved_bytes"],
                "step": row["peak_step"],
                "phase": row["peak_phase"],
                "requested_by": row["requested_by"],
                "request_bytes": row["request_bytes"],
            },
            "peak_reserved_bytes": row["highest_reserved_bytes"],
            "oom_count": row["oom_count"],
            "replay": {
                "is_exact": row["is_exact"],
                "mismatch_count": row["mismatch_count"],
                "first_mismatch_event_ix": row["first_mismatch_event_ix"],
                "unknown_held_count": row["unknown_held_count"],
                "verdict": row["verdict"],
            },
            "ledger": lines(warehouse, peaks[row["device"]]),
            "evidence": evidence(warehouse, peaks[row["device"]]),
            "phase_evidence": phase_evidence(warehouse, row["device"]),
            "compiled_bytes": compiled_bytes(warehouse, peaks[row["device"]]),
        }
        for row in told
    ]


def failures(warehouse: Warehouse) -> dict[str, list[Row]]:
    """Every check by name with the rows that offend against it; an empty list where it holds."""
    checks = [view.name for view in warehouse.views.values() if view.layer == "check"]
    return {name: warehouse.table(name).to_pylist() for name in sorted(checks)}
