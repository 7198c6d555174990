"""Where the driver lays new segments: addresses in reserved chunks, as recordings show it to go about it.

Addresses only; a segment's size is the allocator's business, and memory is counted by `tracekit.allocator.device`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tracekit.allocator.device import FIRST_ADDRESS, Layout
from tracekit.units import MIB

CHUNK = 32 * MIB
"""Addresses are reserved in whole chunks of this size, at multiples of it."""

_NEAR = 512 * MIB
"""A gap of free addresses between two segments is taken to be one piece where it is no longer than this."""

Hole = tuple[int, int]
"""Free addresses, from one up to another."""


def as_driven(bases: Sequence[tuple[int, int]]) -> Layout:
    """Lay segments as the driver would go on from a recording.

    A segment goes into the newest reserved chunks that have room, at the lowest address there; where none has, whole
    chunks are reserved below all others, and it begins at their beginning. What was reserved before the recording
    began is the oldest, and shows in segments that lie where no chunk of the recording had room.

    Learned from the addresses in recordings of one driver (CUDA 13). Of GPT-2 small it gives the order of addresses
    that decides every tie: predicted peaks at batch 16 and 20 are those that were measured, to the byte, where
    `descending` is 0.3 to 0.8 MiB off. What else reserves addresses, such as kernels that are loaded, is not known.

    Args:
        bases: size and address of the recording's segments, in order. As long as the same sizes are asked for, they
            lie where they lay.
    """
    driver = _Driver(bases)
    return driver.lay


class _Driver:
    """The holes in what is reserved, oldest first."""

    def __init__(self, bases: Sequence[tuple[int, int]]) -> None:
        self.bases = list(bases)
        self.holes: list[Hole] = _reserved_before(bases)
        self.bottom = min((address for _, address in bases), default=FIRST_ADDRESS) // CHUNK * CHUNK
        self.count = 0

    def lay(self, size: int) -> int:
        """Give the address of the next segment."""
        position, self.count = self.count, self.count + 1
        if position < len(self.bases) and self.bases[position][0] == size:
            address = self.bases[position][1]
            self.holes = _carved(self.holes, address, size)
            return address
        self.bases.clear()
        for begin, end in reversed(self.holes):
            if end - begin >= size:
                self.holes = _carved(self.holes, begin, size)
                return begin
        whole = _whole(size)
        self.bottom -= whole
        self.holes += _nonempty((self.bottom + size, self.bottom + whole))
        return self.bottom


def _reserved_before(bases: Iterable[tuple[int, int]]) -> list[Hole]:
    """What was reserved before the first of some segments: where one lies that no chunk of theirs explains."""
    runs = _runs(bases)
    holes: list[Hole] = []
    regions: set[Hole] = set()
    for size, address in bases:
        if address % CHUNK == 0 or any(begin <= address and address + size <= end for begin, end in holes):
            holes = _carved(holes, address, size)
            continue
        at = next(at for at, (begin, end) in enumerate(runs) if begin <= address < end)
        begin, end = runs[at]
        above = runs[at + 1][0] if at + 1 < len(runs) else end + _NEAR
        regions.add((begin, above if above - end < _NEAR else _whole(end)))
    return _merged(regions)


def _carved(holes: list[Hole], address: int, size: int) -> list[Hole]:
    """The holes without a segment; one that lies in none of them has had its own chunks reserved."""
    for position, (begin, end) in enumerate(holes):
        if begin <= address and address + size <= end:
            left = _nonempty((begin, address)) + _nonempty((address + size, end))
            return holes[:position] + left + holes[position + 1 :]
    return holes + _nonempty((address + size, _whole(address + size)))


def _runs(bases: Iterable[tuple[int, int]]) -> list[Hole]:
    """The addresses that segments take, those side by side as one."""
    return _merged({(address, address + size) for size, address in bases})


def _merged(pieces: Iterable[Hole]) -> list[Hole]:
    merged: list[Hole] = []
    for begin, end in sorted(pieces):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _nonempty(hole: Hole) -> list[Hole]:
    return [hole] if hole[0] < hole[1] else []


def _whole(size: int) -> int:
    return (size + CHUNK - 1) // CHUNK * CHUNK
