"""One allocation's story: which one is meant, and how its row reads in sentences.

What is known of an allocation is put together by queries/report/allocation_story.sql; nothing is printed here.
"""

from __future__ import annotations

import re
from typing import Any

from tracekit.errors import QueryError
from tracekit.terminal import mib, printable
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_EVENT = re.compile(r"event:(\d+)")
_PLACE = re.compile(r"(0x[0-9a-fA-F]+|\d+)@(\d+)")


def find(warehouse: Warehouse, which: str, device: int | None = None) -> Row:
    """The row of allocation_story that is meant.

    Args:
        warehouse: the dataset.
        which: an allocation_id, `event:N`, or `ADDRESS@EVENT`.
        device: where events and addresses are meant; the first device that fits otherwise.

    Raises:
        QueryError: where nothing fits, with what to ask instead.
    """
    event, place = _EVENT.fullmatch(which), _PLACE.fullmatch(which)
    if place:
        address, event_ix = int(place[1], 0), int(place[2])
        rows = warehouse.rows(
            "from allocation_story where address <= $address and $address < address + greatest(held_bytes, 1)"
            " and coalesce(birth_event_ix, -1) <= $event_ix"
            " and (death_event_ix is null or death_event_ix > $event_ix)"
            " and ($device is null or device = $device) order by device",
            {"address": address, "event_ix": event_ix, "device": device},
        )
        missing = f"no allocation covers {place[1]} after event {event_ix:,}"
    elif event:
        event_ix = int(event[1])
        rows = warehouse.rows(
            "from allocation_story where $event_ix in (birth_event_ix, free_requested_event_ix, death_event_ix)"
            " and ($device is null or device = $device) order by device",
            {"event_ix": event_ix, "device": device},
        )
        missing = f"event {event_ix:,} neither allocates nor frees"
    elif which.isdecimal():
        rows = warehouse.rows("from allocation_story where allocation_id = $id", {"id": int(which)})
        missing = f"there is no allocation {which}"
    else:
        raise QueryError(
            f"{which!r} names no allocation",
            "write an allocation_id, event:3815, or an address and an event as 0x7f2a@3815",
        )
    if not rows:
        raise QueryError(
            missing,
            'list them with: tracekit sql DATASET "select * from allocation order by requested_bytes desc limit 20"',
        )
    return rows[0]


def frames(warehouse: Warehouse, stack_id: int | None) -> list[Row]:
    """The frames of a stack, innermost first; none where no stack was recorded."""
    if stack_id is None:
        return []
    return warehouse.rows(
        "select depth_ix, shown, origin, is_telling from stack_line where stack_id = ? order by depth_ix",
        [stack_id],
    )


def sharers(warehouse: Warehouse, row: Row) -> list[Row]:
    """What lay in the same segment when the allocation was born, by address; see the view segment_sharer."""
    return warehouse.rows("from segment_sharer(?)", [row["allocation_id"]])


def sentences(row: Row) -> list[str]:
    """The story in lines of text."""
    asker = printable(row["requested_by"]) if row["requested_by"] else "nobody the recording names"
    size = f"{format_size(row['requested_bytes'])}"
    told = [f"allocation {row['allocation_id']}, device {row['device']}: {size} requested by {asker}"]
    if row["is_held_known"]:
        told.append(
            f"block at {row['address']:#x} of {row['held_bytes']:,} bytes"
            f" (pool {_pool(row)}, stream {row['stream']}): {_slack(row)}"
        )
    else:
        told.append(f"block at {row['address']:#x}; the file cannot tell its size, the requested bytes stand in for it")
    born = _when(row["birth_event_ix"], row["step"], row["phase"]) or "before the recording began"
    told.append(f"born {born}" + (f" (phase told by {row['phase_evidence']})" if row["phase_evidence"] else ""))
    freed_by = f" by {printable(row['freed_by'])}" if row["freed_by"] else ""
    freed = _when(row["free_requested_event_ix"], row["free_step"], row["free_phase"])
    told.append(f"freed {freed}{freed_by}" if freed else "never freed in the recording")
    if row["user_frame"]:
        told.append(f"asked for in {printable(row['user_frame'])}")
    told += _tensor(row)
    if row["module"]:
        told.append(f"in module {printable(row['module'])}")
    if row["layer_ix"] is not None:
        told.append(f"in layer {row['layer_ix']} of {row['layer_count']}, counted by the order of equal stacks")
    told.append(f"bucket {row['bucket']}: {row['bucket_meaning']}")
    told.append(f"by rule {row['rule_id']}: {row['rule_why']} (evidence: {row['evidence']})")
    if row["stack_id"] is not None:
        told.append(
            f"siblings of the same stack: {row['sibling_count']:,} allocations, {mib(row['sibling_bytes'])} MiB"
            f" ({row['sibling_bytes']:,} bytes) over the whole recording"
        )
    return told


