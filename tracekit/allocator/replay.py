"""A recording replayed: the allocator decides again, and every decision is compared with the recorded one.

What the program and the driver decided is taken from the recording; the allocator's own choices are not.
Tables and files are strangers here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from tracekit.allocator.blocks import (
    ALLOCATED,
    FREE,
    PENDING,
    STATE_NAMES,
    UNMAPPED,
    Block,
    FreeList,
    Segment,
)
from tracekit.allocator.opening import (
    GROWTHS,
    RELEASES,
    SEGMENT_ACTIONS,
    OpeningAllocation,
    OpeningSegment,
    rebuild_opening,
    records_requests,
)
from tracekit.allocator.recorded import (
    DivergedError,
    RecordedAllocator,
    RecordedDriver,
    RecordedEvent,
    is_usable,
)
from tracekit.allocator.recording import Events, FinalSegment
from tracekit.allocator.settings import DEFAULT_POOL, SMALL_SEGMENT, SMALL_SIZE, PoolId, Settings

DETAIL_LIMIT = 100
"""So many mismatches are kept with their detail; all are counted."""


class Mismatch(NamedTuple):
    """A decision of the allocator that the recording does not show, or an event that cannot have happened.

    Attributes:
        event_ix: the event, None where the opening or the end is meant.
        kind: what differs (`opening`, `address`, `growth`, `release`, `out_of_memory`), or what is missing
            (`lost_alloc`, `lost_free`).
        expected: the address that the allocator chooses, where it chooses one.
        found: the address that the recording shows.
        reason: the likely reason, in a sentence.
    """

    event_ix: int | None
    kind: str
    expected: int | None
    found: int | None
    reason: str


class Peak(NamedTuple):
    """The largest value of a statistic and the first event after which it held; None is the opening."""

    value: int
    event_ix: int | None


@dataclass(slots=True)
class Placements:
    """One row an allocation, as parallel lists: the opening ones by address, then the others by birth.

    Attributes:
        address: where the block begins.
        requested: what the program asked for.
        held: the block's size; None where the recording does not settle it.
        stream: the stream.
        pool: the pool's id; (0, 0) is the device's own.
        segment_address: the segment the block lay in, None where none is known.
        birth_ix: the event that allocated it, None where it is older than the recording.
        free_requested_ix: the event that dropped it, None where it was not dropped, or was dropped before.
        death_ix: the event that ended it, None where it lives at the end.
        is_exact: whether the allocator chose the recorded address; None for opening allocations.
    """

    address: list[int] = field(default_factory=list[int])
    requested: list[int | None] = field(default_factory=list["int | None"])
    held: list[int | None] = field(default_factory=list["int | None"])
    stream: list[int] = field(default_factory=list[int])
    pool: list[PoolId | None] = field(default_factory=list["PoolId | None"])
    segment_address: list[int | None] = field(default_factory=list["int | None"])
    birth_ix: list[int | None] = field(default_factory=list["int | None"])
    free_requested_ix: list[int | None] = field(default_factory=list["int | None"])
    death_ix: list[int | None] = field(default_factory=list["int | None"])
    is_exact: list[bool | None] = field(default_factory=list["bool | None"])

    def __len__(self) -> int:
        return len(self.address)


@dataclass(slots=True)
class Replay:
    """What a replay found.

    Attributes:
        placements: one row an allocation.
        opening_segments: the segments that were there before the first event.
        opening_count: how many of the placements are older than the recording.
        pending_at_opening: the placements among them that had been dropped already.
        mismatches: the first of them, in order.
        mismatch_count: all of them.
        peak_allocated: bytes in allocated blocks, at most.
        peak_active: bytes in allocated and pending blocks, at most.
        peak_requested: bytes asked for in allocated and pending blocks, at most.
        peak_reserved: bytes in segments, at most.
        final_allocated: bytes in allocated blocks after the last event.
        final_active: bytes in allocated and pending blocks after the last event.
        final_reserved: bytes in segments after the last event.
        final_difference_count: how many blocks and segments at the end are not those of the file.
        final_differences: the first of them, in words.
        empty_cache_ix: the first event of each release that the program asked for, not a request that ran
            short.
        retry_ix: the events of the requests that released the cache because the driver refused.
        unknown_held_count: placements whose size is not known; sums count what they requested.
        notes: what was taken for granted on the way, in sentences.
        ignored: how many events of other kinds were passed over, by action.
        event_count: all events.
    """

    placements: Placements
    opening_segments: list[OpeningSegment]
    opening_count: int
    pending_at_opening: frozenset[int]
    mismatches: list[Mismatch]
    mismatch_count: int
    peak_allocated: Peak
    peak_active: Peak
    peak_requested: Peak
    peak_reserved: Peak
    final_allocated: int
    final_active: int
    final_reserved: int
    final_difference_count: int
    final_differences: list[str]
    empty_cache_ix: list[int]
    retry_ix: list[int]
    unknown_held_count: int
    notes: list[str]
    ignored: dict[str, int]
    event_count: int

    @property
    def opening_reserved(self) -> int:
        """Bytes reserved before the first event."""
        return sum(segment.size for segment in self.opening_segments)

    @property
    def first_mismatch(self) -> Mismatch | None:
        """The first disagreement, if there is one."""
        return self.mismatches[0] if self.mismatches else None

    @property
    def inexact_count(self) -> int:
        """How many recorded allocations got another address than the allocator would have chosen."""
        return self.placements.is_exact.count(False)

    @property
    def is_exact(self) -> bool:
        """True where every decision and every block at the end is the recorded one."""
        return not self.mismatch_count and not self.final_difference_count

    @property
    def verdict(self) -> str:
        """Say in a sentence how far the replay agrees with the recording."""
        count = len(self.placements) - self.opening_count
        if self.is_exact:
            told = f"exact: all {count:,} addresses, every segment event and every block at the end agree"
        elif self.first_mismatch is None:
            told = (
                f"all {count:,} addresses agree, but {self.final_difference_count:,} blocks at the end do not"
            )
            told += f": {self.final_differences[0]}"
        else:
            first = self.first_mismatch
            where = "the opening state" if first.event_ix is None else f"event {first.event_ix:,}"
            told = f"{self.mismatch_count:,} disagreements, the first at {where}: {first.reason}; "
            told += f"{self.inexact_count:,} of {count:,} addresses differ, "
            told += f"and {self.final_difference_count:,} blocks at the end"
        if self.unknown_held_count:
            told += f"; {self.unknown_held_count:,} block sizes are not known and count as requested"
        return told


def replay_recording(events: Events, segments: Sequence[FinalSegment], settings: Settings) -> Replay:
    """Replay the recording of one device under the settings it was made with.

    Args:
        events: the device's events.
        segments: its segments at the end.
        settings: how its allocator was set.

    Returns:
        Where every allocation lay, the peaks, and how far the allocator's choices agree with the recording.
    """
    return _Replayer(events, segments, settings).replay()


class _Replayer:
    """One replay under way."""

    def __init__(self, events: Events, segments: Sequence[FinalSegment], settings: Settings) -> None:
        self.events = events
        self.finals = segments
        self.settings = settings
        self.driver = RecordedDriver()
        self.allocator = RecordedAllocator(settings, self.driver)
        self.opening = rebuild_opening(events, segments, settings)
        self.rows = Placements()
        self.mismatches: list[Mismatch] = []
        self.mismatch_count = 0
        self.notes: list[str] = []
        self.ignored: Counter[str] = Counter()
        self.run: list[RecordedEvent] = []
        self.unplaced: dict[int, int] = {}
        self.pending_at_opening: set[int] = set()
        self.empty_cache_ix: list[int] = []
        self.retry_ix: list[int] = []
        self.has_requests = records_requests(events)
        self.walk_limit = 50 * len(events) + 1_000_000
        self.is_lost = False
        pools = {segment.pool or DEFAULT_POOL for segment in segments}
        self.has_pools = events.pool is not None or bool(pools - {DEFAULT_POOL})
        self.peak_allocated = self.peak_active = self.peak_requested = self.peak_reserved = Peak(0, None)

    def replay(self) -> Replay:
        """Replay from the opening to the last event."""
        self.enter_opening()
        self.follow()
        if self.run:
            self.settle_idle()
        return self.result()

    def note(self, ix: int | None, kind: str, expected: int | None, found: int | None, reason: str) -> None:
        """Count a mismatch and keep it while there is room."""
        self.mismatch_count += 1
        if len(self.mismatches) < DETAIL_LIMIT:
            self.mismatches.append(Mismatch(ix, kind, expected, found, reason))

    # The opening

    def enter_opening(self) -> None:
        """Set up the segments and blocks that were there before the first event."""
        allocator = self.allocator
        seats: list[Segment | None] = []
        tails: dict[int, Block] = {}
        for one in self.opening.segments:
            home = allocator.home(one.pool, one.is_small, one.stream)
            if (
                one.size <= 0
                or not 0 <= one.address < 1 << 63
                or allocator.overlapping(one.address, one.size)
            ):
                self.note(
                    None, "opening", None, one.address, "a segment of the opening state overlaps another one"
                )
                seats.append(None)
            else:
                seats.append(allocator.force_segment(one.address, one.size, home))
        for one in self.opening.allocations:
            segment = None if one.segment is None else seats[one.segment]
            if segment is None:
                self.seat_nowhere(one)
            else:
                tails[segment.address] = self.seat(one, segment, tails.get(segment.address, segment.first))
        self.peak_allocated = Peak(allocator.allocated, None)
        self.peak_active = Peak(allocator.active, None)
        self.peak_requested = Peak(allocator.requested, None)
        self.peak_reserved = Peak(allocator.reserved, None)

    def seat(self, one: OpeningAllocation, segment: Segment, tail: Block) -> Block:
        """Put an opening allocation into the last block of its segment so far; return the new last one."""
        allocator = self.allocator
        block = allocator.carve(tail, one.address)
        if one.room < block.size:
            allocator.split(block, one.room)
        self.occupy(block, one.requested or 0, one.held)
        block.ticket = len(self.rows)
        if one.is_pending:
            self.pending_at_opening.add(block.ticket)
            allocator.request_free(block)
        pool = segment.home.pool.id
        self.append(one.address, one.requested, one.held, one.stream, pool, segment.address, None, None)
        return block.next or block

    def seat_nowhere(self, one: OpeningAllocation) -> None:
        """Enter an opening allocation that no segment holds."""
        self.note(None, "opening", None, one.address, "no segment holds a block that was there at the start")
        ticket = len(self.rows)
        self.append(one.address, one.requested, one.held, one.stream, None, None, None, None)
        self.count_unplaced(one.address, ticket)
        if one.is_pending:
            self.pending_at_opening.add(ticket)
            self.allocator.allocated -= one.requested or 0

    def occupy(self, block: Block, requested: int, held: int | None) -> None:
        """Mark a block as allocated, counted by its size where that is known and by the request where not."""
        allocator = self.allocator
        block.state = ALLOCATED
        block.requested = requested
        block.counted = counted = requested if held is None else held
        allocator.live[block.address] = block
        allocator.allocated += counted
        allocator.active += counted
        allocator.requested += requested

    def count_unplaced(self, address: int, ticket: int) -> None:
        """Count an allocation that lies in no known segment by what it requested."""
        requested = self.rows.requested[ticket] or 0
        self.unplaced[address] = ticket
        self.allocator.allocated += requested
        self.allocator.active += requested
        self.allocator.requested += requested

    def append(
        self,
        address: int,
        requested: int | None,
        held: int | None,
        stream: int,
        pool: PoolId | None,
        segment_address: int | None,
        birth_ix: int | None,
        is_exact: bool | None,
    ) -> None:
        """Add a placement."""
        rows = self.rows
        rows.address.append(address)
        rows.requested.append(requested)
        rows.held.append(held)
        rows.stream.append(stream)
        rows.pool.append(pool)
        rows.segment_address.append(segment_address)
        rows.birth_ix.append(birth_ix)
        rows.is_exact.append(is_exact)
        rows.free_requested_ix.append(None)
        rows.death_ix.append(None)

    # The events

    def follow(self) -> None:  # noqa: C901  (one loop over a million events: calls are what it costs)
        """Go through the events; what goes as always stays in this loop, the rest has methods of its own."""
        events, rows, allocator = self.events, self.rows, self.allocator
        lookup = cast("Callable[[int | None], Block | None]", allocator.live.get)
        best_fit, hand_out, append = allocator.best_fit, allocator.hand_out, self.append
        request_free, complete_free = allocator.request_free, allocator.complete_free
        requested_at, died_at, births = rows.free_requested_ix, rows.death_ix, rows.birth_ix
        round_request = self.settings.round_request
        is_plain, is_slow = self.settings.rounds_plainly, self.has_pools
        run = self.run
        current_stream: int | None = -1
        small = large = allocator.home(DEFAULT_POOL, True, 0)
        dropped: int | None = None
        peak_allocated, allocated_ix = self.peak_allocated
        peak_active, active_ix = self.peak_active
        peak_requested, requested_ix = self.peak_requested
        rows_of_events = zip(events.action, events.address, events.size, events.stream, strict=False)
        for ix, (action, address, size, stream) in enumerate(rows_of_events):
            if action == "free_requested":
                block = lookup(address)
                if block is None or block.state != ALLOCATED or run:
                    self.odd_request(ix, address)
                else:
                    request_free(block)
                    requested_at[block.ticket] = ix
                dropped = address
            elif action == "free_completed":
                block = lookup(address)
                if block is None or block.state != PENDING or address != dropped:
                    self.odd_completion(ix, address, size, stream)
                else:
                    complete_free(block)
                    died_at[block.ticket] = ix
            elif action == "alloc":
                dropped = None
                if address is None or size is None or size <= 0 or run or is_slow:
                    self.slow_alloc(ix, address, size, stream or 0)
                else:
                    rounded = (size + 511) & -512 if is_plain else round_request(size)
                    if stream != current_stream:
                        current_stream = stream
                        small = allocator.home(DEFAULT_POOL, True, stream or 0)
                        large = allocator.home(DEFAULT_POOL, False, stream or 0)
                    home = small if rounded <= SMALL_SIZE else large
                    block = best_fit(home, rounded)
                    if block is None or block.address != address:
                        self.misplaced(ix, address, size, rounded, home, block)
                        is_slow = self.has_pools or self.is_lost
                    else:
                        hand_out(block, size, rounded)
                        block.ticket = len(births)
                        append(
                            address,
                            size,
                            block.size,
                            stream or 0,
                            DEFAULT_POOL,
                            block.segment.address,
                            ix,
                            True,
                        )
                if allocator.allocated > peak_allocated:
                    peak_allocated, allocated_ix = allocator.allocated, ix
                if allocator.active > peak_active:
                    peak_active, active_ix = allocator.active, ix
                if allocator.requested > peak_requested:
                    peak_requested, requested_ix = allocator.requested, ix
            else:
                dropped = None
                self.other(ix, action, address, size, stream)
        self.peak_allocated = Peak(peak_allocated, allocated_ix)
        self.peak_active = Peak(peak_active, active_ix)
        self.peak_requested = Peak(peak_requested, requested_ix)

    def other(
        self, ix: int, action: str | None, address: int | None, size: int | None, stream: int | None
    ) -> None:
        """Keep a segment's event for the request it belongs to; take an out of memory; pass over the rest."""
        if action is not None and action in SEGMENT_ACTIONS and address is not None and size is not None:
            self.run.append(RecordedEvent(ix, action, address, size, stream or 0))
        elif action == "oom" and size is not None:
            self.out_of_memory(ix, size, stream or 0)
        else:
            self.ignored[str(action)] += 1

    # Frees that are not as usual

    def odd_request(self, ix: int, address: int | None) -> None:
        """Take a free_requested that follows segment events, or whose block is not known to be allocated."""
        if address is None:
            self.ignored["free_requested"] += 1
            return
        if self.run:
            self.settle_idle()
        block = self.allocator.live.get(address)
        ticket = self.unplaced.get(address) if block is None else block.ticket
        if ticket is None:
            self.note(
                ix,
                "lost_alloc",
                None,
                address,
                "a block is freed that no event allocated: events are missing",
            )
        elif self.rows.free_requested_ix[ticket] is not None or ticket in self.pending_at_opening:
            self.note(
                ix,
                "lost_alloc",
                None,
                address,
                "a block is dropped that was dropped already: events are missing",
            )
        else:
            self.drop(ticket, block, ix)

    def drop(self, ticket: int, block: Block | None, ix: int) -> None:
        """Note that the program dropped a block, wherever it lies."""
        self.rows.free_requested_ix[ticket] = ix
        if block is None:
            self.allocator.allocated -= self.rows.requested[ticket] or 0
        else:
            self.allocator.request_free(block)

    def odd_completion(self, ix: int, address: int | None, size: int | None, stream: int | None) -> None:
        """Take a free_completed that does not follow its request at once: deferred, or one is missing."""
        if address is None:
            self.ignored["free_completed"] += 1
            return
        block = self.allocator.live.get(address)
        ticket = self.unplaced.get(address) if block is None else block.ticket
        if ticket is None:
            self.note(
                ix,
                "lost_alloc",
                None,
                address,
                "a block is freed that no event allocated: events are missing",
            )
            return
        if self.rows.free_requested_ix[ticket] is None and ticket not in self.pending_at_opening:
            if self.has_requests:
                self.note(
                    ix,
                    "lost_free",
                    None,
                    address,
                    "a free completes that was not requested: events are missing",
                )
            elif not self.notes:
                self.notes.append(
                    "the recording leaves out free_requested; blocks count as dropped when freed"
                )
            if self.run:
                self.settle_idle()
            self.drop(ticket, block, ix)
            self.end(ticket, block, ix)
        elif block is None:
            self.end(ticket, None, ix)
        else:
            self.rows.death_ix[ticket] = ix
            self.run.append(RecordedEvent(ix, "free_completed", address, size or 0, stream or 0))

    def end(self, ticket: int, block: Block | None, ix: int) -> None:
        """End an allocation, wherever it lies."""
        self.rows.death_ix[ticket] = ix
        if block is None:
            requested = self.rows.requested[ticket] or 0
            self.allocator.active -= requested
            self.allocator.requested -= requested
            del self.unplaced[self.rows.address[ticket]]
        else:
            self.allocator.complete_free(block)

    def lose(self, ticket: int, block: Block | None, ix: int) -> None:
        """End an allocation that must be gone, because something else lies there now."""
        if self.rows.free_requested_ix[ticket] is None and ticket not in self.pending_at_opening:
            self.drop(ticket, block, ix)
        self.end(ticket, block, ix)

    # Requests that are not as usual

    def slow_alloc(self, ix: int, address: int | None, size: int | None, stream: int) -> None:
        """Take an allocation that follows segment events, or in a recording with private pools."""
        if address is None or size is None or size < 0:
            self.ignored["alloc"] += 1
            return
        rounded = self.settings.round_request(size)
        home = self.allocator.home(self.pool_of(ix, address), rounded <= SMALL_SIZE, stream)
        is_noted = False
        if self.run:
            count = self.mismatch_count
            block = self.settle_request(ix, home, rounded, is_granted=True)
            is_noted = self.mismatch_count > count
        else:
            block = self.allocator.best_fit(home, rounded)
        if block is None or block.address != address:
            self.misplaced(ix, address, size, rounded, home, block, is_noted)
            return
        self.allocator.hand_out(block, size, rounded)
        block.ticket = len(self.rows)
        segment = block.segment
        self.append(
            address, size, block.size, stream, segment.home.pool.id, segment.address, ix, not is_noted
        )

    def pool_of(self, ix: int, address: int | None) -> PoolId:
        """Tell the pool of a request: the event says it, or the segment it made, or the one it lands in."""
        pools = self.events.pool
        if pools is not None and pools[ix] is not None:
            return pools[ix] or DEFAULT_POOL
        for event in self.run:
            if event.action in GROWTHS and (
                address is None or event.address <= address < event.address + event.size
            ):
                return self.opening.growth_pools.get(event.ix, DEFAULT_POOL)
        if address is None or not self.has_pools:
            return DEFAULT_POOL
        segment = self.allocator.segment_at(address)
        return DEFAULT_POOL if segment is None else segment.home.pool.id

    def settle_request(self, ix: int, home: FreeList, rounded: int, is_granted: bool) -> Block | None:
        """Let the allocator serve a request that segment events precede, and compare what it does with them.

        A request is searched for in the cache before pending frees are waited for and before anything is
        released; a release before a request that the cache could serve was the program's own.
        """
        allocator, driver = self.allocator, self.driver
        self.load_run()
        fits_before = allocator.find(home, rounded) is not None
        allocator.synchronize()
        event = driver.next
        if (
            event is not None
            and event.action in RELEASES
            and self.is_programs_release(ix, home, rounded, is_granted)
        ):
            self.follow_empty_cache()
            fits_before = allocator.find(home, rounded) is not None
            event = driver.next
        if event is None and is_granted:
            return allocator.best_fit(home, rounded)
        if fits_before:
            found = allocator.find(home, rounded)
            expected = None if found is None else found.address
            reason = "a cached block fits, yet the driver was asked: events or a setting are missing"
            self.note(ix, "growth", expected, None if event is None else event.address, reason)
            self.force_rest()
            return None
        return self.follow_obtain(ix, home, rounded)

    def follow_obtain(self, ix: int, home: FreeList, rounded: int) -> Block | None:
        """Let the allocator get a block from the driver, step by step as recorded."""
        allocator, driver = self.allocator, self.driver
        self.open_private_pools()
        if any(event.action in RELEASES for event in driver.queue[driver.position :]):
            self.retry_ix.append(ix)
        block = None
        try:
            block = allocator.obtain(home, rounded)
        except DivergedError as diverged:
            self.note_divergence(ix, diverged)
        else:
            if driver.next is not None:
                self.note(
                    ix,
                    "growth",
                    None,
                    driver.next.address,
                    "segments changed more than this request explains",
                )
        self.force_rest()
        return block

    def note_divergence(self, ix: int, diverged: DivergedError) -> None:
        """Note where the allocator would have released or asked for something else."""
        event = self.driver.next
        found = None if event is None else event.address
        if diverged.address is not None:
            reason = (
                "another segment is released than expected: a setting is not recorded, or events are missing"
            )
            self.note(ix if event is None else event.ix, "release", diverged.address, found, reason)
        else:
            reason = (
                "another segment is made than the allocator would ask for: a setting that is not recorded"
            )
            self.note(ix if event is None else event.ix, "growth", None, found, reason)

    def is_programs_release(self, ix: int, home: FreeList, rounded: int, is_granted: bool) -> bool:
        """Tell a release by torch.cuda.empty_cache() from one that a request caused by running short.

        A request that the cache could serve releases nothing, and one that runs short is followed by a new
        segment or by an out of memory. What is left is told by the stack, where the events come with one.
        """
        allocator, driver = self.allocator, self.driver
        rest = driver.queue[driver.position :]
        if allocator.find(home, rounded) is not None:
            return not any(event.action == "free_completed" for event in driver.queue[: driver.position])
        if is_granted and not any(event.action in GROWTHS for event in rest):
            return True
        stack = self.events.stack
        return stack is not None and stack[rest[0].ix] is not None and stack[rest[0].ix] != stack[ix]

    def settle_idle(self) -> None:
        """Take segment events that no request follows: the program gave back its cache."""
        self.load_run()
        self.allocator.synchronize()
        event = self.driver.next
        if event is not None and event.action in RELEASES:
            self.follow_empty_cache()
            event = self.driver.next
        if event is not None:
            self.note(
                event.ix,
                "growth",
                None,
                event.address,
                "a segment is made for no request: events are missing",
            )
            self.force_rest()

    def follow_empty_cache(self) -> None:
        """Let the allocator empty its cache and compare."""
        driver = self.driver
        event = driver.queue[driver.position]
        self.empty_cache_ix.append(event.ix)
        self.open_private_pools()
        try:
            self.allocator.release_cached_blocks()
        except DivergedError as diverged:
            self.note_divergence(event.ix, diverged)
            self.force_rest(only_releases=True)
            return
        event = driver.next
        if event is not None and event.action in RELEASES:
            reason = "a segment is released in which blocks live: events are missing"
            self.note(event.ix, "release", None, event.address, reason)
            self.force_rest(only_releases=True)

    def open_private_pools(self) -> None:
        """Let a private pool go whose segments the recording releases: its last user is gone."""
        for event in self.driver.queue[self.driver.position :]:
            segment = self.allocator.segments.get(event.address) if event.action in RELEASES else None
            if segment is None or segment.home.pool.is_freeable:
                continue
            for is_small in (False, True):
                pool = self.allocator.pools.get((segment.home.pool.id, is_small))
                if pool is not None:
                    pool.is_freeable = True

    def load_run(self) -> None:
        """Hand the events since the last request to the driver."""
        self.driver.load(self.run[:])
        self.run.clear()

    def out_of_memory(self, ix: int, rounded: int, stream: int) -> None:
        """Take an out of memory: the allocator must find nothing either."""
        pool = self.pool_of(ix, None)
        home = self.allocator.home(pool, rounded <= SMALL_SIZE, stream)
        block = self.settle_request(ix, home, rounded, is_granted=False)
        if block is not None:
            home.add(block)
            self.note(
                ix,
                "out_of_memory",
                block.address,
                None,
                "the allocator has a block for a request that failed",
            )

    # Following the recording where it differs

    def force_rest(self, only_releases: bool = False) -> None:
        """Make the segments what the recording says they are."""
        allocator, driver = self.allocator, self.driver
        while (event := driver.next) is not None:
            if only_releases and event.action in GROWTHS:
                return
            driver.position += 1
            if event.action == "free_completed":
                driver.position -= 1
                allocator.synchronize()
            elif event.action == "segment_alloc" and is_usable(event):
                for segment in allocator.overlapping(event.address, event.size):
                    self.clear(segment, event.ix)
                pool = self.opening.growth_pools.get(event.ix, DEFAULT_POOL)
                home = allocator.home(pool, event.size <= SMALL_SEGMENT, event.stream)
                allocator.force_segment(event.address, event.size, home)
            elif event.action == "segment_free":
                segment = allocator.segments.get(event.address)
                if segment is not None:
                    self.clear(segment, event.ix)

    def clear(self, segment: Segment, ix: int) -> None:
        """Strike a segment out with whatever lay in it."""
        for block in [block for block in segment if block.state in (ALLOCATED, PENDING)]:
            self.note(
                ix,
                "lost_free",
                None,
                block.address,
                "a segment is gone in which a block lived: events are missing",
            )
            self.lose(block.ticket, block, ix)
        self.allocator.drop_segment(segment)

    def misplaced(
        self,
        ix: int,
        address: int,
        size: int,
        rounded: int,
        home: FreeList,
        chosen: Block | None,
        is_noted: bool = False,
    ) -> None:
        """Put an allocation where the recording says, though the allocator would have put it elsewhere."""
        if chosen is not None:
            home.add(chosen)
        if not is_noted:
            self.note(
                ix,
                "address",
                None if chosen is None else chosen.address,
                address,
                self.reason(address, chosen),
            )
        segment = None if self.is_lost else self.allocator.segment_at(address)
        ticket = len(self.rows)
        before = self.unplaced.get(address)
        if before is not None:
            self.lose(before, None, ix)
        if segment is None:
            self.append(address, size, None, home.stream, None, None, ix, False)
            self.count_unplaced(address, ticket)
            return
        block, is_known = self.place(ix, segment, address, size, rounded)
        block.ticket = ticket
        held = block.size if is_known else None
        pool = segment.home.pool.id
        self.append(address, size, held, home.stream, pool, segment.address, ix, False)
        if self.allocator.walked > self.walk_limit:
            self.get_lost()

    def reason(self, address: int, chosen: Block | None) -> str:
        """Say why, likely, an address differs."""
        if address in self.allocator.live or address in self.unplaced:
            return "a block is allocated where one lives: the event of its free is missing"
        if self.allocator.segment_at(address) is None:
            return "the block lies in no known segment: segment events are missing"
        if chosen is None:
            return "no cached block fits, yet no segment is made: events or a setting are missing"
        return "another block fits better: events or a setting are missing"

    def place(self, ix: int, segment: Segment, address: int, size: int, rounded: int) -> tuple[Block, bool]:
        """Make room at an address and occupy it; tell also whether the block's size is certain."""
        allocator = self.allocator
        top = min(address + rounded, segment.address + segment.size)
        block = allocator.block_at(segment, address)
        is_certain = block.state == FREE and block.address == address
        while block.state != FREE or block.address + block.size < top:
            is_certain = False
            victim = block if block.state != FREE else block.next
            if victim is None or victim.state == UNMAPPED:
                break
            self.lose(victim.ticket, victim, ix)
            block = allocator.block_at(segment, address)
        block = allocator.carve(block, address)
        rest = block.size - rounded
        if rest > 0 and allocator.should_split(segment.home.pool, rest, rounded):
            allocator.split(block, rounded)
        is_known = is_certain or (segment.home.pool.is_small and rounded <= SMALL_SIZE)
        self.occupy(block, size, block.size if is_known else None)
        return block, is_known

    def get_lost(self) -> None:
        """Give up following the blocks: the recording contradicts itself too often to be worth the time."""
        self.is_lost = True
        self.notes.append("blocks were followed only so far: the recording contradicts itself too often")

    # The end

    def result(self) -> Replay:
        """Put together what was found."""
        differences = list(self.final_differences())
        rows = self.rows
        return Replay(
            placements=rows,
            opening_segments=self.opening.segments,
            opening_count=len(self.opening.allocations),
            pending_at_opening=frozenset(self.pending_at_opening),
            mismatches=self.mismatches,
            mismatch_count=self.mismatch_count,
            peak_allocated=self.peak_allocated,
            peak_active=self.peak_active,
            peak_requested=self.peak_requested,
            peak_reserved=self.reserved_peak(),
            final_allocated=self.allocator.allocated,
            final_active=self.allocator.active,
            final_reserved=self.allocator.reserved,
            final_difference_count=len(differences),
            final_differences=differences[:DETAIL_LIMIT],
            empty_cache_ix=self.empty_cache_ix,
            retry_ix=self.retry_ix,
            unknown_held_count=rows.held.count(None),
            notes=self.notes,
            ignored=dict(self.ignored),
            event_count=len(self.events),
        )

    def reserved_peak(self) -> Peak:
        """Find the peak of the reserved bytes from the recorded segment events alone."""
        value = self.peak_reserved.value
        peak = self.peak_reserved
        events = self.events
        for ix, action in enumerate(events.action):
            if action in SEGMENT_ACTIONS:
                size = events.size[ix] or 0
                value += size if action in GROWTHS else -size
                if value > peak.value:
                    peak = Peak(value, ix)
        return peak

    def final_differences(self) -> Iterator[str]:
        """Compare the blocks and segments at the end with those of the file, and take sizes from the file."""
        found: dict[int, tuple[int, str]] = {}
        for segment in self.allocator.segments.values():
            for block in segment:
                if block.state != UNMAPPED:
                    found[block.address] = (block.size, STATE_NAMES[block.state])
        for final in self.finals:
            for theirs in final.blocks:
                ours = found.pop(theirs.address, None)
                self.learn(theirs.address, theirs.size, theirs.state)
                if ours is None:
                    yield f"the file has a block at {theirs.address:#x}, {theirs.size} bytes {theirs.state}"
                elif ours != (theirs.size, theirs.state):
                    told = f"{theirs.size} bytes {theirs.state} in the file, {ours[0]} bytes {ours[1]} here"
                    yield f"the block at {theirs.address:#x} is {told}"
        for address, (size, state) in found.items():
            yield f"the file has no block at {address:#x}, the replay {size} bytes {state}"

    def learn(self, address: int, size: int, state: str) -> None:
        """Take the size of a block that lives at the end from the file."""
        block = self.allocator.live.get(address)
        if block is not None and state != "inactive":
            self.rows.held[block.ticket] = size
