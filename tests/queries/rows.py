"""Rows of raw tables, written shortly: each helper fills what a test does not care about."""

from __future__ import annotations

from itertools import count
from typing import Any

Row = dict[str, Any]
Rows = list[Row]


def device(event_count: int = 0, ordinal: int = 0) -> Row:
    return {"device": ordinal, "event_count": event_count, "segment_count": 0}


def events(*lines: str, ordinal: int = 0) -> Rows:
    """Events from lines `action address size [stack]`; the position is the event_ix, an address of - is none."""
    rows: Rows = []
    for event_ix, line in enumerate(lines):
        action, address, size, *stack = line.split()
        rows.append(
            {
                "device": ordinal,
                "event_ix": event_ix,
                "action": action,
                "address": None if address == "-" else int(address, 0),
                "size_bytes": int(size),
                "stream": 0,
                "time_us": 1000 + 10 * event_ix,
                "stack_id": int(stack[0]) if stack else None,
            }
        )
    return rows


def placements(*lines: str, ordinal: int = 0, begin: int = 0) -> Rows:
    """Placements from lines `address requested held birth dropped died [stack [free_stack]]`; - is none."""
    rows: Rows = []
    for placement_id, line in enumerate(lines, begin):
        values = [None if word == "-" else int(word, 0) for word in line.split()]
        address, requested, held, birth, dropped, died = values[:6]
        rows.append(
            {
                "placement_id": placement_id,
                "device": ordinal,
                "address": address,
                "requested_bytes": requested,
                "held_bytes": held,
                "stream": 0,
                "birth_event_ix": birth,
                "free_requested_event_ix": dropped,
                "death_event_ix": died,
                "stack_id": values[6] if len(values) > 6 else None,
                "free_stack_id": values[7] if len(values) > 7 else None,
                "is_pending_at_start": False,
                "is_exact": None if birth is None else True,
            }
        )
    return rows


def segment(
    address: int, size: int, *blocks: str, segment_id: int = 0, first_block_id: int = 0, **more: Any
) -> dict[str, Rows]:
    """A segment and its blocks from lines `size requested state`, counters filled in from them."""
    rows: Rows = []
    at = address
    for block_ix, line in enumerate(blocks):
        held, requested, state = line.split()
        rows.append(
            {
                "block_id": first_block_id + block_ix,
                "segment_id": segment_id,
                "device": 0,
                "block_ix": block_ix,
                "address": at,
                "size_bytes": int(held),
                "requested_size_bytes": int(requested),
                "state": state,
            }
        )
        at += int(held)
    return {
        "segment": [
            {
                "segment_id": segment_id,
                "device": 0,
                "segment_ix": segment_id,
                "address": address,
                "total_size_bytes": size,
                "allocated_size_bytes": sum(row["size_bytes"] for row in rows if row["state"] == "active_allocated"),
                "active_size_bytes": sum(row["size_bytes"] for row in rows if row["state"] != "inactive"),
                "requested_size_bytes": sum(row["requested_size_bytes"] for row in rows if row["state"] != "inactive"),
                "stream": 0,
                "segment_type": "large",
                **more,
            }
        ],
        "block": rows,
    }


def stacks(*frames: list[str]) -> dict[str, Rows]:
    """Stacks, numbered from 0, of frames written `name` (C++) or `file.py:line function` (Python), innermost first."""
    ids: dict[str, int] = {}
    table: dict[str, Rows] = {"stack": [], "stack_frame": [], "frame": []}
    for stack_id, stack in enumerate(frames):
        table["stack"].append({"stack_id": stack_id, "depth_count": len(stack)})
        for depth_ix, text in enumerate(stack):
            if text not in ids:
                ids[text] = len(ids)
                place, _, function = text.rpartition(" ")
                filename, _, line = place.rpartition(":")
                is_python = line.isdigit() and not text.endswith(")")
                table["frame"].append(
                    {
                        "frame_id": ids[text],
                        "name": function if is_python else text,
                        "filename": filename if is_python else None,
                        "line": int(line) if is_python else None,
                    }
                )
            table["stack_frame"].append({"stack_id": stack_id, "depth_ix": depth_ix, "frame_id": ids[text]})
    return table


def marks(*lines: str) -> Rows:
    """Marks from lines `time_us START|END name`, among events timed as `events` times them."""
    numbers = count()
    rows: Rows = []
    for line in lines:
        time_us, stage, name = line.split(maxsplit=2)
        rows.append(
            {
                "annotation_ix": next(numbers),
                "device": 0,
                "name": name,
                "stage": stage,
                "time_us": int(time_us),
                "event_ix": max(0, -(-(int(time_us) - 1000) // 10)),
            }
        )
    return rows


def mark(mark_ix: int, name: str, alloc_count: int = 0, free_count: int = 0, **more: Any) -> Row:
    """A mark of the recorder on device 0, of which only the counts are known."""
    return {
        "mark_ix": mark_ix,
        "device": 0,
        "name": name,
        "alloc_count": alloc_count,
        "free_count": free_count,
        **more,
    }


def tensor(address: int, size: int, role: str, name: str, alloc_count: int, **more: Any) -> Row:
    """A tensor of the recorder's roll on device 0, taken after so many allocations."""
    return {
        "tensor_ix": address,
        "device": 0,
        "address": address,
        "storage_bytes": size,
        "tensor_bytes": size,
        "role": role,
        "name": name,
        "alloc_count": alloc_count,
        **more,
    }
