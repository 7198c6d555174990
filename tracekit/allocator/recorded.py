"""The allocator while it follows a recording: what the program, the driver and time decided is given.

Forced moves are here too: putting a block or a segment where a recording says it is. Nothing is counted or
judged.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from tracekit.allocator.blocks import ALLOCATED, FREE, PENDING, UNMAPPED, Block, FreeList, Segment
from tracekit.allocator.model import Allocator
from tracekit.allocator.opening import GROWTHS, RANGE_REACH, RELEASES
from tracekit.allocator.settings import Settings


class DivergedError(Exception):
    """The allocator is about to do something that the recording does not show.

    Attributes:
        address: the segment or the pages that the allocator would release, None where it would ask for some.
    """

    def __init__(self, address: int | None = None) -> None:
        super().__init__(address)
        self.address = address


class RecordedEvent(NamedTuple):
    """An event between two requests: a segment's, or a deferred free that completes."""

    ix: int
    action: str
    address: int
    size: int
    stream: int

    @property
    def is_usable(self) -> bool:
        """True where address and size can be those of a segment."""
        return 0 <= self.address < 1 << 63 and 0 < self.size < 1 << 63


class RecordedDriver:
    """The driver as the recording shows it: it grants what was granted and refuses where a release follows.

    Attributes:
        queue: the events between the last request and this one.
        position: how many of them have been met.
    """

    __slots__ = ("_allocator", "position", "queue")

    def __init__(self) -> None:
        self.queue: list[RecordedEvent] = []
        self.position = 0
        self._allocator: RecordedAllocator | None = None

    def attach(self, allocator: RecordedAllocator) -> None:
        """Make known the allocator that is served."""
        self._allocator = allocator

    def load(self, queue: list[RecordedEvent]) -> None:
        """Take the events that led to a request."""
        self.queue = queue
        self.position = 0

    @property
    def next(self) -> RecordedEvent | None:
        """The next event to be met."""
        return self.queue[self.position] if self.position < len(self.queue) else None

    @property
    def rest(self) -> list[RecordedEvent]:
        """All events still to be met."""
        return self.queue[self.position :]

    def reserve(self, size: int, home: FreeList) -> int | None:
        """Give the recorded segment, or refuse where a release or an out of memory follows instead."""
        event = self.next
        if event is None or event.action not in GROWTHS:
            return None
        if event.action != "segment_alloc" or event.size != size or event.stream != home.stream:
            raise DivergedError
        if not event.is_usable or self._allocator is None or self._allocator.overlapping(event.address, size):
            raise DivergedError
        self.position += 1
        return event.address

    def reserve_range(self, home: FreeList) -> tuple[int, int]:
        """Give a range that begins with the next recorded mapping; how long it is, no event says."""
        event = self.next
        if (
            event is None
            or event.action != "segment_map"
            or event.stream != home.stream
            or not event.is_usable
        ):
            raise DivergedError
        if self._allocator is None or self._allocator.overlapping(event.address, event.size):
            raise DivergedError
        return event.address, RANGE_REACH

    def map(self, address: int, size: int) -> bool:
        """Map what the recording shows as mapped, or refuse as `reserve` does."""
        event = self.next
        if event is None or event.action not in GROWTHS:
            return False
        if (event.action, event.address, event.size) != ("segment_map", address, size):
            raise DivergedError
        self.position += 1
        return True

    def release(self, address: int, size: int) -> None:
        """Check that the recording shows this release next."""
        event = self.next
        if event is None or event.action not in RELEASES or (event.address, event.size) != (address, size):
            raise DivergedError(address)
        self.position += 1


class RecordedAllocator(Allocator):
    """The allocator during a replay.

    Attributes:
        recorder: its driver.
        walked: how many blocks were passed while looking for the one at an address.
    """

    __slots__ = ("recorder", "walked")

    def __init__(self, settings: Settings, driver: RecordedDriver) -> None:
        super().__init__(settings, driver)
        self.recorder = driver
        self.walked = 0
        self.counts_searches = settings.garbage_collection_threshold > 0
        driver.attach(self)

    def synchronize(self) -> None:
        """Complete the pending frees that the recording completes here."""
        while (event := self.recorder.next) is not None and event.action == "free_completed":
            self.recorder.position += 1
            block = self.live.get(event.address)
            if block is not None and block.state == PENDING:
                self.complete_free(block)

    def collect_garbage(self) -> None:
        """Release old segments where the recording shows just those released next.

        A snapshot does not say the memory limit, so whether garbage was collected is seen from what was
        released.
        """
        if self.settings.garbage_collection_threshold <= 0:
            return
        released = [event for event in self.recorder.rest if event.action == "segment_free"]
        chosen = self.old_segments(sum(event.size for event in released))
        if [block.address for block in chosen] == [event.address for event in released[: len(chosen)]]:
            for block in chosen:
                self.release_segment(block)

    def switch_expandable(self, is_on: bool) -> None:
        """Follow a program that changes expandable_segments on the way."""
        self.settings = replace(self.settings, expandable_segments=is_on)
        self.is_plain = False

    # Forced moves

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
        """Tell whether a segment has memory beyond an address; the range of an expandable one is only
        assumed.
        """
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
