"""Blocks, the segments they tile and the ordered lists of free ones: the allocator's furniture.

No rule about which block to choose or when to ask the driver lives here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from tracekit.allocator.settings import PoolId

FREE = 0
ALLOCATED = 1
PENDING = 2
UNMAPPED = 3
"""A block's state. Pending: freed by the program, still in use on another stream. Unmapped: no memory behind
it.
"""

STATE_NAMES = {FREE: "inactive", ALLOCATED: "active_allocated", PENDING: "active_pending_free"}
"""The words of a snapshot's blocks."""

SIZE_SHIFT = 96
AGE_SHIFT = 64
"""A free block's key is its size, its age where that counts, and its address, in one number."""


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """A run of bytes inside a segment; its neighbours in that segment are `prev` and `next`.

    Attributes:
        address: where it begins.
        size: its bytes, rounded and with slack.
        segment: the segment it lies in.
        state: FREE, ALLOCATED, PENDING or UNMAPPED.
        requested: what the program asked for, while allocated or pending.
        counted: the bytes that statistics carry for it; its size, unless the size is only a guess.
        ticket: a number the caller gave it, such as the position of its placement.
        shelved_at: the pool's count of searches when it was last put among the free blocks.
        age: a number that grows with every new segment, or with every new block, as the order of ties asks.
        prev: the block just below in the same segment.
        next: the block just above in the same segment.
    """

    address: int
    size: int
    segment: Segment
    state: int = FREE
    requested: int = 0
    counted: int = 0
    ticket: int = -1
    shelved_at: int = 0
    age: int = 0
    prev: Block | None = None
    next: Block | None = None

    def __repr__(self) -> str:
        return f"Block({self.address:#x}, {self.size}, {STATE_NAMES.get(self.state, 'unmapped')})"

    @property
    def is_whole(self) -> bool:
        """True where it is the only block of its segment."""
        return self.prev is None and self.next is None


@dataclass(slots=True, eq=False, repr=False)
class Segment:
    """What one request to the driver returned, or the address range of an expandable segment.

    Attributes:
        address: where it begins.
        size: its bytes; of an expandable segment, the bytes of address space.
        home: where its free blocks wait.
        is_expandable: True where memory is mapped into it page by page.
        first: its lowest block.
    """

    address: int
    size: int
    home: FreeList
    is_expandable: bool = False
    first: Block = field(init=False)

    def __post_init__(self) -> None:
        self.first = Block(self.address, self.size, self)

    def __iter__(self) -> Iterator[Block]:
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.next

    def __repr__(self) -> str:
        return f"Segment({self.address:#x}, {self.size})"


@dataclass(slots=True, eq=False)
class Pool:
    """The small or the large pool of the device or of one private pool; it has one free list a stream.

    Attributes:
        id: (0, 0) for the device's own pools.
        is_small: True for requests up to 1 MiB.
        is_freeable: True while its idle segments may go back to the driver.
        never_splits: True for a private pool made with no_split.
        searches: how often a free block was looked for, counted only while garbage collection is on.
        lists: the free lists by stream.
    """

    id: PoolId
    is_small: bool
    is_freeable: bool
    never_splits: bool = False
    searches: int = 0
    lists: dict[int, FreeList] = field(default_factory=dict[int, "FreeList"])

    def ordered(self) -> list[Block]:
        """List every free block in the order of torch's set: by stream, size and place."""
        return [block for stream in sorted(self.lists) for block in self.lists[stream].blocks]


@dataclass(slots=True, eq=False, repr=False)
class FreeList:
    """The free blocks of one pool on one stream, smallest first and lowest first among equals.

    `keys` and `blocks` run in parallel, so that one bisection finds the best fit with its tie-break.
    `unmapped` are the ranges of expandable segments without memory, by address.
    """

    pool: Pool
    stream: int
    keys: list[int] = field(default_factory=list[int])
    blocks: list[Block] = field(default_factory=list[Block])
    unmapped: list[Block] = field(default_factory=list[Block])

    def add(self, block: Block) -> None:
        """Put a free block on the shelf."""
        keys = self.keys
        key = block.size << SIZE_SHIFT | block.address
        position = bisect_left(keys, key)
        keys.insert(position, key)
        self.blocks.insert(position, block)
        block.shelved_at = self.pool.searches

    def remove(self, block: Block) -> None:
        """Take a free block off the shelf."""
        keys = self.keys
        position = bisect_left(keys, block.size << SIZE_SHIFT | block.address)
        del keys[position]
        del self.blocks[position]

    def add_unmapped(self, block: Block) -> None:
        """Note a range of addresses without memory."""
        self.unmapped.insert(bisect_left(self.unmapped, block.address, key=_address), block)

    def remove_unmapped(self, block: Block) -> None:
        """Forget a range of addresses without memory."""
        del self.unmapped[bisect_left(self.unmapped, block.address, key=_address)]


class AgedFreeList(FreeList):
    """Free blocks, smallest first, and among equals the oldest first."""

    __slots__ = ()

    def add(self, block: Block) -> None:
        """Put a free block on the shelf."""
        key = self._key(block)
        position = bisect_left(self.keys, key)
        self.keys.insert(position, key)
        self.blocks.insert(position, block)
        block.shelved_at = self.pool.searches

    def remove(self, block: Block) -> None:
        """Take a free block off the shelf."""
        position = bisect_left(self.keys, self._key(block))
        del self.keys[position]
        del self.blocks[position]

    def _key(self, block: Block) -> int:
        return block.size << SIZE_SHIFT | block.age << AGE_SHIFT | block.address


def _address(block: Block) -> int:
    return block.address
