"""Tiny snapshots for tests, in the shape that torch 2.11 dumps; nothing here reads or checks one.

    snapshot(
        [segment(0x7000_0000, 2 * MIB, [block(0x7000_0000, 512), block(0x7000_0200, 2 * MIB - 512, state="inactive")])],
        [[event("segment_alloc", 0x7000_0000, 2 * MIB), event("alloc", 0x7000_0000, 500, frames=[frame("forward")])]],
    )

Keys of other releases go in by keyword (`event(..., pool_id=(0, 1))`); what an older one lacks is popped by the test.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

LARGEST_SMALL_SEGMENT = 2 * 1024 * 1024
"""The allocator's small pool has segments of this size; anything larger is of the large pool."""

DEFAULT_SETTINGS: Row = {
    "PYTORCH_CUDA_ALLOC_CONF": "",
    "max_split_size": -1,
    "garbage_collection_threshold": 0.0,
    "expandable_segments": False,
    "pinned_num_register_threads": 1,
    "release_lock_on_cudamalloc": False,
    "pinned_use_cuda_host_register": False,
    "graph_capture_record_stream_reuse": False,
    "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
}
"""What torch 2.11 writes where nothing was set."""


def frame(name: str, filename: str = "??", line: int = 0) -> Row:
    """A frame; without a file it is a C++ frame as release wheels have them."""
    return {"name": name, "filename": filename, "line": line}


def event(
    action: str,
    addr: int,
    size: int,
    stream: int = 0,
    frames: list[Row] | None = None,
    time_us: int | None = None,
    **more: Any,
) -> Row:
    """An entry of a trace.

    Args:
        action: what happened; for `oom`, `addr` is written as `device_free`, as torch does.
        addr: the address.
        size: requested bytes of an alloc or free, the segment's bytes of a segment's entry.
        stream: the stream's number.
        frames: the stack, innermost first; no key at all where None, as without context.
        time_us: microseconds since the epoch; no key where None, as until torch 2.1.
        more: further keys, or other values for those above.
    """
    row: Row = {
        "action": action,
        "device_free" if action == "oom" else "addr": addr,
        "size": size,
        "stream": stream,
    }
    if time_us is not None:
        row["time_us"] = time_us
    row |= {"compile_context": "N/A", "user_metadata": ""}
    if frames is not None:
        row["frames"] = frames
    return row | more


def block(
    address: int,
    size: int,
    state: str = "active_allocated",
    requested_size: int | None = None,
    frames: list[Row] | None = None,
    **more: Any,
) -> Row:
    """A block of a segment; all of it requested unless said otherwise, and no stack known."""
    return {
        "address": address,
        "size": size,
        "requested_size": size if requested_size is None else requested_size,
        "state": state,
        "frames": [] if frames is None else frames,
    } | more


def segment(
    address: int,
    total_size: int,
    blocks: Sequence[Row] | None = None,
    device: int = 0,
    stream: int = 0,
    frames: list[Row] | None = None,
    **more: Any,
) -> Row:
    """A segment; one inactive block fills it where none are given, and its counters are summed from its blocks."""
    held = [block(address, total_size, "inactive")] if blocks is None else list(blocks)
    active = [one for one in held if one["state"] != "inactive"]
    return {
        "device": device,
        "address": address,
        "total_size": total_size,
        "allocated_size": sum(one["size"] for one in active if one["state"] == "active_allocated"),
        "active_size": sum(one["size"] for one in active),
        "requested_size": sum(one.get("requested_size", 0) for one in active),
        "stream": stream,
        "segment_type": "small" if total_size <= LARGEST_SMALL_SEGMENT else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [] if frames is None else frames,
        "blocks": held,
    } | more


def annotation(name: str, stage: str, time_us: int = 0, device: int = 0) -> Row:
    """The START or END of a record_function range."""
    return {"stage": stage, "name": name, "device": device, "time_us": time_us}


def snapshot(segments: Sequence[Row] = (), traces: Sequence[Sequence[Row]] | None = None, **more: Any) -> Row:
    """A whole snapshot: one device with an empty trace unless traces are given, and the default settings."""
    empty: list[Sequence[Row]] = [[]]
    return {
        "segments": list(segments),
        "device_traces": [list(trace) for trace in (empty if traces is None else traces)],
        "allocator_settings": dict(DEFAULT_SETTINGS),
        "external_annotations": [],
    } | more


def dumped(raw: object, protocol: int = 4) -> bytes:
    """The bytes of a pickle; protocol 4 is what `_dump_snapshot` writes on most Pythons."""
    return pickle.dumps(raw, protocol)
