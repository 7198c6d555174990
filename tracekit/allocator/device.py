"""A device that gives out addresses: deterministic, and with a choice of where new segments come to lie.

Memory is counted by the allocator; a device only says no where it is given a capacity of its own.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from random import Random

from tracekit.allocator.blocks import FreeList
from tracekit.allocator.settings import LARGE_STEP, Settings

FIRST_ADDRESS = 0x7F0000000000
LOW = 1 << 44
"""Below a recording's segments there is room for others only where they lie higher than this."""
UNKNOWN_TOTAL = 1 << 37
"""The memory a device is taken to have, where that is not known, when it reserves addresses: 128 GiB."""

Layout = Callable[[int], int]
"""Gives the address of a new segment of a size; asked again where that place is taken."""


def ascending(first: int = FIRST_ADDRESS) -> Layout:
    """Lay every new segment above the last, so that among equal free blocks the oldest segment's comes first."""
    top = first

    def lay(size: int) -> int:
        nonlocal top
        address, top = top, top + _whole(size)
        return address

    return lay


def descending(first: int = FIRST_ADDRESS) -> Layout:
    """Lay every new segment below the last, so that among equal free blocks the newest segment's comes first.

    This is what the driver mostly does: with it, fourteen recordings and gpt2_b8_maxsplit replayed as what-if reach the
    reserved peak that was measured, while `ascending` misses it in gpt2_b8_maxsplit by 136 MiB.
    """
    bottom = first

    def lay(size: int) -> int:
        nonlocal bottom
        bottom -= _whole(size)
        return bottom

    return lay


def shuffled(seed: int, first: int = FIRST_ADDRESS) -> Layout:
    """Lay every new segment anywhere in 64 TiB, the same way for the same seed."""
    random = Random(seed)  # noqa: S311  (a layout, not a secret)

    def lay(size: int) -> int:
        del size
        return first + random.randrange(1 << 25) * LARGE_STEP

    return lay


class Device:
    """A device for a program that runs again.

    Without a layout, a segment is laid where the recording had one of its size, the first of them first, as long as
    nothing lies there: this keeps the ties between equal blocks as they were. What finds no such place goes below all
    of them.
    """

    def __init__(
        self,
        settings: Settings,
        layout: Layout | None = None,
        bases: Iterable[tuple[int, int]] = (),
        range_bases: Iterable[int] = (),
        capacity: int | None = None,
    ) -> None:
        self._remembered: dict[int, deque[int]] = defaultdict(deque)
        self._ranges: deque[int] = deque()
        if layout is None:
            self._ranges.extend(range_bases)
            for size, address in bases:
                self._remembered[size].append(address)
        lowest = min((address for queue in self._remembered.values() for address in queue), default=FIRST_ADDRESS)
        self._layout = layout or descending(lowest // LARGE_STEP * LARGE_STEP if lowest >= LOW else FIRST_ADDRESS)
        self._settings = settings
        self._capacity = capacity
        self._used = 0
        self._starts: list[int] = []
        self._ends: dict[int, int] = {}

    def claim(self, address: int, size: int, used: int) -> None:
        """Take note of a place that is taken already."""
        insort(self._starts, address)
        self._ends[address] = address + size
        self._used += used

    def reserve(self, size: int, home: FreeList) -> int | None:  # noqa: ARG002
        """Give the base address of a new segment."""
        if self._is_beyond(size):
            return None
        remembered = self._remembered[size]
        address = remembered.popleft() if remembered else self._layout(size)
        while not self._is_vacant(address, size):
            address = remembered.popleft() if remembered else self._layout(size)
        self.claim(address, size, size)
        return address

    def reserve_range(self, home: FreeList) -> tuple[int, int]:
        """Give a range of addresses as long as the device's memory and an eighth, in whole pages.

        Learned from c10/cuda/CUDACachingAllocator.cpp, ExpandableSegment.
        """
        page = self._settings.page_size(home.pool.is_small)
        total = self._settings.device_total or UNKNOWN_TOTAL
        size = (total + total // 8 + page - 1) // page * page
        address = self._ranges.popleft() if self._ranges else self._layout(size)
        while not self._is_vacant(address, size):
            address = self._layout(size)
        self.claim(address, size, 0)
        return address, size

    def map(self, address: int, size: int) -> bool:
        """Put memory behind pages, while there is any."""
        del address
        if self._is_beyond(size):
            return False
        self._used += size
        return True

    def release(self, address: int, size: int) -> None:
        """Take back a segment, or pages of a range."""
        self._used -= size
        if self._ends.get(address) == address + size:
            del self._starts[bisect_left(self._starts, address)]
            del self._ends[address]

    def _is_beyond(self, size: int) -> bool:
        return self._capacity is not None and self._used + size > self._capacity

    def _is_vacant(self, address: int, size: int) -> bool:
        position = bisect_right(self._starts, address)
        if position and self._ends[self._starts[position - 1]] > address:
            return False
        return position == len(self._starts) or self._starts[position] >= address + size


def _whole(size: int) -> int:
    return (size + LARGE_STEP - 1) // LARGE_STEP * LARGE_STEP
