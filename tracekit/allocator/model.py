"""The caching allocator: which block each request gets, and what the driver is asked for.

One device, one lock, no time. Recordings, files and tables are strangers here. The rules follow
c10/cuda/CUDACachingAllocator.cpp as it was in torch 2.11 (the version of the recordings they were checked
against); each says which function it was learned from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tracekit.allocator.blocks import (
    ADDRESS_BITS,
    ALLOCATED,
    FREE,
    PENDING,
    UNMAPPED,
    Block,
    FreeList,
    Pool,
    Segment,
)
from tracekit.allocator.settings import DEFAULT_POOL, MIN_BLOCK, SMALL_SIZE, PoolId, Settings


class Step(NamedTuple):
    """Something the allocator did to make room, in the words and with the fields of a recording's event."""

    action: str
    address: int
    size: int
    stream: int


class Driver(Protocol):
    """Where segments come from: the device, or whoever stands in for it."""

    def reserve(self, size: int, home: FreeList) -> int | None:
        """Give the base address of a new segment, or None where the driver refuses (cudaMalloc)."""
        ...

    def reserve_range(self, home: FreeList) -> tuple[int, int]:
        """Give base and size of a new range of addresses for an expandable segment (cuMemAddressReserve)."""
        ...

    def map(self, address: int, size: int) -> bool:
        """Put memory behind whole pages of such a range, or say that there is none left (cuMemMap)."""
        ...

    def release(self, address: int, size: int) -> None:
        """Take back a segment (cudaFree) or whole pages of a range (cuMemUnmap)."""
        ...


@dataclass(slots=True)
class OutOfMemoryError(Exception):
    """No block for a request, even after everything idle was given back; nothing else is lost.

    Attributes:
        requested: bytes that were asked for.
        rounded: the same as the allocator rounds them.
        segment_size: bytes that the driver was asked for.
        allocated: bytes in allocated blocks then.
        active: bytes in allocated and pending blocks then.
        reserved: bytes in segments then, after the release.
    """

    requested: int
    rounded: int
    segment_size: int
    allocated: int
    active: int
    reserved: int

    def __str__(self) -> str:
        return f"no {self.segment_size} bytes for a request of {self.requested}, {self.reserved} are reserved"


