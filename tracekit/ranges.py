"""Which addresses were reserved from when to when: the trace's segment events as runs with a birth and a death.

Takes and gives plain values; the allocator's rules and Arrow are strangers here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tracekit.allocator.opening import GROWTHS, SEGMENT_ACTIONS
from tracekit.allocator.recording import Events, FinalSegment
from tracekit.allocator.result import Replay
from tracekit.allocator.settings import DEFAULT_POOL, SMALL_SIZE, PoolId
from tracekit.pools import pool_text


@dataclass(frozen=True, slots=True)
class ReservedRange:
    """One run of addresses reserved from the device; see the table reserved_range."""

    address: int
    size_bytes: int
    stream: int
    pool: str
    is_small: bool
    is_expandable: bool
    birth_event_ix: int | None
    death_event_ix: int | None = None


@dataclass(frozen=True, slots=True)
class _Home:
    """What is known of a segment beside its address: to which pool it belongs."""

    pool: PoolId | None
    is_small: bool


def reserved_ranges(events: Events, replay: Replay, finals: Sequence[FinalSegment]) -> list[ReservedRange]:
    """Every run of addresses that was reserved at some time, those older than the recording first.

    Pages that are mapped become a run of their own, also beside others; pages unmapped from the middle of a run end
    it and begin one for each part that is left. A release of what was never reserved, or twice, changes nothing.

    Args:
        events: the device's trace.
        replay: its replay, which knows the opening state and where each allocation lay.
        finals: its segments at the end.
    """
    homes = _homes(replay, finals)
    bases = sorted(homes)
    alive: dict[int, ReservedRange] = {}
    ended: list[ReservedRange] = []
    for one in replay.opening_segments:
        alive[one.address] = ReservedRange(
            one.address, one.size, one.stream, pool_text(one.pool), one.is_small, one.is_expandable, None
        )
    for ix in [ix for ix, action in enumerate(events.action) if action in SEGMENT_ACTIONS]:
        action = events.action[ix]
        address, size = events.address[ix], events.size[ix]
        if address is None or size is None or size <= 0:
            continue
        if action in GROWTHS:
            home = (
                homes[bases[position]]
                if (position := bisect_right(bases, address) - 1) >= 0
                else _Home(None, size == 2 << 20)
            )
            told = events.pool[ix] if events.pool is not None else None
            if address in alive:
                ended.append(replace(alive.pop(address), death_event_ix=ix))
            alive[address] = ReservedRange(
                address,
                size,
                events.stream[ix] or 0,
                pool_text(told or home.pool or DEFAULT_POOL),
                home.is_small,
                action == "segment_map",
                ix,
            )
        else:
            for run in [
                run for run in alive.values() if run.address < address + size and address < run.address + run.size_bytes
            ]:
                del alive[run.address]
                ended.append(replace(run, death_event_ix=ix))
                for part in _rest(run, address, address + size, ix):
                    alive[part.address] = part
    return sorted(
        [*ended, *alive.values()],
        key=lambda run: (-1 if run.birth_event_ix is None else run.birth_event_ix, run.address),
    )


def _rest(run: ReservedRange, begin: int, end: int, ix: int) -> Iterator[ReservedRange]:
    """What is left of a run when the addresses from `begin` to `end` are taken out."""
    run_end = run.address + run.size_bytes
    if run.address < begin:
        yield replace(run, size_bytes=begin - run.address, birth_event_ix=ix)
    if end < run_end:
        yield replace(run, address=end, size_bytes=run_end - end, birth_event_ix=ix)


def _homes(replay: Replay, finals: Sequence[FinalSegment]) -> dict[int, _Home]:
    """What the final segments and the allocations tell of segments, by their first address."""
    rows = replay.placements
    homes: dict[int, _Home] = {}
    for segment_address, pool, requested in zip(rows.segment_address, rows.pool, rows.requested, strict=True):
        if segment_address is not None and segment_address not in homes:
            homes[segment_address] = _Home(pool, (requested or 0) <= SMALL_SIZE)
    for final in finals:
        homes[final.address] = _Home(final.pool, final.is_small)
    return homes
