"""Where the driver lays segments: given what a recording shows, the addresses that come next."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from tracekit.allocator.driver import CHUNK, as_driven
from tracekit.units import MIB

TOP = 1 << 46


def test_the_same_sizes_lie_where_they_lay() -> None:
    bases = [(2 * MIB, TOP), (20 * MIB, TOP - CHUNK), (20 * MIB, TOP - 7 * CHUNK)]
    lay = as_driven(bases)
    assert [lay(size) for size, _ in bases] == [address for _, address in bases]


def test_then_chunks_are_reserved_below_and_what_is_left_of_the_newest_is_used_first() -> None:
    lay = as_driven([(20 * MIB, TOP), (20 * MIB, TOP - CHUNK)])
    first, second = lay(20 * MIB), lay(20 * MIB)
    assert (first, second) == (TOP, TOP - CHUNK)
    assert lay(40 * MIB) == TOP - 3 * CHUNK
    assert lay(2 * MIB) == TOP - 3 * CHUNK + 40 * MIB
    assert lay(22 * MIB) == TOP - 3 * CHUNK + 42 * MIB
    assert lay(12 * MIB) == TOP - CHUNK + 20 * MIB
    assert lay(12 * MIB) == TOP + 20 * MIB
    assert lay(12 * MIB) == TOP - 4 * CHUNK


def test_a_segment_that_no_chunk_explains_shows_what_was_reserved_before() -> None:
    # the third lies in the middle of a chunk that none of the others began: it and its neighbour show a region
    bases = [(2 * MIB, TOP), (24 * MIB, TOP - 4 * CHUNK), (24 * MIB, TOP - 4 * CHUNK + 24 * MIB)]
    lay = as_driven(bases)
    assert lay(2 * MIB) == TOP
    assert lay(60 * MIB) == TOP - 4 * CHUNK
    assert lay(60 * MIB) == TOP - 4 * CHUNK + 60 * MIB
    assert lay(60 * MIB) == TOP - 6 * CHUNK


@given(st.lists(st.integers(1, 200), max_size=30), st.lists(st.integers(1, 200), max_size=30))
def test_no_two_segments_overlap(recorded: list[int], asked: list[int]) -> None:
    lay = as_driven([])
    bases = [(size * 2 * MIB, lay(size * 2 * MIB)) for size in recorded]
    lay = as_driven(bases)
    taken = sorted((lay(size * 2 * MIB), size * 2 * MIB) for size in asked)
    for (address, size), (above, _) in pairwise(taken):
        assert address + size <= above
