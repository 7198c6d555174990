"""Where the driver lays segments: given what a recording shows, the addresses that come next."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, pairwise
from random import Random

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.allocator.conftest import Recording
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


def test_room_that_the_recording_passed_over_was_taken() -> None:
    # the third would have found room behind the second, and was laid elsewhere: something unseen lay there
    bases = [(2 * MIB, TOP), (20 * MIB, TOP - CHUNK), (12 * MIB, TOP - 2 * CHUNK), (24 * MIB, TOP - 3 * CHUNK)]
    lay = as_driven(bases)
    assert [lay(size) for size, _ in bases] == [address for _, address in bases]
    assert [lay(12 * MIB) for _ in range(3)] == [
        TOP - 2 * CHUNK + 12 * MIB,
        TOP - 4 * CHUNK,
        TOP - 4 * CHUNK + 12 * MIB,
    ]


def test_chunks_go_to_the_highest_gap_that_the_recording_found_free() -> None:
    # between the second and the third there was no room for 64 MiB, but the fourth found 32
    bases = [(2 * MIB, TOP), (32 * MIB, TOP - CHUNK), (64 * MIB, TOP - 9 * CHUNK), (32 * MIB, TOP - 4 * CHUNK)]
    lay = as_driven(bases)
    assert [lay(size) for size in (2 * MIB, 32 * MIB)] == [TOP, TOP - CHUNK]
    assert [lay(size * MIB) for size in (96, 32, 64, 32)] == [
        TOP - 12 * CHUNK + 2 * CHUNK,
        TOP - 4 * CHUNK,
        TOP - 12 * CHUNK,
        TOP - 13 * CHUNK,
    ]


@pytest.mark.parametrize("known", ["llama_b1", "llama_b2", "llama_b4"])
@pytest.mark.parametrize("other", ["llama_b1", "llama_b2", "llama_b4"])
def test_which_of_two_equal_segments_of_another_run_lies_lower(
    recording: Callable[[str], Recording], known: str, other: str
) -> None:
    lay = as_driven(recording(known).program().bases)
    bases = recording(other).program().bases
    laid = [(size, address, lay(size)) for size, address in bases]
    pairs = [(one, two) for one, two in combinations(laid, 2) if one[0] == two[0] > 2 * MIB]
    right = sum((one[1] < two[1]) == (one[2] < two[2]) for one, two in pairs)
    assert right >= 0.9 * len(pairs)


@given(st.lists(st.integers(1, 200), max_size=30), st.lists(st.integers(1, 200), max_size=30))
def test_no_two_segments_overlap(recorded: list[int], asked: list[int]) -> None:
    lay = as_driven([])
    bases = [(size * 2 * MIB, lay(size * 2 * MIB)) for size in recorded]
    lay = as_driven(bases)
    taken = sorted((lay(size * 2 * MIB), size * 2 * MIB) for size in asked)
    for (address, size), (above, _) in pairwise(taken):
        assert address + size <= above


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(0, 20)), max_size=30),
    st.randoms(use_true_random=False),
    st.lists(st.integers(1, 200), max_size=30),
)
def test_wherever_a_recording_had_its_segments_no_two_overlap(
    recorded: list[tuple[int, int]], random: Random, asked: list[int]
) -> None:
    # segments with gaps between them, in any order of time
    address = TOP
    bases: list[tuple[int, int]] = []
    for size, gap in recorded:
        bases.append((size * 2 * MIB, address))
        address += (size + gap) * 2 * MIB
    random.shuffle(bases)
    lay = as_driven(bases)
    taken = sorted((lay(size * 2 * MIB), size * 2 * MIB) for size in asked)
    for (begin, size), (above, _) in pairwise(taken):
        assert begin + size <= above
