"""The allocator's rules, one at a time, as a specification."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tracekit.allocator.blocks import Block, FreeList
from tracekit.allocator.model import Allocator, OutOfMemoryError
from tracekit.allocator.settings import Settings, TieOrder
from tracekit.units import GIB, MIB

KIB = 1024


class Shelf:
    """A driver that gives out addresses in an order that the test decides."""

    def __init__(self, *bases: int, capacity: int | None = None) -> None:
        self.bases = list(bases)
        self.capacity = capacity
        self.top = 0x1000 * MIB
        self.used = 0

    def _take(self, size: int) -> bool:
        if self.capacity is not None and self.used + size > self.capacity:
            return False
        self.used += size
        return True

    def _next(self, size: int) -> int:
        if self.bases:
            return self.bases.pop(0)
        address, self.top = self.top, self.top + size
        return address

    def reserve(self, size: int, home: FreeList) -> int | None:
        del home
        return self._next(size) if self._take(size) else None

    def reserve_range(self, home: FreeList) -> tuple[int, int]:
        del home
        return self._next(GIB), GIB

    def map(self, address: int, size: int) -> bool:
        del address
        return self._take(size)

    def release(self, address: int, size: int) -> None:
        del address
        self.used -= size


def allocator(options: str = "", *bases: int, limit: int | None = None, capacity: int | None = None) -> Allocator:
    settings = replace(Settings.parse(options), memory_limit=limit)
    return Allocator(settings, Shelf(*bases, capacity=capacity))


def steps(model: Allocator) -> list[tuple[str, int]]:
    """What was done to make room since the last time, as (action, size)."""
    done = [(step.action, step.size) for step in model.steps]
    model.steps.clear()
    return done


def picture(block: Block) -> list[tuple[int, str]]:
    """The blocks of a segment from the bottom up, as (size, state)."""
    names = {0: "free", 1: "live", 2: "pending", 3: "unmapped"}
    return [(one.size, names[one.state]) for one in block.segment]


class TestChoosing:
    def test_small_requests_share_a_segment_of_2_mib(self) -> None:
        model = allocator()
        first = model.malloc(1)
        second = model.malloc(700 * KIB)

        assert second.address == first.address + 512
        assert picture(first) == [(512, "live"), (700 * KIB, "live"), (2 * MIB - 512 - 700 * KIB, "free")]
        assert steps(model) == [("segment_alloc", 2 * MIB)]

    def test_the_smallest_block_that_holds_a_request_is_taken(self) -> None:
        model = allocator()
        large, spacer, fitting, end = (model.malloc(size * KIB) for size in (300, 1, 200, 1))
        for block in (large, fitting):
            model.free(block)

        assert model.malloc(150 * KIB).address == fitting.address
        assert end.address > spacer.address

    def test_among_equal_blocks_the_lowest_is_taken(self) -> None:
        model = allocator("", 900 * MIB, 100 * MIB)
        high, low = model.malloc(12 * MIB), model.malloc(12 * MIB)
        model.free(high)
        model.free(low)

        assert model.malloc(12 * MIB).address == 100 * MIB

    def test_since_torch_2_13_the_one_in_the_oldest_segment_is(self) -> None:
        model = Allocator(Settings(tie_order=TieOrder.SEGMENT_AGE), Shelf(900 * MIB, 100 * MIB))
        high, low = model.malloc(12 * MIB), model.malloc(12 * MIB)
        model.free(low)
        model.free(high)

        assert model.malloc(12 * MIB).address == 900 * MIB

    def test_a_stream_does_not_see_the_blocks_of_another(self) -> None:
        model = allocator()
        model.free(model.malloc(12 * MIB, stream=1))

        assert model.malloc(12 * MIB, stream=2).segment.home.stream == 2
        assert steps(model) == [("segment_alloc", 12 * MIB)] * 2

    def test_nor_does_a_private_pool_see_those_of_the_device(self) -> None:
        model = allocator()
        model.free(model.malloc(12 * MIB))
        model.malloc(12 * MIB, pool=(0, 1))

        assert steps(model) == [("segment_alloc", 12 * MIB)] * 2

    def test_small_and_large_requests_have_pools_of_their_own(self) -> None:
        model = allocator()
        model.free(model.malloc(12 * MIB))
        model.malloc(MIB)

        assert steps(model) == [("segment_alloc", 12 * MIB), ("segment_alloc", 2 * MIB)]


class TestSplitting:
    def test_in_the_small_pool_512_bytes_are_worth_a_block(self) -> None:
        model = allocator()
        block = model.malloc(1)

        assert picture(block) == [(512, "live"), (2 * MIB - 512, "free")]

    @pytest.mark.parametrize(("rest", "is_split"), [(MIB, False), (MIB + 512, True)])
    def test_in_the_large_pool_only_more_than_1_mib_is(self, rest: int, is_split: bool) -> None:
        model = allocator()
        block = model.malloc(20 * MIB)
        model.free(block)
        again = model.malloc(20 * MIB - rest)

        assert again.size == (20 * MIB - rest if is_split else 20 * MIB)
        assert len(picture(again)) == (2 if is_split else 1)

    def test_a_middling_request_is_cut_from_20_mib(self) -> None:
        model = allocator()
        block = model.malloc(2 * MIB)

        assert picture(block) == [(2 * MIB, "live"), (18 * MIB, "free")]

    def test_a_pool_made_with_no_split_gives_whole_segments(self) -> None:
        model = Allocator(Settings(no_split_pools=frozenset({(0, 1)})), Shelf())

        assert model.malloc(1, pool=(0, 1)).size == 2 * MIB
        assert model.malloc(1).size == 512


class TestFreeing:
    def test_a_freed_block_merges_with_the_free_ones_beside_it(self) -> None:
        model = allocator()
        blocks = [model.malloc(5 * MIB) for _ in range(4)]
        for index in (0, 2, 1):
            model.free(blocks[index])

        assert picture(blocks[3]) == [(15 * MIB, "free"), (5 * MIB, "live")]
        assert steps(model) == [("segment_alloc", 20 * MIB)]

    def test_a_block_that_another_stream_uses_is_pending_and_does_not_merge(self) -> None:
        model = allocator()
        first, second, third = (model.malloc(5 * MIB) for _ in range(3))
        model.request_free(second)
        model.free(first)

        assert picture(third) == [
            (5 * MIB, "free"),
            (5 * MIB, "pending"),
            (5 * MIB, "live"),
            (5 * MIB, "free"),
        ]
        assert (model.allocated, model.active, model.requested) == (5 * MIB, 10 * MIB, 10 * MIB)

        model.complete_free(second)

        assert picture(third) == [(10 * MIB, "free"), (5 * MIB, "live"), (5 * MIB, "free")]
        assert (model.allocated, model.active, model.requested) == (5 * MIB, 5 * MIB, 5 * MIB)

    def test_empty_cache_returns_whole_idle_segments_only(self) -> None:
        model = allocator()
        kept, idle, small = model.malloc(5 * MIB), model.malloc(30 * MIB), model.malloc(1)
        model.free(idle)
        model.free(small)
        steps(model)
        model.empty_cache()

        assert steps(model) == [("segment_free", 30 * MIB), ("segment_free", 2 * MIB)]
        assert model.reserved == 20 * MIB
        assert kept.segment in model.segments.values()

    def test_empty_cache_waits_for_other_streams(self) -> None:
        model = allocator()
        block = model.malloc(30 * MIB)
        model.request_free(block)
        steps(model)
        model.empty_cache()

        assert steps(model) == [("free_completed", 30 * MIB), ("segment_free", 30 * MIB)]

    def test_a_private_pool_keeps_its_segments_while_it_is_in_use(self) -> None:
        model = allocator()
        model.free(model.malloc(30 * MIB, pool=(1, 0)))
        model.empty_cache()

        assert model.reserved == 30 * MIB

        model.pools[(1, 0), False].is_freeable = True
        model.empty_cache()

        assert model.reserved == 0


class TestRunningShort:
    def test_a_request_beyond_the_limit_releases_the_cache_first(self) -> None:
        model = allocator(limit=50 * MIB)
        model.free(model.malloc(30 * MIB))
        model.malloc(40 * MIB)

        assert steps(model) == [("segment_alloc", 30 * MIB), ("segment_free", 30 * MIB), ("segment_alloc", 40 * MIB)]
        assert model.retries == 1

    def test_the_same_goes_for_a_driver_that_refuses(self) -> None:
        model = allocator(capacity=50 * MIB)
        model.free(model.malloc(30 * MIB))
        model.malloc(40 * MIB)

        assert model.reserved == 40 * MIB
        assert model.retries == 1

    def test_what_cannot_be_served_is_said_with_the_state_then(self) -> None:
        model = allocator(limit=50 * MIB)
        model.malloc(15 * MIB)
        model.free(model.malloc(30 * MIB))
        with pytest.raises(OutOfMemoryError) as caught:
            model.malloc(45 * MIB + 1)

        error = caught.value
        assert (error.requested, error.rounded, error.segment_size) == (45 * MIB + 1, 45 * MIB + 512, 46 * MIB)
        assert (error.allocated, error.reserved) == (16 * MIB, 16 * MIB)  # 1 MiB is slack

    def test_nothing_else_is_lost_then(self) -> None:
        model = allocator(limit=50 * MIB)
        block = model.malloc(15 * MIB)
        with pytest.raises(OutOfMemoryError):
            model.malloc(45 * MIB)
        model.free(block)

        assert model.malloc(15 * MIB).address == block.address

    def test_the_pool_is_not_searched_again_after_the_release(self) -> None:
        """A pending block would fit once it is waited for, yet the request fails (pytorch issue 189504)."""
        model = allocator(limit=50 * MIB)
        first, second = model.malloc(5 * MIB), model.malloc(15 * MIB)
        small = model.malloc(1)
        model.request_free(second)
        big = model.malloc(20 * MIB)
        with pytest.raises(OutOfMemoryError):
            model.malloc(14 * MIB)

        assert second.state == 0
        assert second.size == 15 * MIB
        assert {first, small, big} == set(model.live.values())

    def test_during_a_graph_capture_nothing_is_released(self) -> None:
        model = allocator(limit=50 * MIB)
        model.free(model.malloc(30 * MIB))
        model.is_capturing = True
        with pytest.raises(OutOfMemoryError):
            model.malloc(40 * MIB)

        assert model.reserved == 30 * MIB

    def test_a_pool_made_with_use_on_oom_is_asked_before_the_cache_is_released(self) -> None:
        model = Allocator(Settings(memory_limit=50 * MIB, overflow_pools=((0, 7),)), Shelf())
        lent = model.malloc(30 * MIB, pool=(0, 7))
        model.free(lent)

        assert model.malloc(25 * MIB).address == lent.address


class TestMaxSplitSize:
    def test_an_oversize_block_serves_no_smaller_request(self) -> None:
        model = allocator("max_split_size_mb:64")
        model.free(model.malloc(100 * MIB))
        model.malloc(30 * MIB)

        assert steps(model) == [("segment_alloc", 100 * MIB), ("segment_alloc", 30 * MIB)]

    def test_a_large_request_takes_a_block_within_20_mib_whole(self) -> None:
        model = allocator("max_split_size_mb:64")
        model.free(model.malloc(100 * MIB))

        assert model.malloc(81 * MIB).size == 100 * MIB

    def test_but_not_a_larger_one(self) -> None:
        model = allocator("max_split_size_mb:64")
        model.free(model.malloc(100 * MIB))
        model.malloc(80 * MIB)

        assert steps(model) == [("segment_alloc", 100 * MIB), ("segment_alloc", 80 * MIB)]

    def test_a_request_that_runs_short_releases_the_one_oversize_block_that_is_enough(self) -> None:
        model = allocator("max_split_size_mb:64", limit=350 * MIB)
        for block in [model.malloc(size * MIB) for size in (80, 120, 140)]:
            model.free(block)
        steps(model)
        model.malloc(100 * MIB)

        assert steps(model) == [("segment_free", 120 * MIB), ("segment_alloc", 100 * MIB)]

    def test_or_the_largest_ones_until_their_sum_is(self) -> None:
        model = allocator("max_split_size_mb:64", limit=350 * MIB)
        for block in [model.malloc(size * MIB) for size in (80, 120, 140)]:
            model.free(block)
        steps(model)
        model.malloc(200 * MIB)

        assert steps(model) == [
            ("segment_free", 140 * MIB),
            ("segment_free", 120 * MIB),
            ("segment_alloc", 200 * MIB),
        ]


class TestGarbageCollection:
    def test_above_the_threshold_the_segments_unused_for_longest_go(self) -> None:
        model = allocator("garbage_collection_threshold:0.5", limit=200 * MIB)
        old, young = model.malloc(60 * MIB), model.malloc(30 * MIB)
        model.free(old)
        model.malloc(70 * MIB)  # 90 MiB are not above the threshold of 100: nothing is collected
        model.free(young)
        steps(model)
        model.malloc(66 * MIB)

        assert steps(model) == [("segment_free", 60 * MIB), ("segment_alloc", 66 * MIB)]

    def test_without_a_limit_nothing_is_collected(self) -> None:
        model = allocator("garbage_collection_threshold:0.5")
        model.free(model.malloc(60 * MIB))
        steps(model)
        model.malloc(70 * MIB)

        assert steps(model) == [("segment_alloc", 70 * MIB)]


class TestExpandableSegments:
    def test_pages_of_20_mib_are_mapped_as_they_are_needed(self) -> None:
        model = allocator("expandable_segments:True")
        first, second = model.malloc(15 * MIB), model.malloc(10 * MIB)

        assert second.address == first.address + 15 * MIB
        assert steps(model) == [("segment_map", 20 * MIB)] * 2
        assert picture(first) == [
            (15 * MIB, "live"),
            (10 * MIB, "live"),
            (15 * MIB, "free"),
            (GIB - 40 * MIB, "unmapped"),
        ]

    def test_small_requests_have_a_range_with_pages_of_2_mib(self) -> None:
        model = allocator("expandable_segments:True")
        model.malloc(1)

        assert steps(model) == [("segment_map", 2 * MIB)]

    def test_no_block_has_slack(self) -> None:
        model = allocator("expandable_segments:True")

        assert model.malloc(20 * MIB - 512).size == 20 * MIB - 512

    def test_a_block_that_can_grow_far_is_left_for_last(self) -> None:
        """Best fit counts a block with the unmapped range behind it, so a larger closed gap comes first."""
        model = allocator("expandable_segments:True")
        gap, _, tail = model.malloc(30 * MIB), model.malloc(20 * MIB), model.malloc(25 * MIB)
        model.free(gap)
        model.free(tail)

        assert model.malloc(10 * MIB).address == gap.address

    def test_whole_idle_pages_go_back_and_the_ends_stay_free(self) -> None:
        model = allocator("expandable_segments:True")
        below, idle, above = model.malloc(5 * MIB), model.malloc(50 * MIB), model.malloc(5 * MIB)
        model.free(idle)
        steps(model)
        model.empty_cache()

        assert steps(model) == [("segment_unmap", 20 * MIB)]
        assert picture(below)[:4] == [
            (5 * MIB, "live"),
            (15 * MIB, "free"),
            (20 * MIB, "unmapped"),
            (15 * MIB, "free"),
        ]
        assert model.reserved == 40 * MIB
        assert above.state == 1

    def test_a_hole_is_filled_before_the_end_grows(self) -> None:
        model = allocator("expandable_segments:True")
        idle = [model.malloc(size * MIB) for size in (5, 50, 5)][1]
        model.free(idle)
        model.empty_cache()
        steps(model)

        assert model.malloc(40 * MIB).address == idle.address
        assert steps(model) == [("segment_map", 20 * MIB)]

    def test_a_range_without_any_memory_is_given_up(self) -> None:
        model = allocator("expandable_segments:True")
        model.free(model.malloc(50 * MIB))
        model.empty_cache()

        assert model.segments == {}
        assert model.reserved == 0

    def test_what_was_mapped_before_the_driver_ran_out_stays(self) -> None:
        model = allocator("expandable_segments:True", capacity=70 * MIB)
        low, high = model.malloc(20 * MIB), model.malloc(20 * MIB)
        model.free(low)
        model.empty_cache()
        steps(model)
        with pytest.raises(OutOfMemoryError):
            model.malloc(60 * MIB)

        assert model.reserved == 20 * MIB
        assert high.state == 1

    def test_a_pool_with_an_allocator_of_its_own_gets_plain_segments(self) -> None:
        model = Allocator(Settings(expandable_segments=True, fixed_pools=frozenset({(0, 1)})), Shelf())
        model.malloc(12 * MIB, pool=(0, 1))

        assert steps(model) == [("segment_alloc", 12 * MIB)]
