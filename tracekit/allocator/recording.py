"""What a recording of one device says, as plain values: its events and its final segments.

The shapes in which the allocator's room is given its input; where they come from is not known here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracekit.allocator.settings import PoolId


@dataclass(frozen=True, slots=True)
class Events:
    """The events of one device as parallel sequences; the position in them is the event's index.

    Attributes:
        action: the word of the event; whatever is not about memory is passed over and counted.
        address: where; a snapshot's `addr`.
        size: bytes; what `size` means depends on the action.
        stream: the stream's number.
        pool: the pool of each event, where the recording says it (torch 2.12 and later).
        stack: anything that is equal for events with the same stack; tells a release that a request caused
            from an
            empty_cache of the program, where given.
    """

    action: Sequence[str | None]
    address: Sequence[int | None]
    size: Sequence[int | None]
    stream: Sequence[int | None]
    pool: Sequence[PoolId | None] | None = None
    stack: Sequence[object] | None = None

    def __len__(self) -> int:
        return len(self.action)

    def since(self, begin: int) -> Events:
        """Take the events from one on, as a ring that lost its beginning holds them."""
        return Events(
            self.action[begin:],
            self.address[begin:],
            self.size[begin:],
            self.stream[begin:],
            None if self.pool is None else self.pool[begin:],
            None if self.stack is None else self.stack[begin:],
        )


@dataclass(frozen=True, slots=True)
class FinalBlock:
    """A block at the end of a recording; `state` is one of the snapshot's words."""

    address: int
    size: int
    requested_size: int | None
    state: str


@dataclass(frozen=True, slots=True)
class FinalSegment:
    """A segment at the end of a recording, or one mapped run of an expandable segment."""

    address: int
    total_size: int
    stream: int | None
    pool: PoolId | None
    is_small: bool
    is_expandable: bool
    blocks: Sequence[FinalBlock] = field(default_factory=list[FinalBlock])