class Allocator:
    """The allocator of one device.

    Attributes:
        settings: how it is set.
        driver: where segments come from.
        live: allocated and pending blocks by address.
        segments: all segments by address.
        bases: their addresses, in order.
        pools: the small and the large pool of each pool id.
        allocated: bytes in allocated blocks.
        active: bytes in allocated and pending blocks.
        requested: bytes the program asked for in allocated and pending blocks.
        reserved: bytes in segments and mapped pages.
        retries: how often everything idle was released because the driver refused.
        steps: what was done to make room, oldest first; whoever reads it clears it.
        is_capturing: True during a CUDA graph capture, when a request never releases the cache.
    """

    __slots__ = (
        "_counts_searches",
        "_is_plain",
        "_split_floor",
        "active",
        "allocated",
        "bases",
        "driver",
        "is_capturing",
        "live",
        "pools",
        "requested",
        "reserved",
        "retries",
        "segments",
        "settings",
        "steps",
    )

    def __init__(self, settings: Settings, driver: Driver) -> None:
        self.settings = settings
        self.driver = driver
        self.live: dict[int, Block] = {}
        self.segments: dict[int, Segment] = {}
        self.bases: list[int] = []
        self.pools: dict[tuple[PoolId, bool], Pool] = {}
        self.allocated = 0
        self.active = 0
        self.requested = 0
        self.reserved = 0
        self.retries = 0
        self.steps: list[Step] = []
        self.is_capturing = False
        self._is_plain = settings.max_split_size is None and not settings.expandable_segments
        self._split_floor = MIN_BLOCK if settings.expandable_segments else SMALL_SIZE + 1
        self._counts_searches = settings.garbage_collection_threshold > 0

    # What a program does

    def malloc(self, requested: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> Block:
        """Give a block to a request.

        Learned from c10/cuda/CUDACachingAllocator.cpp, malloc: first the cache, then the driver.

        Raises:
            OutOfMemoryError: where neither has anything.
        """
        rounded = self.settings.round_request(requested)
        home = self.home(pool, rounded <= SMALL_SIZE, stream)
        block = self.best_fit(home, rounded)
        if block is None:
            block = self.obtain(home, rounded)
        if block is None:
            size = self.settings.segment_size(rounded)
            raise OutOfMemoryError(requested, rounded, size, self.allocated, self.active, self.reserved)
        self.hand_out(block, requested, rounded)
        return block

    def free(self, block: Block) -> None:
        """Take a block back that only its own stream has used."""
        self.request_free(block)
        self.complete_free(block)

    def request_free(self, block: Block) -> None:
        """Note that the program dropped a block; it stays out of the pool until `complete_free`.

        Learned from c10/cuda/CUDACachingAllocator.cpp, free: allocated_bytes falls here, the other two do
        not.
        """
        block.state = PENDING
        self.allocated -= block.counted

    def complete_free(self, block: Block) -> None:
        """Put a dropped block back into its pool, merged with the free blocks beside it.

        Learned from c10/cuda/CUDACachingAllocator.cpp, free_block and try_merge_blocks: below first, then
        above; a pending neighbour does not merge; a run of unmapped addresses merges only with another.
        """
        del self.live[block.address]
        self.active -= block.counted
        self.requested -= block.requested
        self.shelve(block)

    def empty_cache(self) -> None:
        """Give everything idle back to the driver, as torch.cuda.empty_cache() does."""
        self.release_cached_blocks()

    # Step 1: a block from the cache

    def home(self, pool_id: PoolId, is_small: bool, stream: int) -> FreeList:
        """Find the free list that serves a request (get_pool, and the stream in the order of free blocks)."""
        pool = self.pools.get((pool_id, is_small))
        if pool is None:
            never_splits = pool_id in self.settings.no_split_pools
            pool = self.pools[pool_id, is_small] = Pool(
                pool_id, is_small, pool_id == DEFAULT_POOL, never_splits
            )
        home = pool.lists.get(stream)
        if home is None:
            home = pool.lists[stream] = FreeList(pool, stream)
        return home

    def find(self, home: FreeList, rounded: int) -> Block | None:
        """Tell which block `best_fit` would take, and leave it where it is."""
        position = bisect_left(home.keys, rounded << ADDRESS_BITS)
        found = self._pick(home, position, rounded) if position < len(home.keys) else None
        return None if found is None else home.blocks[found]

    def best_fit(self, home: FreeList, rounded: int) -> Block | None:
        """Take the smallest free block that holds a request, the lowest among equals, off its list.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block: one look, no second candidate; blocks
        of other streams and other pools are not seen.
        """
        if self._counts_searches:
            home.pool.searches += 1
        keys = home.keys
        position = bisect_left(keys, rounded << ADDRESS_BITS)
        if position == len(keys):
            return None
        if not self._is_plain:
            found = self._pick(home, position, rounded)
            if found is None:
                return None
            position = found
        del keys[position]
        return home.blocks.pop(position)

    def _pick(self, home: FreeList, position: int, rounded: int) -> int | None:
        """Apply the rules of expandable segments and of max_split_size to the best fit."""
        found = self._prefer_full_segments(home, position)
        if found is None or self._is_wasteful(home.blocks[found].size, rounded):
            return None
        return found

    def _prefer_full_segments(self, home: FreeList, position: int) -> int | None:
        """Move on from a block that could still grow to one that would leave less room behind."""
        return position if home else None

    def _is_wasteful(self, size: int, rounded: int) -> bool:
        """Tell whether a cached block is too big for a request.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_free_block; gpt2_b8_maxsplit shows it. The search
        ends here: the next larger block would be refused for the same reason.
        """
        limit = self.settings.max_split_size
        if limit is None:
            return False
        if rounded < limit:
            return size >= limit
        return size >= rounded + self.settings.max_non_split_rounding

    # Step 2 to 7: a block from the driver

    def obtain(self, home: FreeList, rounded: int) -> Block | None:
        """Get a block that no pool has: ask the driver, and release what is idle where it refuses.

        Learned from c10/cuda/CUDACachingAllocator.cpp, malloc. After the last release the pool is not
        searched again, so a request can fail although that release just put a fitting block there (pytorch
        issue 189504).
        """
        size = self.settings.segment_size(rounded)
        self.collect_garbage()
        block = self.grow(home, rounded, size)
        if block is None and self.release_available_cached_blocks(home, rounded):
            block = self.grow(home, rounded, size)
        if block is None and not self.is_capturing:
            self.release_cached_blocks()
            self.retries += 1
            block = self.grow(home, rounded, size)
        return block

    def grow(self, home: FreeList, rounded: int, size: int) -> Block | None:  # noqa: ARG002
        """Ask the driver for a segment, unless it would go beyond the memory limit.

        Learned from c10/cuda/CUDACachingAllocator.cpp, alloc_block: the limit is compared with the segment's
        size, and it counts private pools too.
        """
        limit = self.settings.memory_limit
        if limit is not None and self.reserved + size > limit:
            return None
        address = self.driver.reserve(size, home)
        if address is None:
            return None
        self.steps.append(Step("segment_alloc", address, size, home.stream))
        return self.add_segment(address, size, home).first

    def add_segment(self, address: int, size: int, home: FreeList) -> Segment:
        """Enter a segment; its one block is free, but not on any list yet."""
        segment = self.segments[address] = Segment(address, size, home)
        insort(self.bases, address)
        self.reserved += size
        return segment

    def remove_segment(self, segment: Segment) -> None:
        """Strike a segment out; its blocks are on no list any more."""
        del self.segments[segment.address]
        del self.bases[bisect_left(self.bases, segment.address)]
        self.reserved -= segment.size

    def segment_at(self, address: int) -> Segment | None:
        """Find the segment that an address lies in."""
        position = bisect_right(self.bases, address) - 1
        if position < 0:
            return None
        segment = self.segments[self.bases[position]]
        return segment if address < segment.address + segment.size else None

    def collect_garbage(self) -> None:
        """Release old cached segments before asking the driver, where that is switched on."""

    def release_available_cached_blocks(self, home: FreeList, rounded: int) -> bool:
        """Release just enough oversize blocks for a request."""
        return bool(home) and rounded < 0

    def release_cached_blocks(self) -> None:
        """Give every idle segment back to the driver.

        Learned from c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks: pending frees are waited for
        first; then the large pool, then the small one, each by stream, size and address. Private pools follow
        where nothing uses them any more.
        """
        self.synchronize()
        for block in self.idle_segments():
            self.release_segment(block)

    def idle_segments(self) -> list[Block]:
        """List what release_cached_blocks would give back, in its order (release_blocks)."""
        blocks = [block for pool in self.releasable_pools() for block in pool.ordered()]
        return [block for block in blocks if block.prev is None and block.next is None]

    def releasable_pools(self) -> list[Pool]:
        """List the pools whose idle segments may go, in torch's order."""
        ids = [DEFAULT_POOL, *sorted({pool.id for pool in self.pools.values() if pool.id != DEFAULT_POOL})]
        order = [(pool_id, is_small) for pool_id in ids for is_small in _release_order(pool_id)]
        return [self.pools[key] for key in order if key in self.pools and self.pools[key].is_freeable]

    def release_segment(self, block: Block) -> None:
        """Give one segment back, whose only block is free (release_block)."""
        segment = block.segment
        self.driver.release(segment.address, segment.size)
        segment.home.remove(block)
        self.remove_segment(segment)
        self.steps.append(Step("segment_free", segment.address, segment.size, segment.home.stream))

    def synchronize(self) -> None:
        """Wait for other streams: complete every pending free (synchronize_and_free_events)."""
        for block in [block for block in self.live.values() if block.state == PENDING]:
            self.steps.append(
                Step("free_completed", block.address, block.requested, block.segment.home.stream)
            )
            self.complete_free(block)

    # Blocks

    def hand_out(self, block: Block, requested: int, rounded: int) -> None:
        """Give a block to a request, splitting off what it does not need.

        Learned from c10/cuda/CUDACachingAllocator.cpp, should_split and alloc_found_block. The request gets
        the low part. In the small pool a rest of 512 bytes is worth a block; in the large pool only more than
        1 MiB is, so that a block can carry up to 1 MiB of slack.
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
        """Tell whether the rest of a block is worth a block of its own (should_split)."""
        if pool.never_splits:
            return False
        if pool.is_small or self.settings.expandable_segments:
            return rest >= MIN_BLOCK
        limit = self.settings.max_split_size
        return rest > SMALL_SIZE and (limit is None or rounded < limit)

    def split(self, block: Block, size: int) -> None:
        """Cut a block that is on no list at `size`; the upper part becomes a free block."""
        upper = Block(block.address + size, block.size - size, block.segment)
        block.size = size
        following = upper.next = block.next
        if following is not None:
            following.prev = upper
        upper.prev = block
        block.next = upper
        block.segment.home.add(upper)

    def shelve(self, block: Block) -> None:
        """Put a block that is on no list among the free ones, merged with the free blocks beside it."""
        home = block.segment.home
        lower = block.prev
        if lower is not None and lower.state == FREE:
            home.remove(lower)
            block.address = lower.address
            block.size += lower.size
            before = block.prev = lower.prev
            if before is None:
                block.segment.first = block
            else:
                before.next = block
        upper = block.next
        if upper is not None and upper.state == FREE:
            home.remove(upper)
            block.size += upper.size
            after = block.next = upper.next
            if after is not None:
                after.prev = block
        block.state = FREE
        home.add(block)


def _release_order(pool_id: PoolId) -> tuple[bool, bool]:
    """Large before small in the device's own pools, small before large in a private one."""
    return (False, True) if pool_id == DEFAULT_POOL else (True, False)


__all__ = ["ALLOCATED", "FREE", "PENDING", "UNMAPPED", "Allocator", "Driver", "OutOfMemoryError", "Step"]
