"""A recording replayed: the allocator decides again, and every decision is compared with the recorded one.

What the program and the driver decided is taken from the recording; the allocator's own choices are not.
Tables and files are strangers here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import gcd
from typing import NamedTuple, cast

from tracekit.allocator.blocks import (
    ALLOCATED,
    PENDING,
    Block,
    FreeList,
)
from tracekit.allocator.opening import (
    GROWTHS,
    RELEASES,
    SEGMENT_ACTIONS,
    records_requests,
)
from tracekit.allocator.recorded import (
    DivergedError,
    RecordedEvent,
)
from tracekit.allocator.recording import Events, FinalSegment
from tracekit.allocator.result import Peak, Replay
from tracekit.allocator.resync import Resync
from tracekit.allocator.settings import (
    DEFAULT_POOL,
    MIN_LARGE_REQUEST,
    SMALL_SIZE,
    PoolId,
    Settings,
    TieOrder,
)
from tracekit.units import MIB

TRIAL_EVENTS = 4_000_000
"""So many events are gone through in all to find settings that a snapshot does not record."""


def replay_recording(events: Events, segments: Sequence[FinalSegment], settings: Settings) -> Replay:
    """Replay the recording of one device under the settings it was made with.

    Some settings are in no snapshot: the version of torch, large_segment_size_mb, private pools made with no_split.
    Where decisions disagree in a way that one of them explains, the recording is replayed with it, and what explains
    it best is kept and noted.

    Args:
        events: the device's events.
        segments: its segments at the end.
        settings: how its allocator was set.

    Returns:
        Where every allocation lay, the peaks, and how far the allocator's choices agree with the recording.
    """
    replay, hints = _Replayer(events, segments, settings).replay()
    left = TRIAL_EVENTS
    while not replay.is_exact:
        candidates = hints.apply(replay.settings)
        left -= len(candidates) * len(events)
        if left < 0 or not candidates:
            break
        tried = [_Replayer(events, segments, candidate).replay() for candidate in candidates]
        best, best_hints = min(tried, key=lambda one: one[0].difference_count)
        if best.difference_count >= replay.difference_count:
            break
        replay, hints = best, best_hints
    replay.notes += _inferred(settings, replay.settings)
    return replay


def _inferred(given: Settings, used: Settings) -> list[str]:
    """Say which settings were inferred."""
    notes: list[str] = []
    if given.tie_order != used.tie_order:
        notes.append(f"inferred: among equal free blocks {used.tie_order.value} decides, so torch is not 2.11 or older")
    if given.large_segment_size != used.large_segment_size:
        notes.append(f"inferred: large_segment_size_mb:{used.large_segment_size // MIB}")
    notes += [f"inferred: private pool {pool} never splits" for pool in used.no_split_pools - given.no_split_pools]
    return notes


class Hints(NamedTuple):
    """Settings that a snapshot does not record, as the disagreements of a replay suggest them.

    Attributes:
        saw_tie: another block of the same size was taken.
        large_segment_size: middling requests made segments of this size.
        no_split_pools: private pools in which a fitting block was passed over.
    """

    saw_tie: bool
    large_segment_size: int | None
    no_split_pools: frozenset[PoolId]

    def apply(self, settings: Settings) -> list[Settings]:
        """List the settings with one suggestion followed at a time."""
        size = self.large_segment_size or settings.large_segment_size
        changed = [
            replace(settings, large_segment_size=size),
            *(replace(settings, tie_order=order) for order in TieOrder if self.saw_tie),
            replace(settings, no_split_pools=settings.no_split_pools | self.no_split_pools),
        ]
        return [one for one in changed if one != settings]


class _Replayer(Resync):
    """One replay under way.

    Attributes:
        run: the events since the last request that lead to the next: those of segments, and deferred frees.
        has_requests: False where the recording leaves out free_requested.
        large_segment_size: what segments for middling requests look like, where that is not as expected.
        has_pools: True in a recording with private pools.
    """

    def __init__(self, events: Events, segments: Sequence[FinalSegment], settings: Settings) -> None:
        super().__init__(events, segments, settings)
        self.run: list[RecordedEvent] = []
        self.has_requests = records_requests(events)
        self.large_segment_size: int | None = None
        pools = {segment.pool for segment in segments} | set(events.pool or ())
        self.has_pools = bool(pools - {None, DEFAULT_POOL})

    def replay(self) -> tuple[Replay, Hints]:
        """Replay from the opening to the last event."""
        self.enter_opening()
        self.follow()
        if self.run:
            self.settle_idle()
        result = self.result()
        return result, Hints(self.saw_tie, self.large_segment_size, frozenset(self.unsplit_pools))

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
                    block = best_fit(home, rounded) or allocator.expand_in_place(home, rounded)
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

    def other(self, ix: int, action: str | None, address: int | None, size: int | None, stream: int | None) -> None:
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
        block, ticket = self.freed(ix, address)
        if ticket is None:
            return
        if self.rows.free_requested_ix[ticket] is not None or ticket in self.pending_at_opening:
            self.note(
                ix,
                "lost_alloc",
                None,
                address,
                "a block is dropped that was dropped already: events are missing",
            )
        else:
            self.drop(ticket, block, ix)

    def freed(self, ix: int, address: int) -> tuple[Block | None, int | None]:
        """Find the block and the allocation that a free is about, and note where there is none."""
        block = self.allocator.live.get(address)
        ticket = self.unplaced.get(address) if block is None else block.ticket
        if ticket is None:
            reason = "a block is freed that no event allocated: events are missing"
            self.note(ix, "lost_alloc", None, address, reason)
        return block, ticket

    def odd_completion(self, ix: int, address: int | None, size: int | None, stream: int | None) -> None:
        """Take a free_completed that does not follow its request at once: deferred, or one is missing."""
        if address is None:
            self.ignored["free_completed"] += 1
            return
        block, ticket = self.freed(ix, address)
        if ticket is None:
            return
        if self.rows.free_requested_ix[ticket] is None and ticket not in self.pending_at_opening:
            if self.run:
                self.settle_idle()
                self.odd_completion(ix, address, size, stream)
                return
            if self.has_requests:
                reason = "a free completes that was not requested: events are missing"
                self.note(ix, "lost_free", None, address, reason)
            elif not self.notes:
                told = "the recording leaves out free_requested; blocks count as dropped when freed"
                self.notes.append(told)
            self.drop(ticket, block, ix)
            self.end(ticket, block, ix)
        elif block is None:
            self.end(ticket, None, ix)
        else:
            self.rows.death_ix[ticket] = ix
            self.run.append(RecordedEvent(ix, "free_completed", address, size or 0, stream or 0))

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
            allocator = self.allocator
            block = allocator.best_fit(home, rounded) or allocator.expand_in_place(home, rounded)
        if block is None or block.address != address:
            self.misplaced(ix, address, size, rounded, home, block, is_noted)
            return
        self.allocator.hand_out(block, size, rounded)
        block.ticket = len(self.rows)
        segment = block.segment
        self.append(address, size, block.size, stream, segment.home.pool.id, segment.address, ix, not is_noted)

    def pool_of(self, ix: int, address: int | None) -> PoolId:
        """Tell the pool of a request: the event says it, or the segment it made, or the one it lands in."""
        pools = self.events.pool
        if pools is not None and pools[ix] is not None:
            return pools[ix] or DEFAULT_POOL
        for event in self.run:
            if event.action in GROWTHS and (address is None or event.address <= address < event.address + event.size):
                return self.opening.growth_pools.get(event.ix, DEFAULT_POOL)
        if address is None or not self.has_pools:
            return DEFAULT_POOL
        segment = self.allocator.segment_at(address)
        return DEFAULT_POOL if segment is None else segment.home.pool.id

    # Requests that segment events precede

    def settle_request(self, ix: int, home: FreeList, rounded: int, is_granted: bool) -> Block | None:
        """Let the allocator serve a request that segment events precede, and compare what it does with them.

        A request is searched for in the cache before anything is released, and before pending frees are waited for;
        so what those free does not serve it.
        """
        allocator, driver = self.allocator, self.driver
        self.load_run()
        fitting = allocator.find(home, rounded)
        event = next((event for event in driver.queue if event.action != "free_completed"), None)
        if event is None or event.action not in RELEASES:
            allocator.synchronize()
        elif self.is_programs_release(ix, event, home, fitting is not None, is_granted):
            self.follow_empty_cache(event.ix)
            fitting = allocator.find(home, rounded)
            event = driver.next
        if event is None and is_granted:
            return allocator.best_fit(home, rounded) or allocator.expand_in_place(home, rounded)
        if fitting is not None:
            self.note_unexpected_growth(ix, home, fitting)
            self.force_rest()
            return None
        self.follow_switch(home)
        return self.follow_obtain(ix, home, rounded)

    def note_unexpected_growth(self, ix: int, home: FreeList, fitting: Block) -> None:
        """Note that the driver was asked though a cached block fits."""
        event = self.driver.next
        reason = "a cached block fits, yet the driver was asked: events or a setting are missing"
        self.note(ix, "growth", fitting.address, None if event is None else event.address, reason)
        if home.pool.id != DEFAULT_POOL:
            self.unsplit_pools.add(home.pool.id)

    def follow_switch(self, home: FreeList) -> None:
        """Follow a program that switches expandable segments on or off on the way."""
        allocator = self.allocator
        growth = next((event for event in self.driver.rest if event.action in GROWTHS), None)
        if growth is None or (growth.action == "segment_map") == allocator.is_expandable(home.pool):
            return
        is_on = growth.action == "segment_map"
        if home.pool.id == DEFAULT_POOL or is_on:
            allocator.switch_expandable(is_on)
            if growth.ix:
                told = "on" if is_on else "off"
                self.notes.append(f"expandable segments are switched {told} before event {growth.ix:,}")
        else:
            fixed = allocator.settings.fixed_pools | {home.pool.id}
            allocator.settings = replace(allocator.settings, fixed_pools=fixed)
            self.notes.append(f"private pool {home.pool.id} has an allocator of its own")

    def follow_obtain(self, ix: int, home: FreeList, rounded: int) -> Block | None:
        """Let the allocator get a block from the driver, step by step as recorded."""
        allocator, driver = self.allocator, self.driver
        oversize, _ = allocator.oversize_segments(home, rounded)
        self.open_private_pools({block.address for block in oversize})
        allocator.is_capturing = home.pool.id[0] != 0
        home.pool.searches += allocator.counts_searches
        if any(event.action in RELEASES for event in driver.queue[driver.position :]):
            self.retry_ix.append(ix)
        block = None
        try:
            block = allocator.obtain(home, rounded)
        except DivergedError as diverged:
            self.note_divergence(ix, diverged)
            self.guess_large_segment(home, rounded)
        else:
            if driver.next is not None:
                self.note(
                    ix,
                    "growth",
                    None,
                    driver.next.address,
                    "segments changed more than this request explains",
                )
                if block is not None:
                    block.segment.home.add(block)
                    block = None
        self.force_rest()
        return block

    def guess_large_segment(self, home: FreeList, rounded: int) -> None:
        """Take the size of a segment for a middling request, or the page that all mappings are a multiple of."""
        event = self.driver.next
        if event is None or home.pool.is_small:
            return
        if event.action == "segment_map":
            self.large_segment_size = gcd(self.large_segment_size or 0, event.size)
        elif event.action == "segment_alloc" and rounded < MIN_LARGE_REQUEST:
            self.large_segment_size = event.size

    def note_divergence(self, ix: int, diverged: DivergedError) -> None:
        """Note where the allocator would have released or asked for something else."""
        event = self.driver.next
        found = None if event is None else event.address
        if diverged.address is not None:
            reason = "another segment is released than expected: a setting is not recorded, or events are missing"
            self.note(ix if event is None else event.ix, "release", diverged.address, found, reason)
        else:
            reason = "another segment is made than the allocator would ask for: a setting that is not recorded"
            self.note(ix if event is None else event.ix, "growth", None, found, reason)

    def is_programs_release(
        self, ix: int, event: RecordedEvent, home: FreeList, is_fitting: bool, is_granted: bool
    ) -> bool:
        """Tell a release by torch.cuda.empty_cache() from one that a request caused by running short.

        A request that the cache could serve releases nothing, nor does one during a graph capture; one that runs
        short is followed by a new segment or by an out of memory, except that an expandable segment may have room
        already. What is left is told by the stack, where the events come with one.
        """
        if is_fitting or home.pool.id[0] != 0:
            return True
        if is_granted and not any(other.action in GROWTHS for other in self.driver.queue):
            return not self.allocator.is_expandable(home.pool)
        stack = self.events.stack
        return stack is not None and stack[event.ix] is not None and stack[event.ix] != stack[ix]

    def settle_idle(self) -> None:
        """Take segment events that no request follows: the program gave back its cache."""
        self.load_run()
        event = next((event for event in self.driver.queue if event.action != "free_completed"), None)
        if event is not None and event.action in RELEASES:
            self.follow_empty_cache(event.ix)
        self.allocator.synchronize()
        event = self.driver.next
        if event is not None:
            reason = "a segment is made for no request: events are missing"
            self.note(event.ix, "growth", None, event.address, reason)
            self.force_rest()

    def follow_empty_cache(self, ix: int) -> None:
        """Let the allocator empty its cache and compare; `ix` is the first release."""
        driver = self.driver
        self.empty_cache_ix.append(ix)
        self.open_private_pools()
        try:
            self.allocator.release_cached_blocks()
        except DivergedError as diverged:
            self.note_divergence(ix, diverged)
            self.force_rest(only_releases=True)
            return
        event = driver.next
        if event is not None and event.action in RELEASES:
            reason = "a segment is released in which blocks live: events are missing"
            self.note(event.ix, "release", None, event.address, reason)
            self.force_rest(only_releases=True)

    def open_private_pools(self, oversize: set[int] | None = None) -> None:
        """Let a private pool go whose segments the recording releases: its last user is gone.

        The oversize segments that a request of the pool itself may release do not show that.
        """
        for event in self.driver.rest:
            segment = self.allocator.segments.get(event.address) if event.action in RELEASES else None
            if segment is None or segment.home.pool.is_freeable or event.address in (oversize or ()):
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
