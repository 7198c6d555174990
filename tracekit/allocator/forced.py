"""The allocator moved by hand: segments and blocks put where a recording says they are, no questions asked.

No event is read and nothing is judged here; `tracekit.allocator.replay` decides what has to be moved.
"""

from __future__ import annotations

from bisect import bisect_right

from tracekit.allocator.blocks import ALLOCATED, FREE, UNMAPPED, Block, FreeList, Segment
from tracekit.allocator.model import Allocator, Driver
from tracekit.allocator.opening import RANGE_REACH, Opening, OpeningAllocation, OpeningSegment
from tracekit.allocator.settings import Settings


class MovableAllocator(Allocator):
    """The allocator with moves that no program can make.

    Attributes:
        walked: how many blocks were passed while looking for the one at an address.
    """

    __slots__ = ("walked",)

    def __init__(self, settings: Settings, driver: Driver) -> None:
        super().__init__(settings, driver)
        self.walked = 0

    def overlapping(self, address: int, size: int) -> list[Segment]:
        """List the segments that keep a new one from lying in a range of addresses."""
        bases = self.bases
        position = max(bisect_right(bases, address) - 1, 0)
        found: list[Segment] = []
        while position < len(bases) and bases[position] < address + size:
            segment = self.segments[bases[position]]
            if segment.address + segment.size > address and self._reaches(segment, address):
                found.append(segment)
            position += 1
        return found

    def _reaches(self, segment: Segment, address: int) -> bool:
        """Tell whether a segment has memory beyond an address; an expandable one's range is only assumed."""
        if not segment.is_expandable or segment.address >= address:
            return True
        return any(block.state != UNMAPPED and block.address + block.size > address for block in segment)

    def add_segment(self, address: int, size: int, home: FreeList, is_expandable: bool = False) -> Segment:
        """Enter a segment that nothing overlaps; ranges of expandable segments end where the next one begins."""
        below = self.segment_at(address)
        if below is not None:
            self._shorten(below, address)
        position = bisect_right(self.bases, address)
        if is_expandable and position < len(self.bases):
            size = min(size, self.bases[position] - address)
        return super().add_segment(address, size, home, is_expandable)

    def _shorten(self, segment: Segment, end: int) -> None:
        """Let the range of an expandable segment end at an address above its memory."""
        tail = self.block_at(segment, end)
        segment.home.remove_unmapped(tail)
        segment.size = end - segment.address
        tail.size = end - tail.address
        if tail.size:
            segment.home.add_unmapped(tail)
        elif tail.prev is not None:
            tail.prev.next = None

    def force_segment(self, address: int, size: int, home: FreeList) -> Segment:
        """Enter a segment that nobody asked for; all of it is free."""
        segment = self.add_segment(address, size, home)
        home.add(segment.first)
        return segment

    def unmapped_at(self, address: int, size: int, stream: int, home: FreeList | None = None) -> Block | None:
        """Find the unmapped range of an expandable segment in which pages could be mapped at an address."""
        segment = self.segment_at(address)
        if segment is None or not segment.is_expandable or segment.home.stream != stream:
            return None
        page = self.settings.page_size(segment.home.pool.is_small)
        if (address - segment.address) % page or size % page or segment.home is not (home or segment.home):
            return None
        block = self.block_at(segment, address)
        fits = block.state == UNMAPPED and address + size <= block.address + block.size
        return block if fits else None

    def force_map(self, block: Block, address: int, size: int) -> Segment:
        """Map pages inside an unmapped range that nobody asked for."""
        home = block.segment.home
        if block.address < address:
            home.remove_unmapped(block)
            self.cut_unmapped(block, address - block.address)
            home.add_unmapped(block)
            block = block.next or block
        self.map_range(block, size)
        return block.segment

    def force_range(self, base: int, home: FreeList) -> Block:
        """Enter a range for an expandable segment that nobody asked for."""
        segment = self.add_segment(base, RANGE_REACH, home, is_expandable=True)
        home.add_unmapped(segment.first)
        return segment.first

    def force_unmap(self, block: Block, begin: int, end: int) -> None:
        """Take memory away from what lies between two addresses in a free block of an expandable segment."""
        begin, end = max(begin, block.address), min(end, block.address + block.size)
        if block.state == FREE and begin < end:
            self.unmap_range(block, begin, end)

    def drop_segment(self, segment: Segment) -> None:
        """Strike a segment out, of which no block is live."""
        for block in list(segment):
            if block.state == FREE:
                segment.home.remove(block)
                self.reserved -= block.size if segment.is_expandable else 0
            elif block.state == UNMAPPED:
                segment.home.remove_unmapped(block)
        self.remove_segment(segment)

    def locate(self, address: int) -> Block | None:
        """Find the block that an address lies in, None where no memory is known there."""
        segment = self.segment_at(address)
        block = None if segment is None else self.block_at(segment, address)
        return None if block is None or block.state == UNMAPPED else block

    def block_at(self, segment: Segment, address: int) -> Block:
        """Find the block of a segment that an address lies in, from the bottom up."""
        block = segment.first
        steps = 0
        while address >= block.address + block.size and block.next is not None:
            block = block.next
            steps += 1
        self.walked += steps
        return block

    def carve(self, block: Block, address: int) -> Block:
        """Take a free block off its list from `address` on; what lies below stays free."""
        home = block.segment.home
        home.remove(block)
        if address == block.address:
            return block
        self.split(block, address - block.address)
        home.add(block)
        upper = block.next or block
        home.remove(upper)
        return upper

    def occupy(self, block: Block, requested: int, held: int | None) -> None:
        """Mark a block as allocated, counted by its size where that is known and by the request where not."""
        block.state = ALLOCATED
        block.requested = requested
        block.counted = counted = requested if held is None else held
        self.live[block.address] = block
        self.allocated += counted
        self.active += counted
        self.requested += requested


