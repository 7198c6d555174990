"""From plain data to the one shape that every torch release's snapshot takes here: today's, keys added, none removed.

Segments and blocks are few and are checked field by field. A trace may have millions of entries, which are only seen
to be dicts with an action; the rest is the flattener's to judge, column by column. Bytes and pickles belong elsewhere.

What was given is never changed: a dict that gains a key is a copy, because one dict may stand in several places.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

from tracekit.errors import SnapshotError
from tracekit.snapshot.words import RECORD, a, an, shown

Row = dict[str, Any]
_Container = dict[object, object] | list[object] | tuple[object, ...]

_WRONG_SHAPE = f"{RECORD}, or correct what rewrote it"

_SEGMENT: dict[str, type] = {
    "address": int,
    "total_size": int,
    "blocks": list,
    "device": int,
    "allocated_size": int,
    "active_size": int,
    "requested_size": int,
    "stream": int,
    "segment_type": str,
    "is_expandable": bool,
    "frames": list,
}
_BLOCK: dict[str, type] = {
    "size": int,
    "state": str,
    "address": int,
    "requested_size": int,
    "frames": list,
    "history": list,
}
_OCCUPANT: dict[str, type] = {"addr": int, "real_size": int, "frames": list}
_ANNOTATION: dict[str, type] = {"name": str, "stage": str, "device": int, "time_us": int}

_MOST_NESTED = 64


@dataclass(slots=True)
class Parts:
    """The parts of a snapshot, each in today's shape."""

    segments: list[Row]
    device_traces: list[list[Row]]
    external_annotations: list[Row]
    allocator_settings: Row | None
    host_segments: list[Any] | None
    host_traces: list[Any] | None
    extra: Row


class Allowance:
    """So many values may still be visited: a few for each byte of the file.

    A file needs a byte at least for each value, but it can name one list many times, and lists of such lists unfold
    without end. Honest files share frames, which nothing here walks, and little else.

    Args:
        byte_count: the file's bytes, once decompressed.
    """

    def __init__(self, byte_count: int) -> None:
        self.count = 100_000 + 4 * byte_count

    def spend(self, count: int, place: str) -> None:
        """Count visits, and refuse where they are too many."""
        self.count -= count
        if self.count < 0:
            problem = f"repeats the same lists until {place} has far more values than the file has bytes"
            raise SnapshotError(problem, _WRONG_SHAPE)

    def check_nested(self, value: object, place: str) -> None:
        """See that a value of no known shape can be walked: not too deep, not without end, and with simple keys.

        Raises:
            SnapshotError: where writing it as JSON would fail, or not come to an end.
        """
        level: list[object] = [value]
        for _ in range(_MOST_NESTED):
            containers = [item for item in level if _is_container(item)]
            if not containers:
                return
            self.spend(sum(map(len, containers)), place)
            level.clear()
            for container in containers:
                if isinstance(container, dict):
                    if any(isinstance(key, tuple) for key in container):
                        raise SnapshotError(f"{place} has a key that is a tuple", _WRONG_SHAPE)
                    level.extend(container.values())
                else:
                    level.extend(container)
        raise SnapshotError(f"{place} is nested more than {_MOST_NESTED} deep", _WRONG_SHAPE)


def _is_container(value: object) -> TypeGuard[_Container]:
    return isinstance(value, (dict, list, tuple))


def parts_of(raw: object, allowance: Allowance) -> Parts:
    """Check plain data and bring it into shape.

    Args:
        raw: what the file held: a dict (torch 2.0 and later), or the bare list of segments that torch 1.13 dumps and
            `torch.cuda.memory_snapshot()` returns.
        allowance: bounds the work on lists that the file shares.

    Raises:
        SnapshotError: naming the place that is not as it must be.
    """
    if isinstance(raw, list):
        raw = {"segments": cast(list[Any], raw)}
    if not isinstance(raw, dict):
        raise SnapshotError(f"holds {a(raw)}, not a snapshot", RECORD)
    rest = dict(cast(Row, raw))
    if "segments" not in rest and "device_traces" not in rest:
        raise _not_a_snapshot(rest)
    segments = _list(rest.pop("segments", []), "segments")
    traces = _list(rest.pop("device_traces", []), "device_traces")
    annotations = _list(rest.pop("external_annotations", []), "external_annotations")
    settings: Any = rest.pop("allocator_settings", None)
    if type(settings) not in (dict, type(None)):
        raise _wrong("allocator_settings", settings, dict)
    allowance.check_nested(settings, "allocator_settings")
    host = {key: _host(rest.pop(key, None), key, allowance) for key in ("host_segments", "host_traces")}
    for key, value in rest.items():
        allowance.check_nested(value, _place(key))
    return Parts(
        segments=[_segment(segment, index, allowance) for index, segment in enumerate(segments)],
        device_traces=[_trace(trace, device, allowance) for device, trace in enumerate(traces)],
        external_annotations=[
            _checked(mark, _ANNOTATION, f"external_annotations[{index}]", allowance)
            for index, mark in enumerate(annotations)
        ],
        allocator_settings=settings,
        host_segments=host["host_segments"],
        host_traces=host["host_traces"],
        extra=rest,
    )


def _not_a_snapshot(rest: Row) -> SnapshotError:
    if "traceEvents" in rest:
        return SnapshotError(
            "is a trace of torch.profiler, not a memory snapshot",
            "record with torch.cuda.memory._record_memory_history and write with _dump_snapshot",
        )
    keys = ", ".join(map(_place, list(rest)[:5])) or "none"
    return SnapshotError(f"has neither segments nor device_traces, so it is no snapshot; its keys: {keys}", RECORD)


