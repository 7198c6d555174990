"""The same program under other settings or on a smaller card: from a dataset's tables, and back to tables.

Which block a request gets is decided in `tracekit.allocator`; here its results get names, stacks and rows again.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tracekit.allocator.program import Program, program_of
from tracekit.allocator.replay import replay_recording
from tracekit.allocator.settings import DEFAULT_POOL, Settings
from tracekit.allocator.whatif import CachedBlock, Outcome, OutOfMemory, run
from tracekit.collector import paused
from tracekit.errors import TracekitError
from tracekit.flatten import seated_annotations
from tracekit.place import device_events, device_trace, final_segments, recorded_settings
from tracekit.pools import pool_text
from tracekit.schema import RAW_TABLES, TABLES
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

SUGGESTED = (
    "default",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.8",
)
"""Settings worth a try in general; the last one acts under a limit only."""

_BORROWED = ("time_us", "stack_id", "compile_context", "user_metadata", "forward_stack_id", "category")
"""What an event of another run takes over from the event of the recording that it comes from."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording as programs that can be run again.

    Attributes:
        tables: the raw tables.
        programs: each device that has events, with its program.
        settings: those it was recorded under, with what the replay had to infer.
    """

    tables: dict[str, pa.Table]
    programs: dict[int, Program]
    settings: dict[int, Settings]


@dataclass(frozen=True, slots=True)
class Trial:
    """One run of a device's program.

    Attributes:
        device: the device.
        name: the settings as they were asked for.
        settings: the settings it ran under, the limit among them.
        outcome: what came out.
    """

    device: int
    name: str
    settings: Settings
    outcome: Outcome


def recorded(warehouse: Warehouse, device: int | None = None) -> Recorded:
    """Take the program of each device out of a dataset.

    Raises:
        TracekitError: where there is no device of that ordinal with events: a state without a trace is no program.
    """
    tables = {name: warehouse.table(name) for name in RAW_TABLES}
    programs: dict[int, Program] = {}
    settings: dict[int, Settings] = {}
    segments = final_segments(tables)
    with paused():
        for row in tables["device"].to_pylist():
            ordinal, count = row["device"], row["event_count"]
            if count == 0 or device not in (None, ordinal):
                continue
            events = device_events(device_trace(tables["trace_event"], ordinal))
            replay = replay_recording(events, segments[ordinal], Settings.from_snapshot(recorded_settings(tables)))
            programs[ordinal] = program_of(replay, events)
            settings[ordinal] = replay.settings
    if not programs:
        raise TracekitError(
            "the recording has no events to run again" + ("" if device is None else f" on device {device}"),
            "record with torch.cuda.memory._record_memory_history() before the model is built",
        )
    return Recorded(tables, programs, settings)


def chosen_settings(base: Settings, name: str) -> Settings:
    """The settings that a name stands for.

    Args:
        base: the recording's own.
        name: `recorded`, `default` (torch's), or options laid over the recording's own, as in
            `max_split_size_mb:256+roundup_power2_divisions:4` (a comma does as well).

    Raises:
        TracekitError: where an option is unknown or its value cannot be used.
    """
    if name in ("", "recorded"):
        return base
    if name == "default":
        return Settings()
    return base.with_options(name.replace("+", ","))


def trials(recording: Recorded, names: Iterable[str], limit: int | None, *, keeps_events: bool = False) -> list[Trial]:
    """Run each device's program under each of some settings.

    Args:
        recording: the programs.
        names: settings, as `chosen_settings` takes them; two that come to the same are run once.
        limit: bytes that may be reserved in all; None is no limit.
        keeps_events: whether the outcomes hold what a recording of them would show.

    Raises:
        TracekitError: where a name cannot be used.
    """
    done: list[Trial] = []
    for device, program in recording.programs.items():
        seen: set[Settings] = set()
        for name in names:
            settings = chosen_settings(recording.settings[device], name)
            if settings not in seen:
                seen.add(settings)
                with paused():
                    outcome = run(program, settings, limit, keeps_events=keeps_events)
                done.append(Trial(device, name or "recorded", outcome.settings, outcome))
    return done


def as_json(warehouse: Warehouse, trial: Trial, requested: Sequence[int] | None = None) -> Row:
    """One trial in the shape of `tracekit replay --format json`.

    Args:
        warehouse: the dataset that the events are those of.
        trial: the trial.
        requested: the bytes of each allocation, where they are not those of the dataset.
    """
    outcome = trial.outcome
    return {
        "device": trial.device,
        "name": trial.name,
        "settings": settings_row(trial.settings),
        "limit_bytes": trial.settings.memory_limit,
        "peak_allocated_bytes": outcome.peak_allocated.value,
        "peak_allocated_event_ix": outcome.peak_allocated.event_ix,
        "peak_reserved_bytes": outcome.peak_reserved.value,
        "peak_reserved_event_ix": outcome.peak_reserved.event_ix,
        "retry_count": outcome.retries,
        "fits": outcome.fits,
        "oom": None
        if outcome.out_of_memory is None
        else _oom_row(warehouse, trial.device, outcome.out_of_memory, requested),
    }


def settings_row(settings: Settings) -> Row:
    """Settings in torch's own words, as a snapshot's allocator_settings has them."""
    text = settings.describe()
    return {
        "PYTORCH_CUDA_ALLOC_CONF": "" if text == "default" else text,
        "expandable_segments": settings.expandable_segments,
        "garbage_collection_threshold": settings.garbage_collection_threshold,
        "max_split_size": -1 if settings.max_split_size is None else settings.max_split_size,
        "roundup_power2_divisions": {
            str(1 << power): divisions for power, divisions in enumerate(settings.roundup_power2_divisions)
        },
    }


def tables_of(recording: Recorded, done: Iterable[Trial]) -> dict[str, pa.Table]:
    """The raw tables that a recording of these trials would have; one trial a device, with its events kept.

    Events borrow time, stack and annotations from the event of the recording they come from.
    """
    parts: list[pa.Table] = []
    segments: list[Row] = []
    blocks: list[Row] = []
    devices: list[Row] = []
    settings: Row = {}
    for trial in done:
        trace = _trace(trial, device_trace(recording.tables["trace_event"], trial.device))
        parts.append(trace)
        first = len(segments)
        _add_segments(trial, segments, blocks)
        times = [time for time in trace["time_us"].to_pylist() if time is not None]
        devices.append(
            {
                "device": trial.device,
                "event_count": len(trace),
                "segment_count": len(segments) - first,
                "first_time_us": min(times, default=None),
                "last_time_us": max(times, default=None),
            }
        )
        settings = settings_row(trial.settings)
    tables = dict(recording.tables)
    tables["trace_event"] = pa.concat_tables(parts)
    rows: Mapping[str, list[Row]] = {
        "device": devices,
        "segment": segments,
        "block": blocks,
        "block_history": [],
        "annotation": seated_annotations(tables["annotation"].to_pylist(), tables["trace_event"]),
        "allocator_setting": [{"key": key, "value": json.dumps(settings[key])} for key in sorted(settings)],
    }
    for name, table in rows.items():
        tables[name] = pa.Table.from_pylist(table, schema=TABLES[name].schema)
    return tables


def _trace(trial: Trial, source: pa.Table) -> pa.Table:
    """The events of one trial as rows of trace_event."""
    events = trial.outcome.events
    count = len(events)
    from_event = pa.array(trial.outcome.source_ix, pa.int64())
    pools = [None if pool is None else pool_text(pool) for pool in events.pool or [None] * count]
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "device": pa.array([trial.device] * count, pa.int64()),
        "event_ix": pa.array(range(count), pa.int64()),
        "action": pa.array(events.action, pa.string()),
        "address": pa.array(events.address, pa.int64()),
        "size_bytes": pa.array(events.size, pa.int64()),
        "stream": pa.array(events.stream, pa.int64()),
        "pool": pa.array(pools, pa.string()),
        **{name: source[name].take(from_event) for name in _BORROWED},
    }
    schema = TABLES["trace_event"].schema
    return pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema=schema)


def _add_segments(trial: Trial, segments: list[Row], blocks: list[Row]) -> None:
    for index, segment in enumerate(trial.outcome.segments):
        active = [block for block in segment.blocks if block.state != "inactive"]
        segments.append(
            {
                "segment_id": len(segments),
                "device": trial.device,
                "segment_ix": index,
                "address": segment.address,
                "total_size_bytes": segment.total_size,
                "allocated_size_bytes": sum(block.size for block in active if block.state == "active_allocated"),
                "active_size_bytes": sum(block.size for block in active),
                "requested_size_bytes": sum(block.requested_size or 0 for block in active),
                "stream": segment.stream,
                "segment_type": "small" if segment.is_small else "large",
                "pool": pool_text(segment.pool or DEFAULT_POOL),
                "is_expandable": segment.is_expandable,
            }
        )
        for block_ix, block in enumerate(segment.blocks):
            blocks.append(
                {
                    "block_id": len(blocks),
                    "segment_id": len(segments) - 1,
                    "device": trial.device,
                    "block_ix": block_ix,
                    "address": block.address,
                    "size_bytes": block.size,
                    "requested_size_bytes": block.requested_size,
                    "state": block.state,
                }
            )


def asked_at(warehouse: Warehouse, device: int, event_ix: int | None) -> Row:
    """Who asked at an event, and in which step and phase; all None for what is older than the recording."""
    asked = warehouse.rows(
        "select stack_label.requested_by, span.step, span.phase"
        " from trace_event left join stack_label using (stack_id)"
        " asof left join span on trace_event.device = span.device and trace_event.event_ix >= span.begin_event_ix"
        " where trace_event.device = ? and trace_event.event_ix = ?",
        [device, event_ix],
    )
    return asked[0] if asked else {"requested_by": None, "step": None, "phase": None}


def _oom_row(warehouse: Warehouse, device: int, oom: OutOfMemory, requested: Sequence[int] | None) -> Row:
    told = asked_at(warehouse, device, oom.event_ix)
    names = _names(warehouse, device, oom.cached[:5])
    for number, row in names.items():
        if requested is not None and row["allocation_id"] is not None:
            row["requested_bytes"] = requested[number]
    return {
        "event_ix": oom.event_ix,
        "request_bytes": oom.request_bytes,
        "rounded_bytes": oom.rounded_bytes,
        "segment_bytes": oom.segment_bytes,
        "allocated_bytes": oom.allocated_bytes,
        "active_bytes": oom.active_bytes,
        "reserved_bytes": oom.reserved_bytes,
        "released_bytes": oom.released_bytes,
        "free_bytes": oom.free_bytes,
        "cached_bytes": oom.cached_bytes,
        **told,
        "largest_cached": [
            {
                "address": block.address,
                "size_bytes": block.size,
                "segment_bytes": block.segment_size,
                "obstacle": block.obstacle,
                "pinned_by": [names[number] for number in (block.below, block.above) if number is not None],
            }
            for block in oom.cached[:5]
        ],
    }


def _names(warehouse: Warehouse, device: int, cached: Iterable[CachedBlock]) -> dict[int, Row]:
    """Who asked for the allocations that pin some free blocks, by their number in the program."""
    numbers = sorted({number for block in cached for number in (block.below, block.above) if number is not None})
    if not numbers:
        return {}
    rows = warehouse.rows(
        "select allocation_id - min(allocation_id) over () as number,"
        " allocation_id, bucket, requested_bytes, requested_by"
        " from allocation_story where device = ? order by allocation_id",
        [device],
    )
    by_number = {row.pop("number"): row for row in rows}
    return {number: by_number.get(number, {"allocation_id": None}) for number in numbers}
