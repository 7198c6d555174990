"""Following a recording where it differs from what the allocator would do, so that one divergence stays one.

Every move is noted in the account; which moves are needed is decided in `tracekit.allocator.replay`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tracekit.allocator.account import Account
from tracekit.allocator.blocks import ALLOCATED, FREE, PENDING, UNMAPPED, Block, FreeList, Segment
from tracekit.allocator.opening import GROWTHS
from tracekit.allocator.recorded import RecordedEvent
from tracekit.allocator.recording import Events, FinalSegment
from tracekit.allocator.settings import DEFAULT_POOL, SMALL_SEGMENT, SMALL_SIZE, Settings


class Resync(Account):
    """The books of a replay, with the moves that bring the allocator back to the recording.

    Attributes:
        walk_limit: so many blocks may be passed in search of one before that is given up.
        is_lost: True once it was given up.
        saw_tie: True once a free block was taken as large as the one that the allocator would take.
    """

    def __init__(self, events: Events, segments: Sequence[FinalSegment], settings: Settings) -> None:
        super().__init__(events, segments, settings)
        self.walk_limit = 50 * len(events) + 1_000_000
        self.is_lost = False
        self.saw_tie = False

    # Segments

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
            elif event.is_usable and event.action in GROWTHS:
                self.force_growth(event)
            elif event.action == "segment_free":
                segment = allocator.segments.get(event.address)
                if segment is not None:
                    self.clear(segment, event.ix)
            elif event.action == "segment_unmap":
                self.force_unmap(event)

    def force_growth(self, event: RecordedEvent) -> None:
        """Enter a segment or pages where the recording has them."""
        allocator = self.allocator
        if event.action == "segment_map":
            unmapped = allocator.unmapped_at(event.address, event.size, event.stream)
            if unmapped is not None:
                allocator.force_map(unmapped, event.address, event.size)
                return
        while segments := allocator.overlapping(event.address, event.size):
            self.clear(segments[0], event.ix)
        pool = self.opening.growth_pools.get(event.ix, DEFAULT_POOL)
        if event.action == "segment_alloc":
            home = allocator.home(pool, event.size <= SMALL_SEGMENT, event.stream)
            allocator.force_segment(event.address, event.size, home)
        else:
            is_small = event.size % self.settings.large_segment_size != 0
            home = allocator.home(pool, is_small, event.stream)
            allocator.force_map(allocator.force_range(event.address, home), event.address, event.size)

    def force_unmap(self, event: RecordedEvent) -> None:
        """Take memory away from pages where the recording does."""
        allocator = self.allocator
        segment = allocator.segment_at(event.address)
        if segment is None or not segment.is_expandable:
            return
        top = event.address + event.size
        within = [block for block in segment if block.address < top and block.address + block.size > event.address]
        for block in within:
            if block.state in (ALLOCATED, PENDING):
                self.note(event.ix, "lost_free", None, block.address, "pages are gone in which a block lived")
                self.lose(block.ticket, block, event.ix)
        allocator.force_unmap(allocator.block_at(segment, event.address), event.address, top)

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

    # Blocks

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
            self.saw_tie = self.saw_tie or self.is_tie(address, chosen)
            self.note(
                ix,
                "address",
                None if chosen is None else chosen.address,
                address,
                self.reason(address, chosen),
            )
        ticket = len(self.rows)
        before = self.allocator.live.get(address)
        if before is not None:
            self.lose(before.ticket, before, ix)
        elif address in self.unplaced:
            self.lose(self.unplaced[address], None, ix)
        block = None if self.is_lost else self.allocator.locate(address)
        if block is None:
            self.append(address, size, None, home.stream, None, None, ix, False)
            self.count_unplaced(address, ticket)
            return
        block, is_known = self.place(ix, block, address, size, rounded)
        block.ticket = ticket
        held = block.size if is_known else None
        segment = block.segment
        pool = segment.home.pool.id
        self.append(address, size, held, home.stream, pool, segment.address, ix, False)
        if self.allocator.walked > self.walk_limit:
            self.get_lost()

    def is_tie(self, address: int, chosen: Block | None) -> bool:
        """Tell whether the recording took a free block as large as the one the allocator would take."""
        other = None if chosen is None else self.allocator.locate(address)
        if chosen is None or other is None:
            return False
        return other.state == FREE and (other.address, other.size) == (address, chosen.size)

    def reason(self, address: int, chosen: Block | None) -> str:
        """Say why, likely, an address differs."""
        if address in self.allocator.live or address in self.unplaced:
            return "a block is allocated where one lives: the event of its free is missing"
        if self.allocator.locate(address) is None:
            return "the block lies in no known segment: segment events are missing"
        if chosen is None:
            return "no cached block fits, yet no segment is made: events or a setting are missing"
        return "another block fits better: events or a setting are missing"

    def place(self, ix: int, block: Block, address: int, size: int, rounded: int) -> tuple[Block, bool]:
        """Make room at an address in `block` and occupy it; tell also whether the size is certain."""
        allocator = self.allocator
        is_certain = block.state == FREE and block.address == address
        block = self.make_room(ix, block, address + rounded)
        block = allocator.carve(block, address)
        rest = block.size - rounded
        home = block.segment.home
        if rest > 0 and allocator.should_split(home.pool, rest, rounded):
            allocator.split(block, rounded)
        is_known = rest >= 0 and (is_certain or (home.pool.is_small and rounded <= SMALL_SIZE))
        allocator.occupy(block, size, block.size if is_known else None)
        return block, is_known

    def make_room(self, ix: int, block: Block, top: int) -> Block:
        """Free a block and those above it up to an address, as far as there is memory; return it."""
        allocator = self.allocator
        if block.state != FREE:
            self.lose(block.ticket, block, ix)
        while block.address + block.size < top and (above := block.next) is not None:
            if above.state == UNMAPPED:
                break
            if above.state != FREE:
                self.lose(above.ticket, above, ix)
                block = above
            else:
                block.segment.home.remove(block)
                allocator.shelve(block)
        return block

    def get_lost(self) -> None:
        """Give up following the blocks: the recording contradicts itself too often to be worth the time."""
        self.is_lost = True
        self.notes.append("blocks were followed only so far: the recording contradicts itself too often")
