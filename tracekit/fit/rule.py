"""How a size follows from the variables: the simplest sum of products that gives the recorded bytes exactly.

Pure arithmetic, with fractions and never with floats; which sizes belong together is `tracekit.fit.align`'s to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from itertools import combinations
from math import ceil, prod

Point = tuple[int, ...]
"""A value of each variable: (8,) for batch 8, (8, 512) for batch 8 and length 512."""

Product = tuple[int, ...]
"""The power of each variable in a product: (0,) is the constant, (1, 2) is batch times the length squared."""

PRODUCTS: dict[int, tuple[Product, ...]] = {
    1: ((0,), (1,), (2,)),
    2: ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)),
}
"""The products that a size may be made of, by the number of variables, simplest first: of the tensors of a training
step, the attention scores go with the highest, batch times the length squared."""

_Terms = tuple[tuple[Product, Fraction], ...]


class Kind(StrEnum):
    """How well a rule is founded."""

    CONSTANT = "constant"
    PROVEN = "proven"
    FITTED = "fitted"
    LATER = "later"
    TWIN = "twin"
    NEARLY = "nearly"
    SCALED = "scaled"
    KEPT = "kept"
    GUESSED = "guessed"


MEANING: dict[Kind, str] = {
    Kind.CONSTANT: "the same in every recording",
    Kind.PROVEN: "one rule gives the bytes of every recording, more than it has coefficients",
    Kind.FITTED: "a rule with as many coefficients as recordings gives the bytes of each",
    Kind.LATER: "a rule gives the bytes of the larger recordings; the smallest went another way",
    Kind.TWIN: "no partner; the rule is that of all allocations of the same size that have one",
    Kind.NEARLY: "no rule in whole bytes; the nearest straight one is used",
    Kind.SCALED: "no partner and no twin; it is the data's and its bytes divide by the value, so it goes in proportion",
    Kind.KEPT: "no partner; it keeps its size",
    Kind.GUESSED: "taken to grow in proportion, from one recording",
}


@dataclass(frozen=True, slots=True)
class Rule:
    """A size as a sum of products of the variables.

    Attributes:
        terms: each product with its coefficient, in bytes.
        kind: how well it is founded.
    """

    terms: _Terms
    kind: Kind

    def at(self, point: Point) -> int:
        """Whole bytes at a point: a fraction counts as a byte more, and nothing is smaller than a byte."""
        return max(ceil(sum(coefficient * value_of(product, point) for product, coefficient in self.terms)), 1)


def constant(size: int, kind: Kind, variables: int) -> Rule:
    """The rule that a size stays what it is."""
    return Rule((((0,) * variables, Fraction(size)),), kind)


def proportional(size: int, point: Point, kind: Kind) -> Rule | None:
    """The rule that a size goes with the product of all variables; None where that gives no whole bytes."""
    product = (1,) * len(point)
    each = Fraction(size, value_of(product, point))
    return Rule(((product, each),), kind) if each.denominator == 1 else None


def value_of(product: Product, point: Point) -> int:
    """A product at a point."""
    return prod(value**power for power, value in zip(product, point, strict=True))


def indistinct(points: Sequence[Point]) -> tuple[Product, Product] | None:
    """Two products in proportion at these points, so that no size tells which it goes with; None where none are."""
    seen: dict[tuple[Fraction, ...], Product] = {}
    for product in PRODUCTS[len(points[0])]:
        first = value_of(product, points[0])
        shape = tuple(Fraction(value_of(product, point), first) for point in points)
        if shape in seen:
            return seen[shape], product
        seen[shape] = product
    return None


def learn(points: Sequence[Point], sizes: Sequence[int], products: Sequence[Product] | None = None) -> Rule:
    """The simplest rule that gives recorded sizes; fewer products are simpler.

    A size is a sum of tensors, so that coefficients are positive; but a tensor may have an item less than the value
    says, such as labels shifted by one. As many coefficients as points fit anything: there,
    only whole bytes of a constant and one product are taken for a rule, or of a whole polynomial of one variable.
    Kernels go other ways at small sizes, so a rule may leave out the smallest points. What has no rule gets the nearest
    straight one, which is exact at the last point.

    Args:
        points: where recorded, in ascending order of size.
        sizes: the bytes there.
        products: those of `PRODUCTS` in another order, the constant first: where the points do not tell two of them
            apart, the earlier one is taken.
    """
    known = PRODUCTS[len(points[0])] if products is None else products
    if len(set(sizes)) == 1:
        return constant(sizes[0], Kind.CONSTANT, len(points[0]))
    for first in range(len(points) - 1):
        if first and indistinct(points[first:]) is not None:
            break
        found = _rule(points[first:], sizes[first:], known)
        if found is not None:
            return found if not first else replace(found, kind=Kind.LATER)
    return _nearest(points, sizes, known)


def _rule(points: Sequence[Point], sizes: Sequence[int], products: Sequence[Product]) -> Rule | None:
    for chosen in _combinations(points, products):
        terms = _exact(chosen, points, sizes)
        if terms is None:
            continue
        if len(chosen) < len(points):
            return Rule(terms, Kind.PROVEN)
        if all(coefficient.denominator == 1 for _, coefficient in terms):
            return Rule(terms, Kind.FITTED)
    return None


def _combinations(points: Sequence[Point], products: Sequence[Product]) -> Iterator[Sequence[Product]]:
    """Products that may make up a rule, simplest first."""
    for count in range(1, len(points)):
        yield from combinations(products, count)
    if len(points) == 2:
        yield from ((products[0], product) for product in products[1:])
    elif len(points) == len(products):
        yield products


def _exact(chosen: Sequence[Product], points: Sequence[Point], sizes: Sequence[int]) -> _Terms | None:
    """Coefficients that give every size, each positive or of a shift by one; None where there are none."""
    coefficients = _solved(
        [[Fraction(value_of(product, point)) for product in chosen] for point in points], list(map(Fraction, sizes))
    )
    if coefficients is None:
        return None
    terms = tuple(zip(chosen, coefficients, strict=True))
    return terms if all(one > 0 or _is_shift(product, one, terms) for product, one in terms) else None


def _is_shift(product: Product, coefficient: Fraction, terms: _Terms) -> bool:
    """Whether a term takes off what one less of a variable makes of another term: n of them times (value - 1)."""
    return coefficient < 0 and any(
        other == -coefficient
        and sum(above) == sum(product) + 1
        and all(higher >= lower for higher, lower in zip(above, product, strict=True))
        for above, other in terms
    )


def _solved(rows: list[list[Fraction]], right: list[Fraction]) -> list[Fraction] | None:
    """The one solution of linear equations, by elimination; None where there is none or more than one."""
    matrix = [[*row, value] for row, value in zip(rows, right, strict=True)]
    count = len(rows[0])
    for column in range(count):
        pivot = next((at for at in range(column, len(matrix)) if matrix[at][column]), None)
        if pivot is None:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column]
        for at, row in enumerate(matrix):
            if at != column and row[column]:
                factor = row[column] / head[column]
                matrix[at] = [value - factor * first for value, first in zip(row, head, strict=True)]
    if any(row[count] for row in matrix[count:]):
        return None
    return [matrix[at][count] / matrix[at][at] for at in range(count)]


def _nearest(points: Sequence[Point], sizes: Sequence[int], products: Sequence[Product]) -> Rule:
    """The straight rule that is least wrong, of a constant and one product, moved to be exact at the last point."""
    best: tuple[Fraction, _Terms] | None = None
    for product in products[1:]:
        values = [value_of(product, point) for point in points]
        slope = _slope(values, sizes)
        if slope is None or slope < 0:
            continue
        base = sizes[-1] - slope * values[-1]
        error = max(abs(base + slope * value - size) / max(size, 1) for value, size in zip(values, sizes, strict=True))
        if best is None or error < best[0]:
            best = error, ((products[0], base), (product, slope))
    if best is None:
        return constant(sizes[-1], Kind.NEARLY, len(points[0]))
    return Rule(best[1], Kind.NEARLY)


def _slope(values: Sequence[int], sizes: Sequence[int]) -> Fraction | None:
    """The slope of the line of least squares; None where the values are all the same."""
    mean, mean_size = Fraction(sum(values), len(values)), Fraction(sum(sizes), len(sizes))
    spread = sum((value - mean) ** 2 for value in values)
    if not spread:
        return None
    return sum((value - mean) * (size - mean_size) for value, size in zip(values, sizes, strict=True)) / spread
