"""Raw tables in, placements out: the door between Arrow and the allocator's room.

Rows become the plain sequences that `tracekit.allocator` takes, and its answers become tables again. No rule of the
allocator is known here, and no file.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.replay import Replay, replay_recording
from tracekit.allocator.settings import Settings
from tracekit.pools import parse_pool, pool_text
from tracekit.ranges import reserved_ranges
from tracekit.schema import PLACED_TABLES, TABLES

Row = dict[str, Any]


def place(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Replay each device's trace and say which block every allocation got.

    Args:
        tables: the raw tables of `tracekit.flatten.flatten`.

    Returns:
        A table for each name in `tracekit.schema.PLACED_TABLES`.
    """
    settings = Settings.from_snapshot(recorded_settings(tables))
    segments = final_segments(tables)
    blocks = {
        (row["device"], row["address"]): (row["block_id"], row["stack_id"])
        for row in tables["block"].filter(pc.not_equal(tables["block"]["state"], pa.scalar("inactive"))).to_pylist()
    }
    replays: list[Row] = []
    mismatches: list[Row] = []
    placements: list[pa.Table] = []
    ranges: list[Row] = []
    devices: list[Any] = tables["device"]["device"].to_pylist()
    for device in devices:
        trace = device_trace(tables["trace_event"], device)
        events = device_events(trace)
        replay = replay_recording(events, segments[device], settings)
        replays.append(_replay_row(device, replay, has_trace=len(trace) > 0))
        mismatches += _mismatch_rows(device, replay)
        begin = sum(map(len, placements))
        placements.append(_placement_table(device, begin, replay, trace, blocks))
        ranges += [
            {"reserved_range_id": number, "device": device, **asdict(one)}
            for number, one in enumerate(reserved_ranges(events, replay, segments[device]), len(ranges))
        ]
    placed = {
        "replay": pa.Table.from_pylist(replays, schema=TABLES["replay"].schema),
        "mismatch": pa.Table.from_pylist(mismatches, schema=TABLES["mismatch"].schema),
        "placement": pa.concat_tables([TABLES["placement"].schema.empty_table(), *placements]),
        "reserved_range": pa.Table.from_pylist(ranges, schema=TABLES["reserved_range"].schema),
    }
    return {name: placed[name] for name in PLACED_TABLES}


def recorded_settings(tables: Mapping[str, pa.Table]) -> dict[str, object] | None:
    """The allocator settings as torch recorded them; None where the snapshot holds none."""
    rows = tables["allocator_setting"].to_pylist()
    return {row["key"]: json.loads(row["value"]) for row in rows} or None


def final_segments(tables: Mapping[str, pa.Table]) -> defaultdict[int, list[FinalSegment]]:
    """The segments of each device at the end of the recording, with their blocks."""
    blocks: defaultdict[int, list[FinalBlock]] = defaultdict(list)
    for row in tables["block"].to_pylist():
        if row["address"] is not None and row["size_bytes"] is not None:
            block = FinalBlock(
                row["address"], row["size_bytes"], row["requested_size_bytes"], row["state"] or "inactive"
            )
            blocks[row["segment_id"]].append(block)
    segments: defaultdict[int, list[FinalSegment]] = defaultdict(list)
    for row in tables["segment"].to_pylist():
        segments[row["device"]].append(
            FinalSegment(
                address=row["address"],
                total_size=row["total_size_bytes"],
                stream=row["stream"] or 0,
                pool=parse_pool(row["pool"]),
                is_small=row["segment_type"] == "small",
                is_expandable=bool(row["is_expandable"]),
                blocks=blocks[row["segment_id"]],
            )
        )
    return segments


def device_trace(events: pa.Table, device: int) -> pa.Table:
    """The rows of one device; the whole table, untouched, where there is no other."""
    is_its = pc.equal(events["device"], pa.scalar(device))
    return events if pc.all(is_its).as_py() else events.filter(is_its)


