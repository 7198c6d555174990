"""Sizes become rules: given recorded bytes, the expected bytes elsewhere and how well they are founded."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tracekit.fit.rule import PRODUCTS, Kind, Point, indistinct, learn, value_of


@pytest.mark.parametrize(
    ("sizes", "kind", "at", "expected"),
    [
        ({8: 512, 16: 512}, Kind.CONSTANT, 20, 512),
        ({8: 800, 16: 1600}, Kind.PROVEN, 20, 2000),
        ({8: 4 * 64, 16: 4 * 256}, Kind.PROVEN, 20, 4 * 400),
        ({8: 256 + 800, 16: 256 + 1600}, Kind.FITTED, 20, 256 + 2000),
        ({4: 656, 8: 1056, 16: 1856}, Kind.PROVEN, 20, 2256),
        ({8: 100, 16: 107}, Kind.NEARLY, 20, 111),
        ({8: 100, 16: 201}, Kind.NEARLY, 24, 302),
        ({16: 500, 32: 400}, Kind.NEARLY, 64, 400),
        # labels shifted by one: an item less than the value says
        ({512: 7 * 511, 1024: 7 * 1023}, Kind.FITTED, 768, 7 * 767),
        # the smallest went another way, the larger two follow a rule
        ({2: 999, 8: 800, 16: 1600}, Kind.LATER, 20, 2000),
        # as many coefficients as recordings is a rule for a whole polynomial only
        ({1: 6, 2: 17, 3: 34}, Kind.FITTED, 4, 57),
    ],
)
def test_one_variable(sizes: dict[int, int], kind: Kind, at: int, expected: int) -> None:
    rule = learn([(value,) for value in sizes], list(sizes.values()))
    assert (rule.kind, rule.at((at,))) == (kind, expected)


@pytest.mark.parametrize(
    ("product", "expected"),
    [((0, 0), 7), ((1, 0), 7 * 16), ((0, 1), 7 * 768), ((1, 1), 7 * 16 * 768), ((1, 2), 7 * 16 * 768 * 768)],
)
def test_two_variables_are_told_apart_by_three_recordings(product: Point, expected: int) -> None:
    points = [(4, 512), (8, 512), (4, 1024)]
    rule = learn(points, [7 * value_of(product, point) for point in points])
    assert rule.at((16, 768)) == expected
    assert rule.kind is (Kind.CONSTANT if product == (0, 0) else Kind.PROVEN)


def test_a_shift_by_one_in_the_second_of_two_variables() -> None:
    points = [(4, 512), (8, 512), (4, 1024)]
    rule = learn(points, [batch * (length - 1) * 200 for batch, length in points])
    assert (rule.kind, rule.at((16, 768))) == (Kind.PROVEN, 16 * 767 * 200)


def test_what_recordings_cannot_tell_apart() -> None:
    assert indistinct([(4, 512), (8, 512)]) == ((0, 0), (0, 1))
    assert indistinct([(4, 512), (8, 1024)]) is not None
    assert indistinct([(4, 512), (8, 512), (4, 1024)]) is None
    assert indistinct([(8,), (16,)]) is None


def test_where_points_do_not_tell_the_usual_product_is_taken() -> None:
    points, sizes = [(8, 512), (8, 1024)], [100, 200]
    assert learn(points, sizes).at((16, 1024)) == 200
    assert learn(points, sizes, [(0, 0), (1, 1), (1, 0), (0, 1), (0, 2), (1, 2)]).at((16, 1024)) == 400


def test_no_size_is_less_than_a_byte() -> None:
    assert learn([(8,), (16,)], [10, 100]).at((1,)) == 1


@given(
    st.lists(st.integers(1, 200), min_size=2, max_size=4, unique=True),
    st.data(),
)
def test_a_rule_in_whole_bytes_gives_the_recorded_bytes(values: list[int], data: st.DataObject) -> None:
    points = [(value,) for value in sorted(values)]
    sizes = data.draw(st.lists(st.integers(1, 1 << 33), min_size=len(points), max_size=len(points)))
    rule = learn(points, sizes)
    assert rule.at(points[-1]) == sizes[-1]
    if rule.kind in (Kind.CONSTANT, Kind.PROVEN, Kind.FITTED):
        assert [rule.at(point) for point in points] == sizes
        assert all(coefficient > 0 for _, coefficient in rule.terms[1:])
    if rule.kind is Kind.FITTED:
        assert all(coefficient.denominator == 1 for _, coefficient in rule.terms)


@given(
    st.sampled_from(PRODUCTS[2][1:]),
    st.integers(1, 1 << 20),
    st.integers(0, 1 << 20),
    st.tuples(st.integers(1, 64), st.integers(1, 2048)),
)
def test_four_recordings_prove_a_constant_with_a_product(product: Point, slope: int, base: int, at: Point) -> None:
    points = [(4, 512), (8, 512), (4, 1024), (8, 1024)]
    rule = learn(points, [base + slope * value_of(product, point) for point in points])
    assert rule.kind is Kind.PROVEN
    assert rule.at(at) == base + slope * value_of(product, at)
    assert sum((coefficient for _, coefficient in rule.terms), Fraction(0)) == base + slope
