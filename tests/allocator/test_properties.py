"""Random programs through the allocator: what must hold after every step, whatever the settings."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.allocator.naive import Naive
from tracekit.allocator.blocks import ALLOCATED, FREE, PENDING, UNMAPPED, Block
from tracekit.allocator.cache import BlockCache
from tracekit.allocator.device import Device, ascending
from tracekit.allocator.model import Allocator, OutOfMemoryError
from tracekit.allocator.settings import DEFAULT_POOL, MIN_BLOCK, SMALL_SIZE, PoolId, Settings, TieOrder
from tracekit.units import MIB

sizes = st.one_of(
    st.integers(1, 4096),
    st.integers(1, 3 * MIB),
    st.integers(1, 200).map(lambda count: count * MIB // 2),
    st.sampled_from([512, MIB, MIB + 1, 10 * MIB - 1, 10 * MIB, 20 * MIB, 64 * MIB]),
)
streams = st.sampled_from([0, 7])
pools: st.SearchStrategy[PoolId] = st.sampled_from([DEFAULT_POOL, DEFAULT_POOL, (0, 1)])
limits = st.sampled_from([None, 60 * MIB, 150 * MIB, 400 * MIB])
any_settings = st.builds(
    Settings,
    max_split_size=st.sampled_from([None, None, 32 * MIB, 64 * MIB]),
    roundup_power2_divisions=st.sampled_from([(0,) * 16, (4,) * 16, (0, 8, *(2,) * 14)]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.0, 0.5]),
    expandable_segments=st.booleans(),
    memory_limit=limits,
    tie_order=st.sampled_from(TieOrder),
    no_split_pools=st.sampled_from([frozenset[PoolId](), frozenset({(0, 1)})]),
    fixed_pools=st.sampled_from([frozenset[PoolId](), frozenset({(0, 1)})]),
    device_total=st.just(512 * MIB),
)


def check_tiling(model: BlockCache) -> None:
    """Blocks tile their segment without a gap, and know their neighbours."""
    for address, segment in model.segments.items():
        assert segment.address == address
        below: Block | None = None
        for block in segment:
            assert block.address == address
            assert block.size > 0
            assert block.segment is segment
            assert block.prev is below
            address += block.size
            below = block
        assert address == segment.address + segment.size


def check_merging(model: BlockCache) -> None:
    """Two neighbours are never both free; but pieces left at the ends of unmapped pages may meet later ones."""
    for segment in model.segments.values():
        for block in segment:
            above = block.next
            if above is None or block.state != above.state:
                continue
            assert block.state != UNMAPPED
            assert block.state != FREE or segment.is_expandable


def check_shelves(model: BlockCache) -> None:
    """The free lists hold the free blocks and nothing else, in order."""
    blocks = [block for segment in model.segments.values() for block in segment]
    shelved = [block for pool in model.pools.values() for block in pool.ordered()]
    assert {id(block) for block in shelved} == {id(block) for block in blocks if block.state == FREE}
    assert len(shelved) == len({id(block) for block in shelved})
    for pool in model.pools.values():
        for stream, home in pool.lists.items():
            assert home.keys == sorted(home.keys)
            assert [block.size for block in home.blocks] == sorted(block.size for block in home.blocks)
            assert all(block.segment.home is home and home.stream == stream for block in home.blocks)


def check_statistics(model: BlockCache) -> None:
    """What is counted is what is there."""
    blocks = [block for segment in model.segments.values() for block in segment]
    live = [block for block in blocks if block.state in (ALLOCATED, PENDING)]
    assert model.allocated == sum(block.size for block in live if block.state == ALLOCATED)
    assert model.active == sum(block.size for block in live)
    assert model.requested == sum(block.requested for block in live)
    assert model.reserved == sum(block.size for block in blocks if block.state != UNMAPPED)
    assert {block.address: block for block in live} == model.live
    assert model.bases == sorted(model.segments)


def best_by_scanning(model: Allocator, requested: int, stream: int, pool: PoolId) -> int | None:
    """The size of the smallest free block that a request may see, found by looking at every block."""
    rounded = model.settings.round_request(requested)
    fitting = [
        block.size
        for segment in model.segments.values()
        for block in segment
        if block.state == FREE and block.size >= rounded
        if segment.home is model.home(pool, rounded <= SMALL_SIZE, stream)
    ]
    return min(fitting, default=None)


class AnyProgram(RuleBasedStateMachine):
    """A program does what it likes; the allocator's books stay in order."""

    @initialize(chosen=any_settings)
    def start(self, chosen: Settings) -> None:
        self.model = Allocator(chosen, Device(chosen))
        self.held: list[Block] = []
        self.dropped: list[Block] = []

    @rule(requested=sizes, stream=streams, pool=pools)
    def malloc(self, requested: int, stream: int, pool: PoolId) -> None:
        model = self.model
        best = best_by_scanning(model, requested, stream, pool)
        before = {id(block): (block.address, block.size, block.requested) for block in self.held}
        reserved = model.reserved
        try:
            block = model.malloc(requested, stream, pool)
        except OutOfMemoryError:
            assert model.reserved <= reserved or model.settings.expandable_segments
            assert before == {id(one): (one.address, one.size, one.requested) for one in self.held}
        else:
            rounded = model.settings.round_request(requested)
            assert block.size >= rounded
            assert block.size % MIN_BLOCK == 0
            is_plain = model.settings.max_split_size is None and not model.settings.expandable_segments
            if best is not None and is_plain:
                assert not model.steps
                assert block.size in (rounded, best)
            self.held.append(block)
        self.dropped = [one for one in self.dropped if one.state == PENDING]
        model.steps.clear()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.model.free(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        block = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        self.model.request_free(block)
        self.dropped.append(block)

    @precondition(lambda self: self.dropped)
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        block = self.dropped.pop(data.draw(st.integers(0, len(self.dropped) - 1)))
        self.model.complete_free(block)

    @rule()
    def empty_cache(self) -> None:
        self.model.empty_cache()
        self.model.steps.clear()
        assert not [block for block in self.dropped if block.state == PENDING]
        self.dropped = []
        idle = [block for pool in self.model.releasable_pools() for block in pool.ordered() if block.is_whole]
        assert not [block for block in idle if not block.segment.is_expandable]

    @invariant()
    def books_are_in_order(self) -> None:
        if not hasattr(self, "model"):
            return
        check_tiling(self.model)
        check_merging(self.model)
        check_shelves(self.model)
        check_statistics(self.model)
        assert all(block.state == ALLOCATED for block in self.held)
        limit = self.model.settings.memory_limit
        if limit is not None and not self.model.settings.expandable_segments:
            assert self.model.reserved <= limit


AnyProgram.TestCase.settings = hypothesis_settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyProgram = AnyProgram.TestCase

operations = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), sizes, streams),
        st.tuples(st.sampled_from(["free", "drop", "complete"]), st.integers(0, 50), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@hypothesis_settings(max_examples=150, deadline=None)
@given(operations, any_settings)
def test_a_naive_allocator_gives_the_same_answers(program: list[tuple[str, int, int]], chosen: Settings) -> None:
    chosen = replace(chosen, expandable_segments=False, garbage_collection_threshold=0.0, tie_order=TieOrder.ADDRESS)
    model = Allocator(chosen, Device(chosen, ascending(1 << 40)))
    naive = Naive(chosen)
    live: list[int] = []
    pending: list[int] = []
    for action, value, stream in program:
        if action == "malloc":
            try:
                given_out = model.malloc(value, stream).address
            except OutOfMemoryError:
                given_out = None
            assert given_out == naive.malloc(value, stream)
            if given_out is not None:
                live.append(given_out)
        elif action in ("free", "drop") and live:
            address = live.pop(value % len(live))
            model.request_free(model.live[address])
            naive.drop(address)
            pending.append(address)
            if action == "free":
                pending.remove(address)
                model.complete_free(model.live[address])
                naive.complete(address)
        elif action == "complete" and pending:
            address = pending.pop(value % len(pending))
            model.complete_free(model.live[address])
            naive.complete(address)
        elif action == "empty":
            model.empty_cache()
            naive.empty_cache()
        pending = [address for address in pending if address in model.live]
        pending = [address for address in pending if model.live[address].state == PENDING]
        assert (model.allocated, model.active) == (naive.total("live"), naive.total("live", "pending"))
        assert model.reserved == naive.reserved