def device_events(trace: pa.Table) -> Events:
    """One device's trace as the sequences that a replay takes."""
    pools = None
    if trace["pool"].null_count < len(trace):
        by_text: dict[str | None, tuple[int, int] | None] = {
            text: parse_pool(text) for text in pc.unique(trace["pool"]).to_pylist()
        }
        pools = (
            [*by_text.values()] * len(trace)
            if len(by_text) == 1
            else list(map(by_text.get, _shared_texts(trace["pool"])))
        )
    return Events(
        action=_shared_texts(trace["action"]),
        address=_integers(trace["address"]),
        size=_integers(trace["size_bytes"]),
        stream=_integers(trace["stream"]),
        pool=pools,
        stack=_integers(trace["stack_id"]),
    )


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece: taking rows out of many pieces looks for the piece of each row."""
    whole = column.combine_chunks()
    return pa.concat_arrays(whole.chunks) if isinstance(whole, pa.ChunkedArray) else whole


def _integers(column: pa.ChunkedArray) -> list[Any]:
    """A column of integers as a list; without nulls by way of its buffer, which takes a quarter of the time."""
    values: list[Any] = []
    for chunk in column.chunks:
        data = chunk.buffers()[1]
        if chunk.null_count == 0 and data is not None:
            values += memoryview(data).cast("q")[chunk.offset : chunk.offset + len(chunk)].tolist()
        else:
            values += chunk.to_pylist()
    return values


def _shared_texts(column: pa.ChunkedArray) -> list[str | None]:
    """A column of few distinct texts as a list that holds each text once."""
    texts: list[str | None] = pc.unique(column).to_pylist()
    positions: list[Any] = pc.index_in(column, pa.array(texts, pa.string())).to_pylist()
    return list(map(texts.__getitem__, positions))


def _placement_table(
    device: int,
    begin: int,
    replay: Replay,
    trace: pa.Table,
    blocks: Mapping[tuple[int, int], tuple[int, int | None]],
) -> pa.Table:
    """One device's placements; what the events say of an allocation is taken over by position."""
    rows = replay.placements
    count = len(rows)
    times, stacks = _whole(trace["time_us"]), _whole(trace["stack_id"])
    birth = pa.array(rows.birth_ix, pa.int64())
    free_requested = pa.array(rows.free_requested_ix, pa.int64())
    death = pa.array(rows.death_ix, pa.int64())
    pools = {pool: None if pool is None else pool_text(pool) for pool in set(rows.pool)}
    block_id: list[int | None] = [None] * count
    block_stack: list[int | None] = [None] * count
    for index, dead in enumerate(rows.death_ix):
        if dead is None:
            block_id[index], block_stack[index] = blocks.get((device, rows.address[index]), (None, None))
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "placement_id": pa.array(range(begin, begin + count), pa.int64()),
        "device": pa.array([device] * count, pa.int64()),
        "address": pa.array(rows.address, pa.int64()),
        "requested_bytes": pa.array(rows.requested, pa.int64()),
        "held_bytes": pa.array(rows.held, pa.int64()),
        "stream": pa.array(rows.stream, pa.int64()),
        "pool": pa.array(list(map(pools.__getitem__, rows.pool)), pa.string()),
        "segment_address": pa.array(rows.segment_address, pa.int64()),
        "birth_event_ix": birth,
        "free_requested_event_ix": free_requested,
        "death_event_ix": death,
        "birth_us": times.take(birth),
        "free_requested_us": times.take(free_requested),
        "death_us": times.take(death),
        "stack_id": pc.coalesce(stacks.take(birth), pa.array(block_stack, pa.int64())),
        "free_stack_id": stacks.take(free_requested),
        "is_pending_at_start": pa.array(
            [index in replay.pending_at_opening for index in range(replay.opening_count)]
            + [False] * (count - replay.opening_count),
            pa.bool_(),
        ),
        "is_exact": pa.array(rows.is_exact, pa.bool_()),
        "block_id": pa.array(block_id, pa.int64()),
    }
    schema = TABLES["placement"].schema
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _replay_row(device: int, replay: Replay, *, has_trace: bool) -> Row:
    first = replay.first_mismatch
    return {
        "device": device,
        "is_exact": replay.is_exact if has_trace else None,
        "mismatch_count": replay.mismatch_count,
        "first_mismatch_event_ix": None if first is None else first.event_ix,
        "verdict": replay.verdict if has_trace else "no events were recorded: only the final state is known",
        "opening_allocation_count": replay.opening_count,
        "opening_reserved_bytes": replay.opening_reserved,
        "unknown_held_count": replay.unknown_held_count,
        "final_block_difference_count": replay.final_difference_count,
        "peak_allocated_bytes": replay.peak_allocated.value,
        "peak_allocated_event_ix": replay.peak_allocated.event_ix,
        "peak_active_bytes": replay.peak_active.value,
        "peak_active_event_ix": replay.peak_active.event_ix,
        "peak_requested_bytes": replay.peak_requested.value,
        "peak_requested_event_ix": replay.peak_requested.event_ix,
        "peak_reserved_bytes": replay.peak_reserved.value,
        "peak_reserved_event_ix": replay.peak_reserved.event_ix,
    }


def _mismatch_rows(device: int, replay: Replay) -> Sequence[Row]:
    return [
        {
            "device": device,
            "mismatch_ix": index,
            "event_ix": mismatch.event_ix,
            "kind": mismatch.kind,
            "expected_address": mismatch.expected,
            "found_address": mismatch.found,
            "reason": mismatch.reason,
        }
        for index, mismatch in enumerate(replay.mismatches)
    ]
