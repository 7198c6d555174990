"""The caching allocator of one device: a program's requests go in, blocks and calls to the driver come out.

One lock, no time, no recordings and no files. The rules follow c10/cuda/CUDACachingAllocator.cpp; each says
which function it was learned from, and where a recording shows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tracekit.allocator.blocks import FREE, UNMAPPED, Block, FreeList, Pool, Segment
from tracekit.allocator.cache import BlockCache
from tracekit.allocator.settings import DEFAULT_POOL, SMALL_SIZE, PoolId, Settings


class Step(NamedTuple):
    """Something the allocator did to make room, in the words and with the fields of a recording's event."""

    action: str
    address: int
    size: int
    stream: int
    pool: PoolId


class Driver(Protocol):
    """Where memory comes from: the device, or whoever stands in for it."""

    def reserve(self, size: int, home: FreeList) -> int | None:
        """Give the base address of a new segment, or None where there is no memory (cudaMalloc)."""
        ...

    def reserve_range(self, home: FreeList) -> tuple[int, int]:
        """Give base and size of a range of addresses for an expandable segment (cuMemAddressReserve)."""
        ...

    def map(self, address: int, size: int) -> bool:
        """Put memory behind pages of such a range, or say that there is none (cuMemCreate, cuMemMap)."""
        ...

    def release(self, address: int, size: int) -> None:
        """Take back a segment (cudaFree) or pages (cuMemUnmap)."""
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
        reserved: bytes reserved then, after the release.
    """

    requested: int
    rounded: int
    segment_size: int
    allocated: int
    active: int
    reserved: int

    def __str__(self) -> str:
        return f"no {self.segment_size} bytes for a request of {self.requested}, {self.reserved} are reserved"


class Allocator(BlockCache):
    """The allocator of one device.

    Attributes:
        driver: where memory comes from.
        retries: how often everything idle was released because the driver refused.
        steps: what was done to make room, oldest first; whoever reads it clears it.
        is_capturing: True during a CUDA graph capture, when a request releases nothing.
    """

    __slots__ = ("driver", "is_capturing", "retries", "steps")

    def __init__(self, settings: Settings, driver: Driver) -> None:
        super().__init__(settings)
        self.driver = driver
        self.retries = 0
        self.steps: list[Step] = []
        self.is_capturing = False

    # What a program does

    def malloc(self, requested: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> Block:
        """Give a block to a request: from the cache, or else from the driver.

        Learned from c10/cuda/CUDACachingAllocator.cpp, malloc.

        Raises:
            OutOfMemoryError: where neither has one.
        """
        rounded = self.settings.round_request(requested)
        home = self.home(pool, rounded <= SMALL_SIZE, stream)
        block = self.best_fit(home, rounded) or self.obtain(home, rounded)
        if block is None:
            size = self.settings.segment_size(rounded)
            raise OutOfMemoryError(requested, rounded, size, self.allocated, self.active, self.reserved)
        self.hand_out(block, requested, rounded)
        return block

    def free(self, block: Block) -> None:
        """Take back a block that only its own stream has used."""
        self.request_free(block)
        self.complete_free(block)

    def empty_cache(self) -> None:
        """Give everything idle back to the driver, as torch.cuda.empty_cache() does."""
        self.release_cached_blocks()

    def note_step(self, action: str, address: int, size: int, home: FreeList) -> None:
        """Write down what was done to make room."""
        self.steps.append(Step(action, address, size, home.stream, home.pool.id))

    # A block that no pool has

    def obtain(self, home: FreeList, rounded: int) -> Block | None:
        """Ask the driver, and release what is idle where it refuses.

        Learned from c10/cuda/CUDACachingAllocator.cpp, malloc. After the last release the pool is not
        searched again, so a request can fail although that very release put a fitting block there (pytorch
        issue 189504).
        """
        size = self.settings.segment_size(rounded)
        self.collect_garbage()
        block = self.grow(home, rounded, size) or self.borrow(home, rounded)
        if block is None and not self.is_capturing and self.release_available_cached_blocks(home, rounded):
            block = self.grow(home, rounded, size)
        if block is None and not self.is_capturing:
            self.release_cached_blocks()
            self.retries += 1
            block = self.grow(home, rounded, size)
        return block

    def grow(self, home: FreeList, rounded: int, size: int) -> Block | None:
        """Ask the driver for `size` bytes, unless that would go beyond the memory limit.

        Learned from c10/cuda/CUDACachingAllocator.cpp, alloc_block. The limit is compared with the size of a
        segment even where an expandable one then maps only what is missing; private pools count too.
        """
        limit = self.settings.memory_limit
        if limit is not None and self.reserved + size > limit:
            return None
        if self.is_expandable(home.pool):
            return self.expand(home, rounded)
        address = self.driver.reserve(size, home)
        if address is None:
            return None
        self.note_step("segment_alloc", address, size, home)
        return self.add_segment(address, size, home).first

    def borrow(self, home: FreeList, rounded: int) -> Block | None:
        """Take a free block of a private pool that was made with use_on_oom.

        Learned from c10/cuda/CUDACachingAllocator.cpp, try_mempool_fallback: before anything is released,
        only for requests of the default pool, and only what lies there already.
        """
        if home.pool.id != DEFAULT_POOL:
            return None
        for pool_id in self.settings.overflow_pools:
            block = self.best_fit(self.home(pool_id, home.pool.is_small, home.stream), rounded)
            if block is not None:
                return block
        return None

    # Expandable segments

    def expand(self, home: FreeList, rounded: int) -> Block | None:
        """Map pages until a free block is large enough.

        Learned from c10/cuda/CUDACachingAllocator.cpp, try_allocate_expandable_block; seen in
        gpt2_b8_expandable. Where the driver runs out on the way, what was mapped stays.
        """
        block = self.find_room(home, rounded)
        if block.state == UNMAPPED and not self.map_pages(block, min(block.size, rounded)):
            return None
        while block.size < rounded:
            above = block.next
            if above is None or not self.map_pages(above, min(rounded - block.size, above.size)):
                return None
            block = above
        home.remove(block)
        return block

    def find_room(self, home: FreeList, rounded: int) -> Block:
        """Find the lowest place where free and unmapped addresses in a row hold a request.

        Learned from c10/cuda/CUDACachingAllocator.cpp, find_expandable_block: it begins at an unmapped range,
        or at the free block just below one. Where no range has room, a new one is reserved.
        """
        for unmapped in home.unmapped:
            below = unmapped.prev
            start = below if below is not None and below.state == FREE else unmapped
            if _holds(start, rounded):
                return start
        address, size = self.driver.reserve_range(home)
        segment = self.add_segment(address, size, home, is_expandable=True)
        home.add_unmapped(segment.first)
        return segment.first

    def map_pages(self, block: Block, size: int) -> bool:
        """Put memory behind the low end of an unmapped range, in whole pages.

        Learned from c10/cuda/CUDACachingAllocator.cpp, map_block and ExpandableSegment::map.
        """
        home = block.segment.home
        page = self.settings.page_size(home.pool.is_small)
        size = min((size + page - 1) // page * page, block.size)
        if not self.driver.map(block.address, size):
            return False
        self.note_step("segment_map", block.address, size, home)
        self.map_range(block, size)
        return True

    def map_range(self, block: Block, size: int) -> None:
        """Give memory to the low end of an unmapped range, and put it among the free blocks."""
        block.segment.home.remove_unmapped(block)
        if size < block.size:
            self.cut_unmapped(block, size)
        self.reserved += size
        self.shelve(block)

    def cut_unmapped(self, block: Block, size: int) -> None:
        """Cut a range that is on no list at `size`; the upper part is an unmapped range of its own."""
        rest = self.piece_of(block, block.address + size, block.size - size, UNMAPPED)
        rest.prev, rest.next = block, block.next
        if rest.next is not None:
            rest.next.prev = rest
        block.next = rest
        block.size = size
        block.segment.home.add_unmapped(rest)

    def unmap_pages(self, block: Block) -> None:
        """Give back the whole pages inside a free block; what is left at its ends stays free.

        Learned from c10/cuda/CUDACachingAllocator.cpp, unmap_block; seen in sweep_21_ws8_expandable. This is
        where two neighbours can both be free: a left-over below a later left-over, until one of them is used.
        """
        segment = block.segment
        home = segment.home
        page = self.settings.page_size(home.pool.is_small)
        begin = segment.address + (block.address - segment.address + page - 1) // page * page
        end = segment.address + (block.address + block.size - segment.address) // page * page
        if begin >= end:
            return
        self.driver.release(begin, end - begin)
        self.note_step("segment_unmap", begin, end - begin, home)
        self.unmap_range(block, begin, end)

    def unmap_range(self, block: Block, begin: int, end: int) -> None:
        """Take the memory away from a range inside a free block."""
        segment = block.segment
        home = segment.home
        home.remove(block)
        self._leave(block, block.address, begin - block.address)
        self._leave(block, end, block.address + block.size - end)
        block.address, block.size = begin, end - begin
        self.reserved -= block.size
        self.shelve_unmapped(block)
        if block.is_whole:
            home.remove_unmapped(block)
            self.remove_segment(segment)

    def _leave(self, block: Block, address: int, size: int) -> None:
        """Leave a free piece below or above the pages that go."""
        if size == 0:
            return
        piece = self.piece_of(block, address, size, FREE)
        if address == block.address:
            piece.prev, piece.next = block.prev, block
            if piece.prev is None:
                block.segment.first = piece
            else:
                piece.prev.next = piece
            block.prev = piece
        else:
            piece.prev, piece.next = block, block.next
            if piece.next is not None:
                piece.next.prev = piece
            block.next = piece
        block.segment.home.add(piece)

    # Giving memory back

    def collect_garbage(self) -> None:
        """Release old cached segments before the driver is asked, where that is switched on."""
        for block in self.old_segments(self.garbage_target()):
            self.release_segment(block)

    def garbage_target(self) -> int:
        """Tell how many bytes are reserved beyond garbage_collection_threshold of the memory limit.

        Learned from c10/cuda/CUDACachingAllocator.cpp, garbage_collect_cached_blocks: without a limit below
        the device's memory nothing is collected. Up to torch 2.4 a limit of the whole device counted as one; give
        it as memory_limit to replay such a run.
        """
        limit = self.settings.memory_limit
        threshold = self.settings.garbage_collection_threshold
        return 0 if limit is None or threshold <= 0 else self.reserved - int(threshold * limit)

    def old_segments(self, target: int) -> list[Block]:
        """Choose the idle segments of the large pool that were unused for longest, until `target` is reached.

        Learned from c10/cuda/CUDACachingAllocator.cpp, garbage_collect_cached_blocks; seen in gc_threshold. A
        block's age is the number of searches in its pool since it was freed, this one among them. Each round
        takes all that are at least as old as the mean, not just enough; private pools and expandable segments
        stay.
        """
        pool = self.pools.get((DEFAULT_POOL, False))
        if pool is None or target <= 0:
            return []
        idle: list[Block] = [block for block in pool.ordered() if block.is_whole]
        chosen: list[Block] = []
        reclaimed = 0
        while idle and reclaimed < target:
            mean = sum(pool.searches - block.shelved_at for block in idle) / len(idle)
            old = [block for block in idle if pool.searches - block.shelved_at >= mean]
            old = [block for block in old if not block.segment.is_expandable]
            if not old:
                break
            chosen += old
            reclaimed += sum(block.size for block in old)
            idle = [block for block in idle if block not in old]
        return chosen

    def release_available_cached_blocks(self, home: FreeList, rounded: int) -> bool:
        """Release just enough oversize blocks for a request, where max_split_size is set.

        Learned from c10/cuda/CUDACachingAllocator.cpp, release_available_cached_blocks.
        """
        released, is_enough = self.oversize_segments(home, rounded)
        for block in released:
            self.release_segment(block)
        return is_enough

    def oversize_segments(self, home: FreeList, rounded: int) -> tuple[list[Block], bool]:
        """Choose the one oversize block that is large enough, or else the largest ones until their sum is.

        Returns:
            The blocks, and whether they are enough; they are released even where they are not.
        """
        limit = self.settings.max_split_size
        if limit is None:
            return [], False
        wanted = max(rounded, limit)
        fitting = next((block for block in home.blocks if block.size >= wanted), None)
        if fitting is not None and not fitting.segment.is_expandable:
            return [fitting], True
        chosen: list[Block] = []
        smaller = home.blocks if fitting is None else home.blocks[: home.blocks.index(fitting)]
        for block in reversed(smaller):
            if sum(one.size for one in chosen) >= wanted or block.size < limit:
                break
            if not block.segment.is_expandable:
                chosen.append(block)
        return chosen, bool(chosen) and sum(one.size for one in chosen) >= wanted

    def release_cached_blocks(self) -> None:
        """Give everything idle back to the driver.

        Learned from c10/cuda/CUDACachingAllocator.cpp, release_cached_blocks and release_blocks: pending
        frees are waited for first; then pool by pool whole idle segments go, in the order of the free blocks,
        and after them the idle pages of expandable segments. Private pools follow where nothing uses them any
        more.
        """
        self.synchronize()
        for pool in self.releasable_pools():
            idle = pool.ordered()
            for block in idle:
                if block.is_whole and not block.segment.is_expandable:
                    self.release_segment(block)
            for block in idle:
                if block.segment.is_expandable:
                    self.unmap_pages(block)

    def releasable_pools(self) -> list[Pool]:
        """List the pools whose idle segments may go: large, small, then small and large of private ones."""
        pools = [self.pools.get((DEFAULT_POOL, False)), self.pools.get((DEFAULT_POOL, True))]
        for pool_id in sorted({pool.id for pool in self.pools.values() if pool.id != DEFAULT_POOL}):
            pools += [self.pools.get((pool_id, True)), self.pools.get((pool_id, False))]
        return [pool for pool in pools if pool is not None and pool.is_freeable]

    def release_segment(self, block: Block) -> None:
        """Give back a segment whose only block is free (release_block)."""
        segment = block.segment
        self.driver.release(segment.address, segment.size)
        segment.home.remove(block)
        self.remove_segment(segment)
        self.note_step("segment_free", segment.address, segment.size, segment.home)

    def synchronize(self) -> None:
        """Wait for other streams: complete every pending free (synchronize_and_free_events)."""
        for block in self.pending():
            self.note_step("free_completed", block.address, block.requested, block.segment.home)
            self.complete_free(block)


def _holds(block: Block | None, size: int) -> bool:
    """Tell whether free and unmapped blocks in a row, from this one on, hold a size."""
    room = 0
    while room < size and block is not None and block.state in (FREE, UNMAPPED):
        room += block.size
        block = block.next
    return room >= size


__all__ = ["Allocator", "Driver", "OutOfMemoryError", "Segment", "Step"]
