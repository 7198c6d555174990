"""Where the driver lays new segments: addresses in reserved chunks, as recordings show it to go about it.

Addresses only; a segment's size is the allocator's business, and memory is counted by `tracekit.allocator.device`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tracekit.allocator.device import FIRST_ADDRESS, LOW, Layout
from tracekit.units import MIB

CHUNK = 32 * MIB
"""Addresses are reserved in whole chunks of this size, at multiples of it."""

_GRANULE = 2 * MIB
"""What the driver's addresses are multiples of."""

_NEAR = 512 * MIB
"""Addresses that nobody was seen to use belong to what lies below them up to this far."""


class Hole(NamedTuple):
    """Free addresses, from one up to another."""

    begin: int
    end: int

    def holds(self, begin: int, end: int) -> bool:
        """Whether a piece of addresses lies in it."""
        return self.begin <= begin and end <= self.end

    def without(self, begin: int, end: int) -> list[Hole]:
        """What is left of it around a piece."""
        return [hole for hole in (Hole(self.begin, begin), Hole(end, self.end)) if hole.begin < hole.end]


def as_driven(bases: Sequence[tuple[int, int]]) -> Layout:
    """Lay segments as the driver would go on from a recording.

    A segment goes into the newest reserved chunks that have room, at the lowest address there. Where none has, whole
    chunks are reserved at the top of the highest gap that holds them, and it begins at their beginning. What was
    reserved before the recording began is the oldest; it shows in segments that lie where no chunk of the recording
    had room.

    The recording also tells what cannot be seen: room that it passed over was taken, by kernels that were loaded, say;
    addresses that it came to use later were free until then, gaps between libraries among them.

    Learned from the addresses in recordings of one driver (CUDA 13). Of GPT-2 small it gives the order of addresses
    that decides every tie: predicted peaks at batch 16 and 20 are those that were measured, to the byte, where
    `descending` is 0.3 to 0.8 MiB off. Of two segments of one size in another recording of Llama it says which lies
    lower in 97 of 100 cases, `descending` in 86. What else the process does with its addresses differs from run to run
    and is not known.

    Args:
        bases: size and address of the recording's segments, in order. As long as the same sizes are asked for, they
            lie where they lay.
    """
    driver = _Driver(bases)
    return driver.lay


@dataclass(slots=True)
class _Seen:
    """What a recording tells of addresses.

    Attributes:
        left: holes in chunks that no segment of the recording went past, each with the position of the segment that
            reserved its chunk, oldest first.
        reserved: the chunks that segments reserved, each with the position of the segment, in order.
        regions: what was reserved before the recording, in order of first use; none of it was free before that.
    """

    left: list[tuple[int, Hole]] = field(default_factory=list[tuple[int, Hole]])
    reserved: list[tuple[int, Hole]] = field(default_factory=list[tuple[int, Hole]])
    regions: list[Hole] = field(default_factory=list[Hole])


def _seen(bases: Sequence[tuple[int, int]]) -> _Seen:
    """Read a recording's segments in order."""
    seen = _Seen()
    runs = _merged(Hole(address, address + size) for size, address in bases)
    for position, (size, address) in enumerate(bases):
        end = address + size
        within = next((at for at, (_, hole) in enumerate(seen.left) if hole.holds(address, end)), None)
        oldest = -1 if within is None else within
        # newer room that was passed over was not free
        seen.left = [one for at, one in enumerate(seen.left) if at <= oldest or one[1].end - one[1].begin < size]
        if within is not None:
            born, hole = seen.left[within]
            seen.left[within : within + 1] = [(born, rest) for rest in hole.without(address, end)]
        elif address % CHUNK == 0:
            chunk = Hole(address, address + _whole(size))
            seen.reserved.append((position, chunk))
            seen.left += [(position, rest) for rest in chunk.without(address, end)]
        else:
            region = next(run for run in runs if run.holds(address, end))
            if region not in seen.regions:
                seen.regions.append(region)
    return seen


