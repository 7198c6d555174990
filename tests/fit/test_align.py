"""Matching two sequences: as many pairs as there can be, and what is left by what makes most sense."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from tracekit.fit.align import MATCHED, align

TOKENS = st.lists(st.sampled_from("abc"), max_size=14)


def none(_: int, __: int) -> int:
    return 0


def longest(first: list[str], second: list[str]) -> int:
    """The length of a longest common subsequence, by its definition."""

    @cache
    def of(one: int, other: int) -> int:
        if one == len(first) or other == len(second):
            return 0
        if first[one] == second[other]:
            return 1 + of(one + 1, other + 1)
        return max(of(one + 1, other), of(one, other + 1))

    return of(0, 0)


@given(TOKENS, TOKENS)
def test_as_many_pairs_as_there_can_be(first: list[str], second: list[str]) -> None:
    pairs = align((first, second), (first, second), none)
    assert pairs is not None
    assert len(pairs) == longest(first, second)


@given(TOKENS, TOKENS, st.integers(-9, 9))
def test_pairs_have_equal_tokens_and_cross_nowhere(first: list[str], second: list[str], sense: int) -> None:
    fine = ([token + "1" for token in first], [token + str(at % 2) for at, token in enumerate(second)])
    pairs = align(fine, (first, second), lambda one, other: sense if one == other else 0)
    assert pairs is not None
    assert all(first[one] == second[other] for one, other in pairs)
    assert all(a < c and b < d for (a, b), (c, d) in pairwise(pairs))


@given(TOKENS)
def test_a_sequence_matches_itself_item_by_item(tokens: list[str]) -> None:
    assert align((tokens, tokens), (tokens, tokens), none) == [(at, at) for at in range(len(tokens))]


def test_of_equal_items_those_are_matched_that_are_known_to_be_the_same() -> None:
    # the second has one item more in a run of equal tokens; what is known best of each says that it is the first
    assert align(("bcd", "abcd"), ("xxx", "xxxx"), none) == [(0, 1), (1, 2), (2, 3)]


def test_what_is_left_is_matched_by_what_makes_most_sense() -> None:
    fine, coarse = ("a12b", "a345b"), ("axxb", "axxxb")
    assert align(fine, coarse, lambda one, other: 3 if other == one + 1 else 0) == [(0, 0), (1, 2), (2, 3), (3, 4)]


def test_near_a_difference_a_doubtful_match_is_made_anew_by_sense() -> None:
    # counting matches the first of three equal items as well as the second; far away from a difference nothing moves
    tokens = ("x" * 40 + "ab", "x" * 40 + "aab")

    def sense(_: int, other: int) -> int:
        return int(other == 41)

    assert align(tokens, tokens, sense) == [(at, at) for at in range(41)] + [(41, 42)]
    aligned = align(tokens, tokens, sense, lambda _, __: True)
    assert aligned == [(at, at) for at in range(40)] + [(40, 41), (41, 42)]


def test_a_pair_that_makes_no_sense_is_no_pair() -> None:
    assert align(("a1b", "a2b"), ("axb", "axb"), lambda _, __: -MATCHED - 1) == [(0, 0), (2, 2)]


def test_a_long_sequence_may_differ_often() -> None:
    # every step of a hundred items has one more in the second, so that there are more differences than a block may have
    first = [item for _ in range(3_000) for item in range(100)]
    second = [item for step in range(3_000) for item in (*range(100), -step - 1)]
    pairs = align((first, second), (first, second), none)
    assert pairs == [(at, at + at // 100) for at in range(len(first))]


def test_sequences_that_have_little_in_common_are_not_matched() -> None:
    strangers = (range(1_500), range(1_500, 3_000))
    assert align(strangers, strangers, none) is None
