"""The cached blocks of one device: which one a request gets, how it is split, how a freed one merges.

Nothing here asks the driver for memory or gives it back; that is `tracekit.allocator.model`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort

from tracekit.allocator.blocks import (
    ALLOCATED,
    FREE,
    PENDING,
    SIZE_SHIFT,
    UNMAPPED,
    AgedFreeList,
    Block,
    FreeList,
    Pool,
    Segment,
)
from tracekit.allocator.settings import DEFAULT_POOL, MIN_BLOCK, SMALL_SIZE, PoolId, Settings, TieOrder


class BlockCache:
    """Segments, their blocks, and the statistics that torch.cuda.memory_stats keeps of them.

    Attributes:
        settings: how the allocator is set.
        live: allocated and pending blocks by address.
        segments: all segments by address.
        bases: their addresses, in order.
        pools: the small and the large pool of each pool id.
        allocated: bytes in allocated blocks.
        active: bytes in allocated and pending blocks.
        requested: bytes the program asked for in allocated and pending blocks.
        reserved: bytes in segments and mapped pages.
    """

    __slots__ = (
        "active",
        "ages_blocks",
        "allocated",
        "bases",
        "counts_searches",
        "is_plain",
        "live",
        "next_age",
        "pools",
        "requested",
        "reserved",
        "segments",
        "settings",
    )

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.live: dict[int, Block] = {}
        self.segments: dict[int, Segment] = {}
        self.bases: list[int] = []
        self.pools: dict[tuple[PoolId, bool], Pool] = {}
        self.allocated: int = 0
        self.active: int = 0
        self.requested: int = 0
        self.reserved: int = 0
        self.next_age: int = 0
        self.ages_blocks = settings.tie_order is TieOrder.BLOCK_AGE
        self.is_plain = settings.max_split_size is None and not settings.expandable_segments
        self.counts_searches = settings.garbage_collection_threshold > 0 and settings.memory_limit is not None

    # Finding a block

    def home(self, pool_id: PoolId, is_small: bool, stream: int) -> FreeList:
        """Find the free list that serves a request.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_pool and BlockComparator: two pools for the device
        and two for each private pool; within a pool a request only ever sees the blocks of its own stream.
        """
        pool = self.pools.get((pool_id, is_small))
        if pool is None:
            never_splits = pool_id in self.settings.no_split_pools
            pool = self.pools[pool_id, is_small] = Pool(pool_id, is_small, pool_id == DEFAULT_POOL, never_splits)
        home = pool.lists.get(stream)
        if home is None:
            kind = FreeList if self.settings.tie_order is TieOrder.ADDRESS else AgedFreeList
            home = pool.lists[stream] = kind(pool, stream)
        return home

    def best_fit(self, home: FreeList, rounded: int) -> Block | None:
        """Take the smallest free block that holds a request, the lowest among equals, off its list.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block. There is one candidate: where a rule
        refuses it, the search is over.
        """
        if self.counts_searches:
            home.pool.searches += 1
        keys = home.keys
        position = bisect_left(keys, rounded << SIZE_SHIFT)
        if position == len(keys):
            return None
        if not self.is_plain:
            picked = self._pick(home, position, rounded)
            if picked is None:
                return None
            position = picked
        del keys[position]
        return home.blocks.pop(position)

    def find(self, home: FreeList, rounded: int) -> Block | None:
        """Tell which block `best_fit` would take, and leave it where it is."""
        position = bisect_left(home.keys, rounded << SIZE_SHIFT)
        picked = self._pick(home, position, rounded) if position < len(home.keys) else None
        return None if picked is None else home.blocks[picked]

    def _pick(self, home: FreeList, position: int, rounded: int) -> int | None:
        """Apply the rules of expandable segments and of max_split_size to the best fit at `position`."""
        if not home.blocks[position].segment.is_expandable:
            picked = position
        elif self.is_expandable(home.pool):
            picked = _prefer_less_room(home.blocks, position)
        else:
            picked = _skip_expandable(home.blocks, position)
        if picked is None or self._is_wasteful(home.blocks[picked].size, rounded):
            return None
        return picked

    def _is_wasteful(self, size: int, rounded: int) -> bool:
        """Tell whether a cached block is too big for a request, where max_split_size is set.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block; seen in gpt2_b8_maxsplit. An oversize
        block serves no smaller request, and a larger one only within max_non_split_rounding.
        """
        limit = self.settings.max_split_size
        if limit is None:
            return False
        if rounded < limit:
            return size >= limit
        return size >= rounded + self.settings.max_non_split_rounding

    def is_expandable(self, pool: Pool) -> bool:
        """Tell whether requests of a pool are served by expandable segments (malloc, active_user_pool)."""
        return self.settings.expandable_segments and pool.id not in self.settings.fixed_pools

    # Handing out and taking back

    def hand_out(self, block: Block, requested: int, rounded: int) -> None:
        """Give a block that is on no list to a request, and split off what it does not need.

        Learned from c10/cuda/CUDACachingAllocator.cpp, alloc_found_block: the request gets the low part.
        """
        rest = block.size - rounded
        if rest and self.should_split(block.segment.home.pool, rest, rounded):
            self.split(block, rounded)
        block.state = ALLOCATED
        block.requested = requested
        block.counted = size = block.size
        self.live[block.address] = block
        self.allocated += size
        self.active += size
        self.requested += requested

    def should_split(self, pool: Pool, rest: int, rounded: int) -> bool:
        """Tell whether the rest of a block is worth a block of its own.

        Learned from c10/cuda/CUDACachingAllocator.cpp, should_split. In the small pool and with expandable
        segments 512 bytes are; in the large pool only more than 1 MiB is, so a block can carry up to 1 MiB of
        slack.
        """
        if pool.never_splits:
            return False
        if pool.is_small or self.is_expandable(pool):
            return rest >= MIN_BLOCK
        limit = self.settings.max_split_size
        return rest > SMALL_SIZE and (limit is None or rounded < limit)

    def request_free(self, block: Block) -> None:
        """Note that the program dropped a block; it stays out of the pool until `complete_free`.

        Learned from c10/cuda/CUDACachingAllocator.cpp, free; seen in small_streams: allocated_bytes falls
        here, the others do not.
        """
        block.state = PENDING
        self.allocated -= block.counted

    def complete_free(self, block: Block) -> None:
        """Put a dropped block back into its pool.

        Learned from c10/cuda/CUDACachingAllocator.cpp, free_block: active_bytes and requested_bytes fall
        here.
        """
        del self.live[block.address]
        self.active -= block.counted
        self.requested -= block.requested
        self.shelve(block)

    # Blocks

    def split(self, block: Block, size: int) -> None:
        """Cut a block that is on no list at `size`; the upper part becomes a free block."""
        upper = Block(block.address + size, block.size - size, block.segment, age=block.age)
        block.size = size
        if self.ages_blocks:
            block.age = self.new_age()
        following = upper.next = block.next
        if following is not None:
            following.prev = upper
        upper.prev = block
        block.next = upper
        block.segment.home.add(upper)

    def shelve(self, block: Block) -> None:
        """Put a block that is on no list among the free ones, merged with the free blocks beside it.

        Learned from c10/cuda/CUDACachingAllocator.cpp, try_merge_blocks: never beyond the segment; a pending
        neighbour and one without memory do not merge.
        """
        home = block.segment.home
        lower = block.prev
        if lower is not None and lower.state == FREE:
            home.remove(lower)
            _absorb_lower(block, lower)
        upper = block.next
        if upper is not None and upper.state == FREE:
            home.remove(upper)
            _absorb_upper(block, upper)
        block.state = FREE
        home.add(block)

    def shelve_unmapped(self, block: Block) -> None:
        """Put a range that lost its memory among the unmapped ones, merged with those beside it."""
        home = block.segment.home
        lower = block.prev
        if lower is not None and lower.state == UNMAPPED:
            home.remove_unmapped(lower)
            _absorb_lower(block, lower)
        upper = block.next
        if upper is not None and upper.state == UNMAPPED:
            home.remove_unmapped(upper)
            _absorb_upper(block, upper)
        block.state = UNMAPPED
        home.add_unmapped(block)

    # Segments

    def add_segment(self, address: int, size: int, home: FreeList, is_expandable: bool = False) -> Segment:
        """Enter a segment; its one block is on no list yet. An expandable one has no memory so far."""
        segment = self.segments[address] = Segment(address, size, home, is_expandable)
        segment.first.age = self.new_age()
        insort(self.bases, address)
        if is_expandable:
            segment.first.state = UNMAPPED
            self.is_plain = False
        else:
            self.reserved += size
        return segment

    def new_age(self) -> int:
        """Give the next age."""
        self.next_age += 1
        return self.next_age

    def piece_of(self, block: Block, address: int, size: int, state: int) -> Block:
        """Make a new block beside another in the same segment, not linked yet."""
        age = self.new_age() if self.ages_blocks else block.age
        return Block(address, size, block.segment, state, age=age)

    def remove_segment(self, segment: Segment) -> None:
        """Strike a segment out, whose blocks are on no list any more."""
        del self.segments[segment.address]
        del self.bases[bisect_left(self.bases, segment.address)]
        if not segment.is_expandable:
            self.reserved -= segment.size

    def segment_at(self, address: int) -> Segment | None:
        """Find the segment that an address lies in."""
        position = bisect_right(self.bases, address) - 1
        if position < 0:
            return None
        segment = self.segments[self.bases[position]]
        return segment if address < segment.address + segment.size else None

    def pending(self) -> list[Block]:
        """List the blocks that wait for another stream."""
        return [block for block in self.live.values() if block.state == PENDING]


def _prefer_less_room(blocks: list[Block], position: int) -> int:
    """Move on from a block that could grow far to the next that could grow less.

    Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block: a block of an expandable segment counts as
    large as it could become, with the unmapped range behind it.
    """
    last = len(blocks) - 1
    while (
        position < last
        and blocks[position].segment.is_expandable
        and _room(blocks[position + 1]) < _room(blocks[position])
    ):
        position += 1
    return position


def _room(block: Block) -> int:
    above = block.next
    return block.size + (above.size if above is not None and above.state == UNMAPPED else 0)


def _skip_expandable(blocks: list[Block], position: int) -> int | None:
    """Move on to a block that is not in an expandable segment, for a request that may have none of those.

    Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block.
    """
    while position < len(blocks) and blocks[position].segment.is_expandable:
        position += 1
    return position if position < len(blocks) else None


def _absorb_lower(block: Block, lower: Block) -> None:
    block.address = lower.address
    block.size += lower.size
    before = block.prev = lower.prev
    if before is None:
        block.segment.first = block
    else:
        before.next = block


def _absorb_upper(block: Block, upper: Block) -> None:
    block.size += upper.size
    after = block.next = upper.next
    if after is not None:
        after.prev = block