def sharer_sentences(rows: list[Row]) -> list[str]:
    """What shared the segment, in lines of text: how much, and the block on either side."""
    if not rows:
        return ["nothing else lay in its segment when it was born"]
    held = sum(row["held_bytes"] for row in rows)
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row["bucket"]] = kinds.get(row["bucket"], 0) + row["held_bytes"]
    parts = ", ".join(f"{kind} {mib(size)}" for kind, size in sorted(kinds.items(), key=lambda one: -one[1]))
    told = [f"shared its segment with {len(rows):,} allocations of {mib(held)} MiB when it was born: {parts}"]
    before = [row for row in rows if row["distance_bytes"] < 0][-1:]
    behind = [row for row in rows if row["distance_bytes"] > 0][:1]
    for where, found in (("before", before), ("behind", behind)):
        for row in found:
            touch = "touching it" if row["is_adjacent"] else "with free bytes between"
            asker = printable(row["requested_by"]) if row["requested_by"] else "nobody the recording names"
            told.append(
                f"  {where} it, {touch}: allocation {row['allocation_id']}, {row['held_bytes']:,} bytes,"
                f" {row['bucket']}, requested by {asker}"
            )
    return told


def _pool(row: Row) -> str:
    """A pool's id, and whose it is where it is not the default one."""
    whose = {"graph": " of a CUDA graph", "program": " of the program's own"}
    return f"{row['pool'] or 'not recorded'}{whose.get(row['pool_kind'], '')}"


def _tensor(row: Row) -> list[str]:
    """What the recorder says of the tensor in it: its name by the roll, its shape, the call that made it."""
    shape = f"shape {row['shape']} {row['dtype'] or ''}".rstrip() if row["shape"] else ""
    told: list[str] = []
    if row["tensor_name"]:
        others = f"{row['tensor_count'] - 1:,} more in its storage" if row["tensor_count"] > 1 else ""
        named = f"it is the {row['tensor_role'].replace('_', ' ')} {row['tensor_name']}"
        told.append(", ".join(part for part in (named, shape, others) if part))
    if row["logged_operator"]:
        inputs = f"of tensors of shapes {row['input_shapes']}" if row["input_shapes"] else ""
        made = f"by the op log {row['logged_operator']} made it"
        told.append(", ".join(part for part in (made, "" if row["tensor_name"] else shape, inputs) if part))
    return [printable(one) for one in told]


def _slack(row: Row) -> str:
    if not row["slack_bytes"]:
        return "no slack"
    origins: list[str] = []
    if row["rounding_bytes"]:
        origins.append(f"{row['rounding_bytes']:,} by rounding up to 512")
    if row["unsplit_bytes"]:
        if row["birth_event_ix"] is None:
            why = "of a block handed out before the recording began"
        elif row["is_rounded_further"]:
            why = "by roundup_power2_divisions, or left on the block because it was too little to split off"
        else:
            why = "left on the block because it was too little to split off"
        origins.append(f"{row['unsplit_bytes']:,} {why}")
    return f"{row['slack_bytes']:,} bytes of slack, {' and '.join(origins)}"


def _when(event_ix: int | None, step: int | None, phase: str | None) -> str | None:
    if event_ix is None:
        return None
    place = [f"at event {event_ix:,}"]
    if step is not None:
        place.append(f"in step {step}")
    if phase is not None:
        place.append(phase)
    return ", ".join(place)