def enter_opening(allocator: MovableAllocator, opening: Opening) -> tuple[list[Segment | None], list[Block | None]]:
    """Set up the segments and blocks that were there before a recording's first event.

    Returns:
        What became of each opening segment and of each opening allocation; None where there was no place for it.
    """
    segments = [_enter_segment(allocator, opening, one) for one in opening.segments]
    tails: dict[int, Block] = {}
    blocks: list[Block | None] = []
    for one in opening.allocations:
        segment = None if one.segment is None else segments[one.segment]
        tail = None if segment is None else _forward(tails.get(segment.address, segment.first), one.address)
        block = None
        if segment is not None and tail is not None:
            block = _seat(allocator, one, tail)
            tails[segment.address] = block.next or block
        blocks.append(block)
    return segments, blocks


def _enter_segment(allocator: MovableAllocator, opening: Opening, one: OpeningSegment) -> Segment | None:
    """Enter a segment, all of it free as yet."""
    home = allocator.home(one.pool, one.is_small, one.stream)
    if one.is_expandable:
        unmapped = allocator.unmapped_at(one.address, one.size, one.stream, home)
        if unmapped is not None:
            return allocator.force_map(unmapped, one.address, one.size)
    if not is_usable(one.address, one.size) or allocator.overlapping(one.address, one.size):
        return None
    if not one.is_expandable:
        return allocator.force_segment(one.address, one.size, home)
    base = opening.range_base(one, allocator.settings.page_size(one.is_small))
    if allocator.overlapping(base, one.address + one.size - base):
        base = one.address
    return allocator.force_map(allocator.force_range(base, home), one.address, one.size)


def _seat(allocator: MovableAllocator, one: OpeningAllocation, tail: Block) -> Block:
    """Put an allocation into the free block at its address."""
    block = allocator.carve(tail, one.address)
    if one.room < block.size:
        allocator.split(block, one.room)
    allocator.occupy(block, one.requested or 0, one.held)
    if one.is_pending:
        allocator.request_free(block)
    return block


def _forward(block: Block, address: int) -> Block | None:
    """Go up from a block to the free one that holds an address."""
    while address >= block.address + block.size and block.next is not None:
        block = block.next
    return block if block.state == FREE and block.address <= address < block.address + block.size else None


def is_usable(address: int, size: int) -> bool:
    """Tell whether address and size can be those of a segment."""
    return 0 <= address < 1 << 63 and 0 < size < 1 << 63
