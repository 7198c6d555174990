"""A snapshot's nested lists and dicts become flat Arrow tables: stacks interned, nothing dropped, nothing interpreted.

No file is touched here and no meaning is given to a row; what an allocation is belongs to the replay and to queries/.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.collector import paused
from tracekit.errors import SnapshotError
from tracekit.pools import pool_text
from tracekit.schema import RAW_TABLES, TABLES
from tracekit.snapshot import Allowance, Snapshot

Row = dict[str, Any]

_SLICE = 65_536
"""Events turned into columns at a time: the dicts of a slice are let go before the next one is read."""

_MOST_KEPT_FRAMES = 200_000
"""Frame dicts kept alive to be known by identity: torch shares a few thousand, JSON shares none of its millions."""

KNOWN_ACTIONS = frozenset(
    [
        *("alloc", "free_requested", "free_completed", "oom", "snapshot", "annotate"),
        *("segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    ]
)
"""Every action that a torch release up to 2.15 writes; another one is kept, counted and left without effect."""

# source key -> column, per table; `frames` and pools are handled beside them.
_SEGMENT_KEYS = {
    "device": "device",
    "address": "address",
    "total_size": "total_size_bytes",
    "allocated_size": "allocated_size_bytes",
    "active_size": "active_size_bytes",
    "requested_size": "requested_size_bytes",
    "stream": "stream",
    "segment_type": "segment_type",
    "is_expandable": "is_expandable",
}
_BLOCK_KEYS = {
    "address": "address",
    "size": "size_bytes",
    "requested_size": "requested_size_bytes",
    "state": "state",
}
_EVENT_KEYS = {
    "action": "action",
    "addr": "address",
    "size": "size_bytes",
    "device_free": "device_free_bytes",
    "stream": "stream",
    "time_us": "time_us",
    "compile_context": "compile_context",
    "user_metadata": "user_metadata",
    "category": "category",
    "internal_metadata": "internal_metadata",
}
_KNOWN_KEYS = _EVENT_KEYS.keys() | {"frames", "forward_frames", "pool_id"}
_ANNOTATION_KEYS = {"device": "device", "name": "name", "stage": "stage", "time_us": "time_us"}
_HOST_KEYS = {
    "action": "action",
    "addr": "address",
    "address": "address",
    "size": "size_bytes",
    "time_us": "time_us",
}

# What torch writes where it has nothing to say; NULL says it here.
_NOTHING = {
    ("trace_event", "address"): 0,
    ("trace_event", "compile_context"): "N/A",
    ("trace_event", "user_metadata"): "",
    ("trace_event", "internal_metadata"): "",
}

# A field's first release (the format's version history): the newest one seen bounds the torch that wrote the file.
_FIRST_SEEN_IN_EVENTS = {
    "time_us": (2, 2),
    "compile_context": (2, 8),
    "user_metadata": (2, 10),
    "forward_frames": (2, 11),
    "pool_id": (2, 12),
    "internal_metadata": (2, 15),
}

_FORWARD_FRAME = re.compile(r'\s*File "(?P<filename>.*)", line (?P<line>\d+), in (?P<name>.*)')


def flatten(snapshot: Snapshot) -> dict[str, pa.Table]:
    """Turn a snapshot into the raw tables of `tracekit.schema`, rows sorted by key.

    The trace's entries are let go while they are read, so that memory falls as columns grow: afterwards
    `snapshot.device_traces` holds empty lists. Ids depend on the content alone, not on how it was read.

    Returns:
        A table for each name in `tracekit.schema.RAW_TABLES`.

    Raises:
        SnapshotError: where a value of no known shape is nested too deeply, or without end, to be kept as JSON.
    """
    with paused():
        try:
            return _Flattener().tables(snapshot)
        except SnapshotError as error:
            raise SnapshotError(f"{snapshot.source.name}: {error.problem}", error.remedy) from None


class _Stacks:
    """Distinct frames and stacks, in order of first appearance.

    torch shares one list per captured traceback and one dict per distinct frame, so identity answers nearly every
    question: a list is compared with the stacks of its probe (length and two frames' identities) by `==`, which
    for shared frames is a comparison of pointers. Only what identity cannot tell is compared by content.
    """

    def __init__(self, notes: Counter[tuple[str, str]]) -> None:
        self._notes = notes
        self.allowance = Allowance(0)
        self._frame_by_identity: dict[int, int] = {}
        self._frame_by_content: dict[tuple[Any, ...], int] = {}
        self._kept: list[Row] = []  # keeps the dicts alive whose id() is a key above
        self.frames: list[tuple[str | None, str | None, int | None, str | None]] = []
        self._stack_by_content: dict[tuple[int, ...], int] = {}
        self._stacks_by_probe: dict[tuple[int, ...], list[tuple[list[Row], int]]] = {}
        self.stacks: list[tuple[int, ...]] = []

    def column(self, lists: Sequence[list[Row] | None]) -> list[int | None]:
        """Stack ids of frame lists, None where there is no list."""
        by_identity: dict[int, int | None] = {id(None): None}
        identities = list(map(id, lists))
        known_by_probe = self._stacks_by_probe.get
        for identity, frames in dict(zip(identities, lists, strict=True)).items():
            if frames:
                # the hot path of stack_of, which a call a list would make half as fast again
                count = len(frames)
                for kept, stack_id in known_by_probe((count, id(frames[count // 3]), id(frames[count // 2])), ()):
                    if kept == frames:
                        by_identity[identity] = stack_id
                        break
                else:
                    by_identity[identity] = self.stack_of(frames)
            elif frames is not None:
                by_identity[identity] = self.stack_of(frames)
        return list(map(by_identity.__getitem__, identities))

    def stack_of(self, frames: list[Row]) -> int:
        """The id of one list of frames, innermost first; the empty list is a stack too."""
        count = len(frames)
        if count == 0:
            return self._by_content(())
        probe = (count, id(frames[count // 3]), id(frames[count // 2]))
        for kept, stack_id in self._stacks_by_probe.get(probe, ()):
            if kept == frames:
                return stack_id
        frame_ids = tuple(map(self._frame_of, frames))
        stack_id = self._by_content(frame_ids)
        if None not in map(self._frame_by_identity.get, map(id, frames)):
            self._stacks_by_probe.setdefault(probe, []).append((frames, stack_id))
        return stack_id  # frames that are not shared (JSON) would be kept for nothing

    def _by_content(self, frame_ids: tuple[int, ...]) -> int:
        stack_id = self._stack_by_content.setdefault(frame_ids, len(self.stacks))
        if stack_id == len(self.stacks):
            self.stacks.append(frame_ids)
        return stack_id

    def _frame_of(self, frame: Row) -> int:
        known = self._frame_by_identity.get(id(frame))
        if known is not None:
            return known
        row = self._frame_row(frame)
        frame_id = self._frame_by_content.setdefault(row, len(self.frames))
        if frame_id == len(self.frames):
            self.frames.append(row)
        if len(self._kept) < _MOST_KEPT_FRAMES:
            self._frame_by_identity[id(frame)] = frame_id
            self._kept.append(frame)
        return frame_id

    def _frame_row(self, frame: Any) -> tuple[str | None, str | None, int | None, str | None]:
        self.allowance.check_nested(frame, "frame")
        if not isinstance(frame, dict):
            self._notes["frame", f"a frame that is a {type(frame).__name__}"] += 1
            return (None, None, None, _json(frame))
        extra = {key: value for key, value in frame.items() if key not in ("name", "filename", "line")}
        name, filename, line = frame.get("name"), frame.get("filename"), frame.get("line")
        if name is not None and not isinstance(name, str):
            extra["name"], name = name, None
        if filename is not None and not isinstance(filename, str):
            extra["filename"], filename = filename, None
        if line is not None and not (type(line) is int and -(2**63) <= line < 2**63):
            extra["line"], line = line, None
        for key in extra:
            self._notes["frame", f"key {key}" if not key.startswith("fx_") else "key fx_*"] += 1
        return (
            _text(name),
            None if filename in ("", "??") else _text(filename),
            line or None,
            _json(extra) if extra else None,
        )

    def forward_stack_of(self, lines: Any) -> int | None:
        """The stack of a `forward_frames` list: formatted traceback entries, oldest call first."""
        if not isinstance(lines, list):
            return None
        frames: list[Row] = []
        for line in reversed(lines):
            match = _FORWARD_FRAME.match(line) if isinstance(line, str) else None
            frames.append(
                {"name": match["name"], "filename": match["filename"], "line": int(match["line"])}
                if match
                else {"name": str(line)}
            )
        return self._by_content(tuple(self._frame_of(frame) for frame in frames))


class _Flattener:
    """The tables under construction; one use a snapshot."""

    def __init__(self) -> None:
        self.notes: Counter[tuple[str, str]] = Counter()
        self.stacks = _Stacks(self.notes)
        self.newest_field = (1, 12)
        self.allowance = Allowance(0)

    def tables(self, snapshot: Snapshot) -> dict[str, pa.Table]:
        """Every raw table; events first, so that stacks are numbered in the order of the trace."""
        # values of no known shape are few in an honest file; a made one can repeat a list until it unfolds without end
        self.allowance = self.stacks.allowance = Allowance(2**20 + 100 * snapshot.source.byte_count)
        traces = snapshot.device_traces
        event_counts = [len(trace) for trace in traces]
        batches = [batch for device, trace in enumerate(traces) for batch in self._events(device, trace)]
        schema = TABLES["trace_event"].schema
        events = pa.Table.from_batches(batches, schema)
        for action, count in _counts(events["action"]):
            if action not in KNOWN_ACTIONS:
                self.notes["trace_event", f"action {action}"] += count
            if action == "annotate":
                self._seen((2, 14))
        segments, blocks, history = self._segments(snapshot.segments)
        annotations = self._annotations(snapshot.external_annotations, events)
        host = self._host(snapshot)
        settings = self._settings(snapshot.allocator_settings)
        devices = self._devices(events, event_counts, segments)
        for key in snapshot.extra:
            self.notes["run", f"key {key}"] += 1
        if snapshot.source.layout == "dict":
            self._seen((2, 0))
        run = [
            {
                "layout": snapshot.source.layout,
                "oldest_torch": "{}.{}".format(*self.newest_field),
                "device_count": len(devices),
                "has_trace": len(events) > 0,
                "has_stacks": bool(self.stacks.stacks),
                "has_time": events["time_us"].null_count < len(events),
                "extra": _json(snapshot.extra) if snapshot.extra else None,
            }
        ]
        tables = {
            "run": _rows("run", run),
            "device": _rows("device", devices),
            "allocator_setting": _rows("allocator_setting", settings),
            "segment": _rows("segment", segments),
            "block": _rows("block", blocks),
            "block_history": _rows("block_history", history),
            "trace_event": events,
            "annotation": _rows("annotation", annotations),
            "host_entry": _rows("host_entry", host),
            **self._stack_tables(),
            "note": _rows(
                "note",
                [
                    {"place": place, "what": what, "occurrence_count": count}
                    for (place, what), count in sorted(self.notes.items())
                ],
            ),
        }
        return {name: tables[name] for name in RAW_TABLES}

    def _seen(self, release: tuple[int, int]) -> None:
        self.newest_field = max(self.newest_field, release)

    # ---------------------------------------------------------------- events

    def _events(self, device: int, trace: list[Row]) -> Iterator[pa.RecordBatch]:
        """One record batch a slice of a device's trace, the slice taken out of the trace as it is read."""
        begin = 0
        while trace:
            entries = trace[:_SLICE]
            del trace[:_SLICE]
            yield self._event_batch(device, begin, entries)
            begin += len(entries)

    def _event_batch(self, device: int, begin: int, entries: list[Row]) -> pa.RecordBatch:
        count = len(entries)
        listed, unknown = _listed(entries)
        for key in listed.keys() & _FIRST_SEEN_IN_EVENTS.keys():
            self._seen(_FIRST_SEEN_IN_EVENTS[key])
        extras: list[Row | None] = [None] * count
        columns: dict[str, pa.Array] = {
            "device": pa.array(repeat(device, count), pa.int64(), size=count),
            "event_ix": pa.array(range(begin, begin + count), pa.int64()),
        }
        for key, column in _EVENT_KEYS.items():
            columns[column] = self._column("trace_event", column, key, listed.get(key), extras)
        frames = listed.get("frames")
        columns["stack_id"] = self._stack_column(frames, extras, count)
        forward = listed.get("forward_frames")
        columns["forward_stack_id"] = (
            pa.nulls(count, pa.int64())
            if forward is None
            else pa.array([self.stacks.forward_stack_of(lines) for lines in forward], pa.int64())
        )
        pools = listed.get("pool_id")
        columns["pool"] = pa.nulls(count, pa.string()) if pools is None else pa.array(_pools(pools), pa.string())
        if unknown:
            self._keep_unknown("trace_event", entries, unknown, extras)
        columns["extra"] = (
            pa.array([None if extra is None else _json(extra) for extra in extras], pa.string())
            if any(extras)
            else pa.nulls(count, pa.string())
        )
        schema = TABLES["trace_event"].schema
        return pa.record_batch([columns[name] for name in schema.names], schema=schema)

    def _stack_column(self, frames: list[Any] | None, extras: list[Row | None], count: int) -> pa.Array:
        if frames is None:
            return pa.nulls(count, pa.int64())
        if not {list, type(None)}.issuperset(map(type, frames)):
            for row, value in enumerate(frames):
                if value is not None and not isinstance(value, list):
                    self._misfit("trace_event", "frames", value, row, extras)
                    frames[row] = None
        return pa.array(self.stacks.column(frames), pa.int64())

    def _keep_unknown(self, place: str, rows: Sequence[Row], unknown: set[Any], extras: list[Row | None]) -> None:
        for row, source in enumerate(rows):
            for key in unknown & source.keys():
                self.notes[place, f"key {key}"] += 1
                self.allowance.check_nested(source[key], f"{place}.{key}")
                extras[row] = (extras[row] or {}) | {str(key): source[key]}

    # ---------------------------------------------------------------- columns

    def _column(
        self, table: str, column: str, key: str, values: list[Any] | None, extras: list[Row | None]
    ) -> pa.Array:
        """One column of a table; a value that does not fit it is null there and stands in `extra` instead."""
        kind = TABLES[table].schema.field(column).type
        nothing = _NOTHING.get((table, column))
        if values is None or (nothing is not None and values.count(nothing) == len(values)):
            return pa.nulls(len(extras), kind)
        try:
            if kind == pa.int64() and not _WHOLE.issuperset(map(type, values)):
                raise TypeError  # Arrow would cut 1.5 down to 1
            array = pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            fits = _FITS[kind]
            fitting: list[Any] = []
            for row, value in enumerate(values):
                if value is None or fits(value):
                    fitting.append(value)
                elif column == "user_metadata":
                    self.allowance.check_nested(value, "trace_event.user_metadata")
                    fitting.append(_json(value))  # torch 2.15 takes a dict and means its JSON text
                else:
                    self._misfit(table, key, value, row, extras)
                    fitting.append(None)
            array = pa.array(fitting, kind)
        if nothing is not None:
            array = pc.if_else(pc.equal(array, pa.scalar(nothing, kind)), pa.scalar(None, kind), array)
        return array

    def _misfit(self, place: str, key: str, value: object, row: int, extras: list[Row | None]) -> None:
        self.notes[
            place,
            f"{key} of type {type(value).__name__}" if type(value) is not int else f"{key} beyond 64 bits",
        ] += 1
        self.allowance.check_nested(value, f"{place}.{key}")
        extras[row] = (extras[row] or {}) | {key: value}

    # ---------------------------------------------------------------- the small tables

    def _segments(self, source: list[Row]) -> tuple[list[Row], list[Row], list[Row]]:
        segments: list[Row] = []
        blocks: list[Row] = []
        history: list[Row] = []
        for segment_ix, segment in enumerate(source):
            if "segment_pool_id" in segment:
                self._seen((2, 1))
            elif "stream" in segment:
                self._seen((1, 13))
            row: Row = self._picked("segment", segment, _SEGMENT_KEYS, {"segment_pool_id", "frames", "blocks"})
            row |= {
                "segment_id": segment_ix,
                "segment_ix": segment_ix,
                "device": row["device"] or 0,
                "pool": _pool(segment.get("segment_pool_id")),
                "stack_id": self._stack_or_none(segment.get("frames")),
            }
            segments.append(row)
            for block_ix, block in enumerate(segment["blocks"]):
                held: Row = self._picked("block", block, _BLOCK_KEYS, {"frames", "history"})
                held |= {
                    "block_id": len(blocks),
                    "segment_id": segment_ix,
                    "device": row["device"],
                    "block_ix": block_ix,
                    "stack_id": self._stack_or_none(block.get("frames")),
                }
                for history_ix, occupant in enumerate(block.get("history") or ()):
                    self._seen((1, 13))
                    history.append(
                        {
                            "block_id": held["block_id"],
                            "history_ix": history_ix,
                            "address": occupant.get("addr"),
                            "real_size_bytes": occupant.get("real_size"),
                            "stack_id": self._stack_or_none(occupant.get("frames")),
                            "cpp_frames": _text(occupant.get("cpp_frames")),
                        }
                    )
                blocks.append(held)
        return segments, blocks, history

    def _picked(self, place: str, source: Row, keys: Mapping[str, str], handled: set[str]) -> Row:
        """The columns a dict fills by name, with what is left over as JSON in `extra`."""
        schema = TABLES[place].schema
        row: Row = dict.fromkeys(keys.values())
        extra: Row = {}
        for key, value in source.items():
            column = keys.get(key)
            if column is None:
                if key not in handled:
                    self.notes[place, f"key {key}"] += 1
                    extra[str(key)] = value
            elif value is None or _FITS[schema.field(column).type](value):
                row[column] = value
            else:
                self.notes[place, f"{key} of type {type(value).__name__}"] += 1
                extra[key] = value
        row["extra"] = _json(extra) if extra else None
        return row

    def _stack_or_none(self, frames: Any) -> int | None:
        """Segments and blocks get an empty list where no stack was recorded: that is no stack."""
        return self.stacks.stack_of(frames) if isinstance(frames, list) and frames else None

    def _annotations(self, source: list[Row], events: pa.Table) -> list[Row]:
        if not source:
            return []
        self._seen((2, 5))
        rows = [self._picked("annotation", mark, _ANNOTATION_KEYS, set()) for mark in source]
        for index, row in enumerate(rows):
            row["annotation_ix"] = index
        return seated_annotations(rows, events)

    def _settings(self, settings: Mapping[str, Any] | None) -> list[Row]:
        if settings is None:
            return []
        self._seen((2, 3))
        if "graph_capture_record_stream_reuse" in settings:
            self._seen((2, 9))
        if "max_cached_size" in settings:
            self._seen((2, 13))
        return [{"key": str(key), "value": _json(settings[key])} for key in sorted(settings, key=str)]

    def _host(self, snapshot: Snapshot) -> list[Row]:
        rows: list[Row] = []
        for name in ("host_segments", "host_traces"):
            entries = getattr(snapshot, name)
            if entries is None:
                continue
            self._seen((2, 14))
            lists = entries if entries and all(isinstance(item, list) for item in entries) else [entries]
            for list_ix, items in enumerate(lists):
                for entry_ix, item in enumerate(items):
                    entry = item if isinstance(item, dict) else {"value": item}
                    row = dict.fromkeys(_HOST_KEYS.values())
                    extra: Row = {}
                    for key, value in entry.items():
                        column = _HOST_KEYS.get(key)
                        if column is not None and row[column] is None and _FITS[_host_type(column)](value):
                            row[column] = value
                        elif key != "frames":
                            extra[str(key)] = value
                    rows.append(
                        {
                            "source": name,
                            "list_ix": list_ix,
                            "entry_ix": entry_ix,
                            **row,
                            "stack_id": self._stack_or_none(entry.get("frames")),
                            "extra": _json(extra) if extra else None,
                        }
                    )
        return rows

    def _devices(self, events: pa.Table, event_counts: Sequence[int], segments: Sequence[Row]) -> list[Row]:
        held = Counter(row["device"] for row in segments)
        times = (
            events.group_by("device", use_threads=False).aggregate([("time_us", "min"), ("time_us", "max")]).to_pylist()
        )
        spans = {row["device"]: (row["time_us_min"], row["time_us_max"]) for row in times}
        traced = {device: count for device, count in enumerate(event_counts) if count}
        return [
            {
                "device": device,
                "event_count": traced.get(device, 0),
                "segment_count": held.get(device, 0),
                "first_time_us": spans.get(device, (None, None))[0],
                "last_time_us": spans.get(device, (None, None))[1],
            }
            for device in sorted(held.keys() | traced.keys())
        ]

    def _stack_tables(self) -> dict[str, pa.Table]:
        stacks = self.stacks.stacks
        lengths = list(map(len, stacks))
        names, filenames, lines, extras = zip(*self.stacks.frames, strict=True) if self.stacks.frames else ((),) * 4
        columns: dict[str, list[Sequence[Any]]] = {
            "stack": [range(len(stacks)), lengths],
            "stack_frame": [
                [stack_id for stack_id, length in enumerate(lengths) for _ in range(length)],
                [depth for length in lengths for depth in range(length)],
                [frame_id for stack in stacks for frame_id in stack],
            ],
            "frame": [range(len(names)), names, filenames, lines, extras],
        }
        return {
            name: pa.table(
                [
                    pa.array(values, field.type)
                    for values, field in zip(columns[name], TABLES[name].schema, strict=True)
                ],
                schema=TABLES[name].schema,
            )
            for name in columns
        }


def _listed(entries: Sequence[Row]) -> tuple[dict[str, list[Any]], set[Any]]:
    """Each known key of many dicts as a list, None where a dict lacks it, and the keys that are not known.

    Nearly always all of them have the keys of the first, and as many: then no others, and it is all done in C.
    """
    first = entries[0]
    if set(map(len, entries)) == {len(first)} and _KNOWN_KEYS.issuperset(first):
        with suppress(KeyError):
            return {key: list(map(itemgetter(key), entries)) for key in first}, set()
    seen: set[Any] = set().union(*entries)
    return {key: [entry.get(key) for entry in entries] for key in seen & _KNOWN_KEYS}, seen - _KNOWN_KEYS


def seated_annotations(rows: list[Row], events: pa.Table) -> list[Row]:
    """Give each mark of the table annotation the event it comes before: the first of its device at or after it.

    Args:
        rows: marks with device and time_us; event_ix is written.
        events: the table trace_event.
    """
    clocks = {device: _clock(events, device) for device in {row["device"] for row in rows}}
    for row in rows:
        clock = clocks[row["device"]]
        position = None if row["time_us"] is None else bisect_left(clock, row["time_us"])
        row["event_ix"] = None if position == len(clock) else position
    return rows


def _clock(events: pa.Table, device: int | None) -> list[int]:
    """The time of each event of a device, made never to fall: a clock may step back, and some events have no time."""
    if device is None:
        return []
    times = events["time_us"].filter(pc.equal(events["device"], pa.scalar(device)))
    listed: list[Any] = times.to_pylist()
    if times.null_count == 0 and pc.all(pc.greater_equal(times[1:], times[:-1])).as_py():
        return listed
    return list(accumulate((0 if time is None else time for time in listed), max))


def _counts(column: pa.ChunkedArray) -> list[tuple[Any, int]]:
    """Each distinct value of a column with how often it occurs."""
    counted = pc.value_counts(column)
    values: list[Any] = counted.field(0).to_pylist()
    counts: list[Any] = counted.field(1).to_pylist()
    return list(zip(values, counts, strict=True))


def _rows(name: str, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLES[name].schema)


def _fits_integer(value: object) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63


def _fits_text(value: object) -> bool:
    return isinstance(value, str) and _is_unicode(value)


def _fits_boolean(value: object) -> bool:
    return isinstance(value, bool)


_FITS: dict[pa.DataType, Callable[[object], bool]] = {
    pa.int64(): _fits_integer,
    pa.string(): _fits_text,
    pa.bool_(): _fits_boolean,
}


_WHOLE = {int, type(None)}


def _host_type(column: str) -> pa.DataType:
    return TABLES["host_entry"].schema.field(column).type


def _is_unicode(text: str) -> bool:
    """Whether a string can be written as UTF-8 (a JSON or pickled lone surrogate cannot)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(value: Any) -> str | None:
    """A string Arrow can hold: what is not valid Unicode is written with escapes rather than lost."""
    if value is None:
        return None
    text = value if isinstance(value, str) else str(value)
    return text if _is_unicode(text) else text.encode("utf-8", "backslashreplace").decode()


def _pools(pools: Sequence[Any]) -> list[str | None]:
    """Many pool ids as text; the common case, tuples of which there are few, runs in C."""
    try:
        text = {pool: _pool(pool) for pool in set(pools)}
    except TypeError:  # lists, from JSON
        return list(map(_pool, pools))
    return list(map(text.__getitem__, pools))


def _pool(pool: Any) -> str | None:
    """A pool id as text, `(0,0)`; tuples and (from JSON) lists alike."""
    if isinstance(pool, list | tuple) and len(pool) == 2 and all(type(part) is int for part in pool):
        return pool_text((pool[0], pool[1]))
    return None


def _json(value: object) -> str:
    """Plain data as JSON, keys sorted, the same for the same value."""
    try:
        return json.dumps(value, sort_keys=True)
    except TypeError:  # keys of several types have no order but their own
        return json.dumps(value)
