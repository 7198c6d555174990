"""A second allocator, written to be obvious and not fast: plain lists, and a scan for every question.

It knows the rules without expandable segments and garbage collection, and is there to disagree with the real model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tracekit.allocator.settings import Settings
from tracekit.units import MIB


@dataclass(eq=False)
class Piece:
    address: int
    size: int
    stream: int
    is_small: bool
    state: str = "free"


@dataclass
class Naive:
    """Segments are lists of pieces, from the bottom up."""

    settings: Settings
    segments: list[list[Piece]] = field(default_factory=list[list[Piece]])
    top: int = 1 << 40

    @property
    def reserved(self) -> int:
        return sum(piece.size for segment in self.segments for piece in segment)

    def total(self, *states: str) -> int:
        return sum(piece.size for segment in self.segments for piece in segment if piece.state in states)

    def malloc(self, requested: int, stream: int) -> int | None:
        """Give the address, or None where memory is out."""
        rounded = self.settings.round_request(requested)
        found = self.find(rounded, stream) or self.grow(rounded, stream)
        if found is None and self.release_oversize(rounded, stream):
            found = self.grow(rounded, stream)
        if found is None:
            self.empty_cache()
            found = self.grow(rounded, stream)
        if found is None:
            return None
        segment, piece = found
        rest = piece.size - rounded
        limit = self.settings.max_split_size
        if (rest >= 512) if piece.is_small else (rest > MIB and (limit is None or rounded < limit)):
            segment.insert(segment.index(piece) + 1, Piece(piece.address + rounded, rest, stream, piece.is_small))
            piece.size = rounded
        piece.state = "live"
        return piece.address

    def find(self, rounded: int, stream: int) -> tuple[list[Piece], Piece] | None:
        fitting = [
            (piece.size, piece.address, segment, piece)
            for segment in self.segments
            for piece in segment
            if piece.state == "free" and piece.stream == stream and piece.is_small == (rounded <= MIB)
            if piece.size >= rounded
        ]
        if not fitting:
            return None
        size, _, segment, piece = min(fitting, key=lambda one: one[:2])
        limit = self.settings.max_split_size
        if limit is not None and (size >= limit if rounded < limit else size >= rounded + 20 * MIB):
            return None
        return segment, piece

    def grow(self, rounded: int, stream: int) -> tuple[list[Piece], Piece] | None:
        size = self.settings.segment_size(rounded)
        limit = self.settings.memory_limit
        if limit is not None and self.reserved + size > limit:
            return None
        piece = Piece(self.top, size, stream, rounded <= MIB)
        self.top += size
        self.segments.append([piece])
        return self.segments[-1], piece

    def release_oversize(self, rounded: int, stream: int) -> bool:
        limit = self.settings.max_split_size
        if limit is None:
            return False
        wanted = max(rounded, limit)
        idle = [
            segment
            for segment in self.segments
            if len(segment) == 1 and segment[0].state == "free" and segment[0].size >= limit
            if segment[0].stream == stream and segment[0].is_small == (rounded <= MIB)
        ]
        idle.sort(key=lambda segment: (segment[0].size, segment[0].address))
        for segment in idle:
            if segment[0].size >= wanted:
                self.segments.remove(segment)
                return True
        released = 0
        while idle and released < wanted:
            segment = idle.pop()
            released += segment[0].size
            self.segments.remove(segment)
        return released >= wanted

    def piece_at(self, address: int) -> Piece:
        return next(piece for segment in self.segments for piece in segment if piece.address == address)

    def drop(self, address: int) -> None:
        self.piece_at(address).state = "pending"

    def complete(self, address: int) -> None:
        self.piece_at(address).state = "free"
        for segment in self.segments:
            for lower, upper in pairwise(segment[:]):
                if lower.state == upper.state == "free":
                    upper.address = lower.address
                    upper.size += lower.size
                    segment.remove(lower)

    def empty_cache(self) -> None:
        for segment in list(self.segments):
            for piece in list(segment):
                if piece.state == "pending":
                    self.complete(piece.address)
        self.segments = [one for one in self.segments if len(one) > 1 or one[0].state != "free"]
