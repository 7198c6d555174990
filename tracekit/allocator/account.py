"""The books of a replay: a row for every allocation, the sums, and what was found not to agree.

Which event leads to which entry is decided in `tracekit.allocator.replay`; nothing here chooses a block.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracekit.allocator.blocks import STATE_NAMES, UNMAPPED, Block
from tracekit.allocator.forced import enter_opening
from tracekit.allocator.opening import GROWTHS, SEGMENT_ACTIONS, OpeningAllocation, rebuild_opening
from tracekit.allocator.recorded import RecordedAllocator, RecordedDriver
from tracekit.allocator.recording import Events, FinalSegment
from tracekit.allocator.result import DETAIL_LIMIT, Mismatch, Peak, Placements, Replay
from tracekit.allocator.settings import DEFAULT_POOL, PoolId, Settings


class Account:
    """The books of one replay.

    Attributes:
        events: the recording's events.
        finals: its segments at the end.
        settings: the settings that the replay goes by.
        driver: the driver as recorded.
        allocator: the allocator that decides again.
        opening: what was there before the first event.
        rows: the placements so far.
        unplaced: the placements, by address, that lie in no known segment and live.
        pending_at_opening: the placements that had been dropped before the first event.
        mismatches: the first disagreements.
        mismatch_count: all of them.
        notes: what was taken for granted.
        ignored: events passed over, by action.
        empty_cache_ix: the first event of each release that the program asked for.
        retry_ix: the requests that released the cache.
        unsplit_pools: private pools in which blocks were larger than expected.
        has_learned: True where the file told a size that was not known on the way.
    """

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
        self.unplaced: dict[int, int] = {}
        self.pending_at_opening: set[int] = set()
        self.empty_cache_ix: list[int] = []
        self.retry_ix: list[int] = []
        self.has_learned = False
        self.unsplit_pools: set[PoolId] = set()
        self.peak_allocated = self.peak_active = self.peak_requested = self.peak_reserved = Peak(0, None)

    def note(self, ix: int | None, kind: str, expected: int | None, found: int | None, reason: str) -> None:
        """Count a mismatch and keep it while there is room."""
        self.mismatch_count += 1
        if len(self.mismatches) < DETAIL_LIMIT:
            self.mismatches.append(Mismatch(ix, kind, expected, found, reason))

    # What was there before

    def enter_opening(self) -> None:
        """Set up what was there before the first event, and note what has no place."""
        allocator = self.allocator
        allocator.knows_ages = not self.opening.segments
        segments, blocks = enter_opening(allocator, self.opening)
        for one, segment in zip(self.opening.segments, segments, strict=True):
            if segment is None:
                reason = "a segment of the opening state overlaps another one"
                self.note(None, "opening", None, one.address, reason)
        for ticket, (one, block) in enumerate(zip(self.opening.allocations, blocks, strict=True)):
            if one.is_pending:
                self.pending_at_opening.add(ticket)
            if block is None:
                self.append(one.address, one.requested, one.held, one.stream, None, None, None, None)
                self.enter_nowhere(one, ticket)
                continue
            block.ticket = ticket
            segment = block.segment
            pool = segment.home.pool.id
            self.append(one.address, one.requested, one.held, one.stream, pool, segment.address, None, None)
        self.peak_allocated = Peak(allocator.allocated, None)
        self.peak_active = Peak(allocator.active, None)
        self.peak_requested = Peak(allocator.requested, None)
        self.peak_reserved = Peak(allocator.reserved, None)

    def enter_nowhere(self, one: OpeningAllocation, ticket: int) -> None:
        """Enter an opening allocation that no segment holds."""
        reason = "no segment holds a block that was there at the start"
        self.note(None, "opening", None, one.address, reason)
        self.count_unplaced(one.address, ticket)
        if one.is_pending:
            self.allocator.allocated -= self.carried(ticket)

    def count_unplaced(self, address: int, ticket: int) -> None:
        """Count an allocation that lies in no known segment."""
        self.unplaced[address] = ticket
        self.allocator.allocated += self.carried(ticket)
        self.allocator.active += self.carried(ticket)
        self.allocator.requested += self.rows.requested[ticket] or 0

    def carried(self, ticket: int) -> int:
        """Tell what sums carry for a placement: its size where that is known, else what was requested."""
        held = self.rows.held[ticket]
        return (self.rows.requested[ticket] or 0) if held is None else held

    # Placements

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

    def drop(self, ticket: int, block: Block | None, ix: int) -> None:
        """Note that the program dropped a block, wherever it lies."""
        self.rows.free_requested_ix[ticket] = ix
        if block is None:
            self.allocator.allocated -= self.carried(ticket)
        else:
            self.allocator.request_free(block)

    def end(self, ticket: int, block: Block | None, ix: int) -> None:
        """End an allocation, wherever it lies."""
        self.rows.death_ix[ticket] = ix
        if block is None:
            self.allocator.active -= self.carried(ticket)
            self.allocator.requested -= self.rows.requested[ticket] or 0
            del self.unplaced[self.rows.address[ticket]]
        else:
            self.allocator.complete_free(block)

    def lose(self, ticket: int, block: Block | None, ix: int) -> None:
        """End an allocation that must be gone, because something else lies there now."""
        if self.rows.free_requested_ix[ticket] is None and ticket not in self.pending_at_opening:
            self.drop(ticket, block, ix)
        self.end(ticket, block, ix)

    # The end

    def result(self) -> Replay:
        """Put together what was found."""
        differences = list(self.final_differences())
        rows = self.rows
        if self.has_learned:
            self.recount()
        return Replay(
            placements=rows,
            opening=self.opening,
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
            range_bases=self.driver.range_bases,
            unknown_held_count=rows.held.count(None),
            notes=self.notes,
            ignored=dict(self.ignored),
            event_count=len(self.events),
            settings=replace(self.settings, fixed_pools=self.allocator.settings.fixed_pools),
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
        if block is None or state == "inactive" or self.rows.held[block.ticket] == size:
            return
        self.rows.held[block.ticket] = size
        self.has_learned = True
        if block.segment.home.pool.id != DEFAULT_POOL:
            self.unsplit_pools.add(block.segment.home.pool.id)

    def recount(self) -> None:
        """Add up allocated and active bytes once more, with the sizes that the file told in the end."""
        rows, count = self.rows, len(self.events)
        allocated, active = [0] * (count + 1), [0] * (count + 1)
        for ticket in range(len(rows)):
            size = self.carried(ticket)
            birth, dropped, death = (
                rows.birth_ix[ticket],
                rows.free_requested_ix[ticket],
                rows.death_ix[ticket],
            )
            start = 0 if birth is None else birth + 1
            active[start] += size
            if death is not None:
                active[death + 1] -= size
            if ticket not in self.pending_at_opening:
                allocated[start] += size
                if dropped is not None:
                    allocated[dropped + 1] -= size
        self.peak_allocated, self.allocator.allocated = _highest(allocated)
        self.peak_active, self.allocator.active = _highest(active)


def _highest(changes: list[int]) -> tuple[Peak, int]:
    """Add up changes, the first of which is the opening: the peak and what is left at the end."""
    total = changes[0]
    peak = Peak(total, None)
    for ix, change in enumerate(changes[1:]):
        total += change
        if total > peak.value:
            peak = Peak(total, ix)
    return peak, total
