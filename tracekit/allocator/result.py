"""What a replay found: where every allocation lay, the peaks, and how far the recording agrees.

Values only; how they come about is `tracekit.allocator.replay`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tracekit.allocator.opening import Opening, OpeningSegment
from tracekit.allocator.settings import PoolId, Settings

DETAIL_LIMIT = 100
"""So many mismatches are kept with their detail; all are counted."""


class Mismatch(NamedTuple):
    """A decision of the allocator that the recording does not show, or an event that cannot have happened.

    Attributes:
        event_ix: the event, None where the opening or the end is meant.
        kind: what differs (`opening`, `address`, `growth`, `release`, `out_of_memory`), or what is missing
            (`lost_alloc`, `lost_free`).
        expected: the address that the allocator chooses, where it chooses one.
        found: the address that the recording shows.
        reason: the likely reason, in a sentence.
    """

    event_ix: int | None
    kind: str
    expected: int | None
    found: int | None
    reason: str


class Peak(NamedTuple):
    """The largest value of a statistic and the first event after which it held; None is the opening."""

    value: int
    event_ix: int | None


@dataclass(slots=True)
class Placements:
    """One row an allocation, as parallel lists: the opening ones by address, then the others by birth.

    Attributes:
        address: where the block begins.
        requested: what the program asked for.
        held: the block's size; None where the recording does not settle it.
        stream: the stream.
        pool: the pool's id; (0, 0) is the device's own.
        segment_address: the segment the block lay in, None where none is known.
        birth_ix: the event that allocated it, None where it is older than the recording.
        free_requested_ix: the event that dropped it, None where it was not dropped, or was dropped before.
        death_ix: the event that ended it, None where it lives at the end.
        is_exact: whether the allocator chose the recorded address; None for opening allocations.
    """

    address: list[int] = field(default_factory=list[int])
    requested: list[int | None] = field(default_factory=list["int | None"])
    held: list[int | None] = field(default_factory=list["int | None"])
    stream: list[int] = field(default_factory=list[int])
    pool: list[PoolId | None] = field(default_factory=list["PoolId | None"])
    segment_address: list[int | None] = field(default_factory=list["int | None"])
    birth_ix: list[int | None] = field(default_factory=list["int | None"])
    free_requested_ix: list[int | None] = field(default_factory=list["int | None"])
    death_ix: list[int | None] = field(default_factory=list["int | None"])
    is_exact: list[bool | None] = field(default_factory=list["bool | None"])

    def __len__(self) -> int:
        return len(self.address)


@dataclass(slots=True)
class Replay:
    """What a replay found.

    Attributes:
        placements: one row an allocation.
        opening: what was there before the first event; its allocations are the first placements.
        pending_at_opening: the placements among them that had been dropped already.
        mismatches: the first of them, in order.
        mismatch_count: all of them.
        peak_allocated: bytes in allocated blocks, at most.
        peak_active: bytes in allocated and pending blocks, at most.
        peak_requested: bytes asked for in allocated and pending blocks, at most.
        peak_reserved: bytes in segments, at most.
        final_allocated: bytes in allocated blocks after the last event.
        final_active: bytes in allocated and pending blocks after the last event.
        final_reserved: bytes in segments after the last event.
        final_difference_count: how many blocks and segments at the end are not those of the file.
        final_differences: the first of them, in words.
        empty_cache_ix: the first event of each release that the program asked for, not a request that ran
            short.
        retry_ix: the events of the requests that released the cache because the driver refused.
        range_bases: where the ranges of expandable segments begin, in the order in which the recording needs them.
        unknown_held_count: placements whose size is not known; sums count what they requested.
        notes: what was taken for granted on the way, in sentences.
        ignored: how many events of other kinds were passed over, by action.
        event_count: all events.
        settings: the settings that the replay went by; the snapshot's own, and what had to be inferred.
    """

    placements: Placements
    opening: Opening
    pending_at_opening: frozenset[int]
    mismatches: list[Mismatch]
    mismatch_count: int
    peak_allocated: Peak
    peak_active: Peak
    peak_requested: Peak
    peak_reserved: Peak
    final_allocated: int
    final_active: int
    final_reserved: int
    final_difference_count: int
    final_differences: list[str]
    empty_cache_ix: list[int]
    retry_ix: list[int]
    range_bases: list[int]
    unknown_held_count: int
    notes: list[str]
    ignored: dict[str, int]
    event_count: int
    settings: Settings

    @property
    def opening_segments(self) -> list[OpeningSegment]:
        """The segments that were there before the first event."""
        return self.opening.segments

    @property
    def opening_count(self) -> int:
        """How many of the placements are older than the recording."""
        return len(self.opening.allocations)

    @property
    def opening_reserved(self) -> int:
        """Bytes reserved before the first event."""
        return sum(segment.size for segment in self.opening_segments)

    @property
    def first_mismatch(self) -> Mismatch | None:
        """The first disagreement, if there is one."""
        return self.mismatches[0] if self.mismatches else None

    @property
    def inexact_count(self) -> int:
        """How many recorded allocations got another address than the allocator would have chosen."""
        return self.placements.is_exact.count(False)

    @property
    def difference_count(self) -> int:
        """Disagreements on the way and at the end."""
        return self.mismatch_count + self.final_difference_count

    @property
    def is_exact(self) -> bool:
        """True where every decision and every block at the end is the recorded one."""
        return not self.difference_count

    @property
    def verdict(self) -> str:
        """Say in a sentence how far the replay agrees with the recording."""
        count = len(self.placements) - self.opening_count
        if self.is_exact:
            told = f"exact: all {count:,} addresses, every segment event and every block at the end agree"
        elif self.first_mismatch is None:
            told = f"all {count:,} addresses agree, but {self.final_difference_count:,} blocks at the end do not"
            told += f": {self.final_differences[0]}"
        else:
            first = self.first_mismatch
            where = "the opening state" if first.event_ix is None else f"event {first.event_ix:,}"
            told = f"{self.mismatch_count:,} disagreements, the first at {where}: {first.reason}; "
            told += f"{self.inexact_count:,} of {count:,} addresses differ, "
            told += f"and {self.final_difference_count:,} blocks at the end"
        if self.unknown_held_count:
            told += f"; {self.unknown_held_count:,} block sizes are not known and count as requested"
        return told