def _segment(segment: Any, index: int, allowance: Allowance) -> Row:
    place = f"segments[{index}]"
    _checked(segment, _SEGMENT, place, allowance, needed=("address", "total_size", "blocks"), handled="segment_pool_id")
    added: Row = {}
    if "segment_pool_id" in segment:
        pool = _pool(segment["segment_pool_id"], f"{place}.segment_pool_id")
        if pool is not segment["segment_pool_id"]:
            added["segment_pool_id"] = pool
    if "frames" not in segment:  # torch 2.0 and earlier
        added["frames"] = []
    blocks: list[Any] = segment["blocks"]
    allowance.spend(len(blocks), f"{place}.blocks")
    address: int = segment["address"]
    shaped: list[Row] = []
    for position, block in enumerate(blocks):
        shaped.append(_block(block, address, f"{place}.blocks[{position}]", allowance))
        address = shaped[-1]["address"] + shaped[-1]["size"]
    if any(map(operator.is_not, shaped, blocks)):
        added["blocks"] = shaped
    return {**segment, **added} if added else segment


def _block(block: Any, address: int, place: str, allowance: Allowance) -> Row:
    """A block with today's keys: until torch 2.0 the occupants' `history`, newest first, stood in their place."""
    _checked(block, _BLOCK, place, allowance, needed=("size", "state"))
    added: Row = {}
    if "address" not in block:  # blocks fill their segment from its beginning
        added["address"] = address
    history: list[Any] = block.get("history", [])
    allowance.spend(len(history), f"{place}.history")
    for position, occupant in enumerate(history):
        _checked(occupant, _OCCUPANT, f"{place}.history[{position}]", allowance)
    newest: Row = history[0] if history and block["state"] != "inactive" else {}
    if "requested_size" not in block and "real_size" in newest:
        added["requested_size"] = newest["real_size"]
    if "frames" not in block:
        added["frames"] = newest.get("frames", [])
    return {**block, **added} if added else block


def _trace(trace: Any, device: int, allowance: Allowance) -> list[Row]:
    place = f"device_traces[{device}]"
    entries = _list(trace, place)
    allowance.spend(len(entries), place)
    if not set(map(type, entries)) <= {dict}:
        index = next(index for index, entry in enumerate(entries) if type(entry) is not dict)
        raise _wrong(f"{place}[{index}]", entries[index], dict)
    if not {type(entry.get("action")) for entry in entries} <= {str}:
        index = next(index for index, entry in enumerate(entries) if type(entry.get("action")) is not str)
        _checked(entries[index], {"action": str}, f"{place}[{index}]", allowance, needed=["action"])
    return entries


def _host(value: Any, place: str, allowance: Allowance) -> list[Any] | None:
    """A list of entries, or of lists of them, of fields not known yet; their frames are shared, and not walked."""
    if value is None:
        return None
    for item in _list(value, place):
        entries = cast(list[Any], item) if type(item) is list else [item]
        allowance.spend(len(entries), place)
        for entry in entries:
            row = cast(Row, entry) if type(entry) is dict else {"": entry}
            for key in row.keys() - {"frames"}:
                allowance.check_nested(row[key], place)
    return value


def _pool(value: Any, place: str) -> tuple[int, int]:
    """A pool's id as the pair it is; JSON and some tools make it a list."""
    if not isinstance(value, (list, tuple)):
        raise _wrong(place, value, tuple)
    ids = cast("list[Any] | tuple[Any, ...]", value)
    if list(map(type, ids)) != [int, int]:
        raise SnapshotError(f"{place} is not a pair of ints", _WRONG_SHAPE)
    for number in ids:
        _refuse_wide(number, place)
    return cast(tuple[int, int], tuple(ids))


def _refuse_wide(number: int, place: str) -> None:
    if not -(1 << 63) <= number < 1 << 63:
        raise SnapshotError(f"{place} is an int of more than 64 bits", _WRONG_SHAPE)


def _checked(
    record: Any,
    fields: dict[str, type],
    place: str,
    allowance: Allowance,
    *,
    needed: Iterable[str] = (),
    handled: str = "",
) -> Row:
    """The record itself, once each known field it has is of its type and each unknown one can be walked."""
    if type(record) is not dict:
        raise _wrong(place, record, dict)
    row = cast(Row, record)
    for key, value in row.items():
        kind = fields.get(key)
        if kind is None:
            if key != handled:
                allowance.check_nested(value, f"{place}.{_place(key)}")
        elif type(value) is not kind:
            raise _wrong(f"{place}.{key}", value, kind)
        elif kind is int:
            _refuse_wide(value, f"{place}.{key}")
    for key in needed:
        if key not in row:
            raise SnapshotError(f"{place} has no {key}", _WRONG_SHAPE)
    return row


def _list(value: Any, place: str) -> list[Any]:
    if type(value) is not list:
        raise _wrong(place, value, list)
    return cast(list[Any], value)


def _place(key: object) -> str:
    return shown(key) if isinstance(key, str) else f"a key that is {a(key)}"


def _wrong(place: str, value: object, kind: type) -> SnapshotError:
    return SnapshotError(f"{place} is {a(value)}, not {an(kind)}", _WRONG_SHAPE)
