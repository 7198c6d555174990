"""The largest value that fits: found, with few questions, and honest where fitting is not monotone."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from tracekit.fit.search import MOST_GROWTH, Found, largest


def search(fitting: set[int], first: int) -> Found:
    return largest(fitting.__contains__, first)


@given(st.integers(0, 500), st.integers(1, 64))
def test_the_largest_of_all_that_fit(limit: int, first: int) -> None:
    found = largest(lambda value: value <= limit, first)
    assert found.largest == (limit or None)
    assert found.again == []
    assert len(found.asked) < 40


def test_values_beyond_one_that_does_not_fit_do_not_count_but_are_told() -> None:
    found = search({*range(1, 21), 22}, 16)
    assert (found.largest, found.again) == (20, [22])


def test_a_value_below_that_does_not_fit_lowers_the_answer() -> None:
    found = search({*range(1, 19), 20}, 16)
    assert (found.largest, found.again) == (18, [20])


def test_where_nothing_fits_there_is_none() -> None:
    assert search(set(), 16).largest is None


def test_what_never_fails_is_open() -> None:
    found = largest(lambda _: True, 8)
    assert (found.largest, found.is_open) == (8 * MOST_GROWTH, True)


@given(st.sets(st.integers(1, 64)), st.integers(1, 16))
def test_every_smaller_value_that_was_asked_fits(fitting: set[int], first: int) -> None:
    found = search(fitting, first)
    assert all(fits for value, fits in found.asked.items() if found.largest is not None and value <= found.largest)
