"""The state in which a recording begins, rebuilt by undoing its events from the final segments.

Nothing is simulated here: a block's size is stated only where the recording itself settles it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.settings import DEFAULT_POOL, MIN_BLOCK, SMALL_SEGMENT, SMALL_SIZE, PoolId, Settings

RELEASES = frozenset({"segment_free", "segment_unmap"})
GROWTHS = frozenset({"segment_alloc", "segment_map"})
SEGMENT_ACTIONS = RELEASES | GROWTHS
RANGE_REACH = 1 << 40
"""No address range of an expandable segment is longer than this."""


@dataclass(slots=True)
class OpeningSegment:
    """A segment, or a mapped run of an expandable one, that was there before the first event."""

    address: int
    size: int
    stream: int
    pool: PoolId
    is_small: bool
    is_expandable: bool


@dataclass(slots=True)
class OpeningAllocation:
    """A block that was allocated or pending before the first event.

    Attributes:
        address: where it begins.
        requested: what the program had asked for, where the recording says so.
        held: its size, where the recording settles it.
        room: a size that fits, to go on with where `held` is not known.
        stream: its stream.
        is_pending: True where it had been dropped already and waited for another stream.
        segment: the position of its segment among the opening ones; None where no segment holds it.
        last_ix: the event that freed it, None where it was still there at the end.
    """

    address: int
    requested: int | None
    held: int | None
    room: int
    stream: int
    is_pending: bool
    segment: int | None = None
    last_ix: int | None = None


@dataclass(slots=True)
class Opening:
    """The opening state.

    Attributes:
        segments: what was reserved, by address; of an expandable segment, each mapped run.
        allocations: what was allocated or pending, by address.
        range_bases: the addresses where runs of expandable segments were seen to begin, by pool, kind and
            stream.
        growth_pools: the private pool of each segment that an event adds, by that event; the final segments
            tell it.
    """

    segments: list[OpeningSegment] = field(default_factory=list[OpeningSegment])
    allocations: list[OpeningAllocation] = field(default_factory=list[OpeningAllocation])
    growth_pools: dict[int, PoolId] = field(default_factory=dict[int, PoolId])
    range_bases: dict[tuple[PoolId, bool, int], list[int]] = field(
        default_factory=dict[tuple[PoolId, bool, int], list[int]]
    )

    def range_base(self, run: OpeningSegment, page: int) -> int:
        """Find where the address range of a mapped run begins: the lowest address mapped on its page grid.

        A range is as long as the device's memory and an eighth, so what lies within a terabyte and on the
        same grid is taken for one.
        """
        mapped = self.range_bases.get((run.pool, run.is_small, run.stream), [])
        near = [base for base in mapped if 0 <= run.address - base < RANGE_REACH and (run.address - base) % page == 0]
        return min(near, default=run.address)


def rebuild_opening(events: Events, segments: Sequence[FinalSegment], settings: Settings) -> Opening:
    """Undo a recording from its final segments.

    Seen in small_late, small_ring and late_recording_ctx128: what is freed before it is allocated, and what
    lives at the end but was never allocated, was there at the start.
    """
    opening = Opening()
    opening.segments = _opening_segments(events, segments, opening)
    opening.allocations = sorted(_opening_allocations(events, segments, settings), key=lambda one: one.address)
    _seat(opening)
    doubtful = _settle_sizes(opening, settings)
    if doubtful:
        _settle_by_later_neighbours(doubtful, events)
    return opening


def _opening_segments(events: Events, finals: Sequence[FinalSegment], opening: Opening) -> list[OpeningSegment]:
    """Undo segment events from last to first; each growth undone takes its pool from what it had grown.

    Before torch 2.12 events do not say their pool (seen in small_cudagraph and mempool).
    """
    plain = {
        final.address: OpeningSegment(
            final.address,
            final.total_size,
            final.stream or 0,
            final.pool or DEFAULT_POOL,
            final.is_small,
            False,
        )
        for final in finals
        if not final.is_expandable
    }
    runs = _Runs(
        OpeningSegment(
            final.address,
            final.total_size,
            final.stream or 0,
            final.pool or DEFAULT_POOL,
            final.is_small,
            True,
        )
        for final in finals
        if final.is_expandable
    )
    actions, addresses, sizes = events.action, events.address, events.size
    for ix in [ix for ix, action in enumerate(actions) if action in SEGMENT_ACTIONS][::-1]:
        action, address, size = actions[ix], addresses[ix], sizes[ix]
        if address is None or size is None or size <= 0 or address < 0:
            continue
        pool = (events.pool[ix] if events.pool is not None else None) or DEFAULT_POOL
        stream = events.stream[ix] or 0
        if action == "segment_alloc":
            undone = plain.pop(address, None)
            if undone is not None:
                opening.growth_pools[ix] = undone.pool
        elif action == "segment_free":
            plain[address] = OpeningSegment(address, size, stream, pool, size <= SMALL_SEGMENT, False)
        elif action == "segment_map":
            undone = runs.remove(address, size)
            if undone is not None:
                opening.growth_pools[ix] = undone.pool
                key = (undone.pool, undone.is_small, undone.stream)
                opening.range_bases.setdefault(key, []).append(address)
        else:
            runs.add(OpeningSegment(address, size, stream, pool, size % (10 * SMALL_SEGMENT) != 0, True))
    for run in runs.runs.values():
        opening.range_bases.setdefault((run.pool, run.is_small, run.stream), []).append(run.address)
    return sorted([*plain.values(), *runs.runs.values()], key=lambda one: one.address)


def records_requests(events: Events) -> bool:
    """Tell whether a free_completed without its free_requested was pending, or every request was left out.

    A ring of one event can hold nothing else than the end of a pair that it cut (seen in small_state).
    """
    return "free_requested" in events.action or len(events) < 2


class _Runs:
    """Mapped runs of expandable segments: they join where they touch, and part where a piece is taken."""

    def __init__(self, runs: Iterable[OpeningSegment]) -> None:
        self.runs: dict[int, OpeningSegment] = {}
        self._tops: dict[int, OpeningSegment] = {}
        for run in runs:
            self.add(run)

    def add(self, run: OpeningSegment) -> None:
        """Put a run back, joined with the runs it touches."""
        for one in (self._tops.get(run.address), self.runs.get(run.address + run.size)):
            if one is None or one.stream != run.stream:
                continue
            self._drop(one)
            low = min(one.address, run.address)
            run = OpeningSegment(low, one.size + run.size, run.stream, one.pool, one.is_small, True)
        self._keep(run)

    def remove(self, address: int, size: int) -> OpeningSegment | None:
        """Take a range away from the run that holds it, and tell which one that was."""
        end = address + size
        for run in self.runs.values():
            top = run.address + run.size
            if run.address <= address and end <= top:
                self._drop(run)
                for low, high in ((run.address, address), (end, top)):
                    if high > low:
                        piece = OpeningSegment(low, high - low, run.stream, run.pool, run.is_small, True)
                        self._keep(piece)
                return run
        return None

    def _keep(self, run: OpeningSegment) -> None:
        before = self.runs.get(run.address)
        if before is not None:
            self._drop(before)
        self.runs[run.address] = run
        self._tops[run.address + run.size] = run

    def _drop(self, run: OpeningSegment) -> None:
        self.runs.pop(run.address, None)
        self._tops.pop(run.address + run.size, None)


def _opening_allocations(
    events: Events, finals: Sequence[FinalSegment], settings: Settings
) -> Iterable[OpeningAllocation]:
    """List what was freed before it was allocated, and what lives at the end and no event mentions."""
    mentioned: set[int] = set()
    is_request_recorded = records_requests(events)
    waiting: dict[int, OpeningAllocation] = {}
    rows = zip(events.action, events.address, events.size, strict=False)
    for ix, (action, address, size) in enumerate(rows):
        if address in mentioned:
            if waiting and action == "free_completed" and address in waiting:
                waiting.pop(address).last_ix = ix
            continue
        if address is None or size is None or size < 0 or action not in {"alloc", "free_requested", "free_completed"}:
            continue
        mentioned.add(address)
        if action == "alloc":
            continue
        is_pending = action == "free_completed" and is_request_recorded
        room = settings.round_request(size)
        one = OpeningAllocation(address, size, None, room, events.stream[ix] or 0, is_pending, last_ix=ix)
        if action == "free_requested":
            one.last_ix = None
            waiting[address] = one
        yield one
    for final in finals:
        for block in final.blocks:
            if block.state != "inactive" and block.address not in mentioned:
                yield _survivor(final, block)


def _survivor(final: FinalSegment, block: FinalBlock) -> OpeningAllocation:
    is_pending = block.state != "active_allocated"
    held = block.size if block.size > 0 else None
    room = held or MIN_BLOCK
    return OpeningAllocation(block.address, block.requested_size, held, room, final.stream or 0, is_pending)


def _seat(opening: Opening) -> None:
    """Find the segment of each allocation; what no segment holds, or what begins below the last, has none."""
    bases = [segment.address for segment in opening.segments]
    top = -1
    for one in opening.allocations:
        position = bisect_right(bases, one.address) - 1
        if position < 0 or one.address < top:
            continue
        segment = opening.segments[position]
        if one.address >= segment.address + segment.size:
            continue
        one.segment = position
        top = one.address + 1


def _settle_sizes(opening: Opening, settings: Settings) -> list[OpeningAllocation]:
    """State the size of each block that the room above it settles, and keep every block inside that room.

    Returns:
        The blocks of the large pool that may hold slack below the free block above them.
    """
    doubtful: list[OpeningAllocation] = []
    seated = [one for one in opening.allocations if one.segment is not None]
    ceilings = [*[one.address for one in seated[1:]], 0]
    for one, above in zip(seated, ceilings, strict=False):
        segment = opening.segments[one.segment or 0]
        end = segment.address + segment.size
        gap = (above if one.address < above < end else end) - one.address
        if one.held is None and one.room <= gap:
            one.held = _settled_size(one.room, gap, segment, settings)
            if one.held is None and not segment.is_small and one.room > SMALL_SIZE:
                doubtful.append(one)
        if one.held is not None and one.held > gap:
            one.held = None
        one.room = min(one.room if one.held is None else one.held, gap)
    return doubtful


def _settled_size(rounded: int, gap: int, segment: OpeningSegment, settings: Settings) -> int | None:
    """Tell the size of a block of which the rounded request and the room above are known, or None.

    In the small pool a rest of 512 bytes is split off, so nothing is held beyond the rounded request. In the
    large pool every free block is larger than 1 MiB, so a gap of up to 1 MiB is slack; a larger one may hide
    up to 1 MiB of slack below the free block. A request of max_split_size or more holds its whole segment.
    """
    if segment.pool in settings.no_split_pools or segment.is_small != (rounded <= SMALL_SIZE):
        return None
    if segment.is_small or settings.expandable_segments:
        return rounded
    if settings.max_split_size is not None and rounded >= settings.max_split_size:
        return segment.size if gap == segment.size else None
    return gap if gap - rounded <= SMALL_SIZE else None


def _settle_by_later_neighbours(doubtful: list[OpeningAllocation], events: Events) -> None:
    """Settle sizes by the first allocation that lands in the free block above.

    A request takes the low part of a free block, so the first address that is given out there is where the
    free block begins; the search stops 1 MiB above the rounded request, the most that slack can be.
    """
    lows = [one.address + one.room for one in doubtful]
    for ix, (action, address) in enumerate(zip(events.action, events.address, strict=False)):
        if action != "alloc" or address is None:
            continue
        position = bisect_right(lows, address) - 1
        if position < 0 or address - lows[position] > SMALL_SIZE:
            continue
        one = doubtful[position]
        if one.held is None and (one.last_ix is None or ix < one.last_ix):
            one.held = one.room = address - one.address