class _Driver:
    """The free addresses: holes in what is reserved, oldest first, and gaps to reserve chunks in, by address."""

    def __init__(self, bases: Sequence[tuple[int, int]]) -> None:
        self.bases = list(bases)
        self.count = 0
        self.is_beyond = False
        self.holes: list[Hole] = []
        self.gaps: list[Hole] = []

    def lay(self, size: int) -> int:
        """Give the address of the next segment."""
        position, self.count = self.count, self.count + 1
        if not self.is_beyond:
            if position < len(self.bases) and self.bases[position][0] == size:
                return self.bases[position][1]
            self.is_beyond = True
            self.take_over(position)
        for at, hole in reversed(list(enumerate(self.holes))):
            if hole.end - hole.begin >= size:
                self.holes[at : at + 1] = hole.without(hole.begin, hole.begin + size)
                return hole.begin
        return self.reserve(size)

    def reserve(self, size: int) -> int:
        """Reserve whole chunks at the top of the highest gap that holds them."""
        whole = _whole(size)
        at, gap = next(
            (at, gap) for at, gap in reversed(list(enumerate(self.gaps))) if not at or gap.end - gap.begin >= whole
        )
        begin = gap.end - whole
        self.gaps[at : at + 1] = [Hole(min(gap.begin, begin), begin)]
        self.holes += Hole(begin, gap.end).without(begin, begin + size)
        return begin

    def take_over(self, position: int) -> None:
        """Find what is free where the program leaves the recording: what the recording used later, and what is left."""
        seen = _seen(self.bases)
        later = [Hole(address, address + size) for size, address in self.bases[position:]]
        old = [
            self.extended(piece, seen)
            for region in seen.regions
            for piece in _merged(hole for hole in later if region.holds(*hole))
        ]

        def is_old(hole: Hole) -> bool:
            return any(region.begin <= hole.begin < region.end for region in seen.regions)

        left = [hole for born, hole in seen.left if born < position and not is_old(hole)]
        chunks = [chunk for born, chunk in seen.reserved if born >= position and not is_old(chunk)]
        taken = _merged(Hole(address, address + size) for size, address in self.bases[:position])
        for hole in [*reversed(left), *old]:
            free = _free(hole, taken)
            self.holes[:0] = free
            taken = _merged([*taken, *free])
        chunks = [chunk for chunk in chunks if _free(chunk, taken) == [chunk]]
        lowest = min((address for _, address in self.bases), default=FIRST_ADDRESS)
        bottom = (lowest if lowest >= LOW else FIRST_ADDRESS) // CHUNK * CHUNK
        self.gaps = _merged([Hole(bottom, bottom), *chunks])

    def extended(self, piece: Hole, seen: _Seen) -> Hole:
        """A piece of a region with what is free above it: up to the next segment, and less than was not laid there."""
        above = min((address for _, address in self.bases if address >= piece.end), default=_whole(piece.end))
        last = max(at for at, (_, address) in enumerate(self.bases) if piece.begin <= address < piece.end)
        refused = [self.bases[born][0] - _GRANULE for born, _ in seen.reserved if born > last]
        return Hole(piece.begin, min([piece.end + _NEAR, above, *(piece.end + size for size in refused)]))


def _merged(pieces: Iterable[Hole]) -> list[Hole]:
    """Pieces that touch as one, by address."""
    merged: list[Hole] = []
    for begin, end in sorted(pieces):
        if merged and begin <= merged[-1].end:
            merged[-1] = Hole(merged[-1].begin, max(merged[-1].end, end))
        else:
            merged.append(Hole(begin, end))
    return merged


def _free(piece: Hole, taken: list[Hole]) -> list[Hole]:
    """What of a piece of addresses is not taken."""
    pieces = [piece]
    for one in taken:
        if one.begin < piece.end and piece.begin < one.end:
            pieces[-1:] = pieces[-1].without(*one) if pieces else []
    return pieces


def _whole(size: int) -> int:
    return (size + CHUNK - 1) // CHUNK * CHUNK
