"""The allocator while it follows a recording: what the program, the driver and time decided is given.

Forced moves are here too: putting a block or a segment where a recording says it is. Nothing is counted or
judged.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from tracekit.allocator.blocks import ALLOCATED, FREE, PENDING, Block, FreeList, Segment
from tracekit.allocator.model import Allocator
from tracekit.allocator.opening import GROWTHS, RELEASES
from tracekit.allocator.settings import Settings


class DivergedError(Exception):
    """The allocator is about to do something that the recording does not show.

    Attributes:
        address: the segment that the allocator would release, None where it would ask for one.
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

    @property
    def next(self) -> RecordedEvent | None:
        """The next event to be met."""
        return self.queue[self.position] if self.position < len(self.queue) else None

    def load(self, queue: list[RecordedEvent]) -> None:
        """Take the events that led to a request."""
        self.queue = queue
        self.position = 0

    def reserve(self, size: int, home: FreeList) -> int | None:
        """Give the recorded segment, or refuse where a release or an out of memory follows instead."""
        event = self.next
        if event is None or event.action not in GROWTHS:
            return None
        if event[1::2] != ("segment_alloc", size) or event.stream != home.stream or self._is_taken(event):
            raise DivergedError
        self.position += 1
        return event.address

    def _is_taken(self, event: RecordedEvent) -> bool:
        if self._allocator is None or not is_usable(event):
            return True
        return bool(self._allocator.overlapping(event.address, event.size))

    def reserve_range(self, home: FreeList) -> tuple[int, int]:  # noqa: ARG002
        """Give the range that the next recorded mapping begins."""
        raise DivergedError

    def map(self, address: int, size: int) -> bool:  # noqa: ARG002
        """Map what the recording shows as mapped."""
        raise DivergedError

    def release(self, address: int, size: int) -> None:
        """Check that the recording shows this release next."""
        event = self.next
        if event is None or event.action not in RELEASES or (event.address, event.size) != (address, size):
            raise DivergedError(address)
        self.position += 1


def is_usable(event: RecordedEvent) -> bool:
    """Tell whether address and size can be those of a segment."""
    return 0 <= event.address < 1 << 63 and 0 < event.size < 1 << 63


class RecordedAllocator(Allocator):
    """The allocator during a replay."""

    __slots__ = ("recorder", "walked")

    def __init__(self, settings: Settings, driver: RecordedDriver) -> None:
        super().__init__(settings, driver)
        self.recorder = driver
        self.walked = 0
        driver.attach(self)

    def synchronize(self) -> None:
        """Complete the pending frees that the recording completes here."""
        while (event := self.recorder.next) is not None and event.action == "free_completed":
            self.recorder.position += 1
            block = self.live.get(event.address)
            if block is not None and block.state == PENDING:
                self.complete_free(block)

    # Forced moves

    def overlapping(self, address: int, size: int) -> list[Segment]:
        """List the segments that share bytes with a range."""
        bases = self.bases
        position = max(bisect_right(bases, address) - 1, 0)
        found: list[Segment] = []
        while position < len(bases) and bases[position] < address + size:
            segment = self.segments[bases[position]]
            if segment.address + segment.size > address:
                found.append(segment)
            position += 1
        return found

    def force_segment(self, address: int, size: int, home: FreeList) -> Segment:
        """Enter a segment that nobody asked for; all of it is free."""
        segment = self.add_segment(address, size, home)
        home.add(segment.first)
        return segment

    def drop_segment(self, segment: Segment) -> None:
        """Strike a segment out, whose blocks are all free."""
        for block in segment:
            if block.state == FREE:
                segment.home.remove(block)
        self.remove_segment(segment)

    def vacate(self, block: Block) -> None:
        """Free a block that the program must have freed, though the recording does not show it."""
        if block.state == ALLOCATED:
            self.request_free(block)
        self.complete_free(block)

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
        upper = block.next
        if upper is None:
            return block
        home.remove(upper)
        home.add(block)
        return upper
