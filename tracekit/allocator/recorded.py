"""The allocator while it follows a recording: what the program, the driver and time decided is given.

Forced moves are here too: putting a block or a segment where a recording says it is. Nothing is counted or
judged.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from tracekit.allocator.blocks import PENDING, Block, FreeList
from tracekit.allocator.forced import MovableAllocator, is_usable
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
        return is_usable(self.address, self.size)


class RecordedDriver:
    """The driver as the recording shows it: it grants what was granted and refuses where a release follows.

    Attributes:
        queue: the events between the last request and this one.
        position: how many of them have been met.
        range_bases: where the ranges of expandable segments begin, in the order in which they were needed.
    """

    __slots__ = ("_allocator", "position", "queue", "range_bases")

    def __init__(self) -> None:
        self.queue: list[RecordedEvent] = []
        self.position = 0
        self.range_bases: list[int] = []
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
        if event is None or event.action != "segment_map" or event.stream != home.stream or not event.is_usable:
            raise DivergedError
        if self._allocator is None or self._allocator.overlapping(event.address, event.size):
            raise DivergedError
        self.range_bases.append(event.address)
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


class RecordedAllocator(MovableAllocator):
    """The allocator during a replay.

    Attributes:
        recorder: its driver.
        knows_ages: False where blocks are older than the recording.
    """

    __slots__ = ("knows_ages", "recorder")

    def __init__(self, settings: Settings, driver: RecordedDriver) -> None:
        super().__init__(settings, driver)
        self.recorder = driver
        self.knows_ages = True
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

        A snapshot does not say the memory limit, so whether garbage was collected is seen from what was released.
        In a recording that began late no age is known, and what was released is taken as it is.
        """
        if self.settings.garbage_collection_threshold <= 0:
            return
        released = [event for event in self.recorder.rest if event.action == "segment_free"]
        chosen = self.old_segments(sum(event.size for event in released))
        if not self.knows_ages:
            idle = {block.address: block for block in self.old_segments(1 << 63)}
            chosen = [idle[event.address] for event in released if event.address in idle]
        if [block.address for block in chosen] == [event.address for event in released[: len(chosen)]]:
            for block in chosen:
                self.release_segment(block)

    def grow(self, home: FreeList, rounded: int, size: int) -> Block | None:
        """Ask the driver, unless the recording shows that this was refused: what was granted is not released next.

        The limit that refuses is not in a snapshot; with expandable segments no call to the driver may be needed.
        """
        event = self.recorder.next
        if event is not None and event.action not in GROWTHS:
            return None
        return super().grow(home, rounded, size)

    def expand_in_place(self, home: FreeList, rounded: int) -> Block | None:
        """Take a free block that best fit passes over but the search for room to grow does not.

        Seen with expandable segments and max_split_size together: no event shows this.
        """
        try:
            return self.expand(home, rounded) if self.is_expandable(home.pool) else None
        except DivergedError:
            return None

    def switch_expandable(self, is_on: bool) -> None:
        """Follow a program that changes expandable_segments on the way."""
        self.settings = replace(self.settings, expandable_segments=is_on)
        self.is_plain = False
