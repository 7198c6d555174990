"""The largest value that fits, found with few runs; nothing is known here of what a value is.

Pure: a question that can be asked of any value goes in, what was found and how far it was looked comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

NEIGHBOURS = 3
"""Values on either side of the largest that are asked as well, since fitting need not be monotone."""

MOST_GROWTH = 1024
"""So many times the first value is looked at, at most."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        largest: the largest value that fits with every smaller one that was asked; None where none does.
        again: larger ones that fit although a smaller one does not.
        is_open: True where even the largest value that was asked fits.
        asked: every value that was asked, with its answer.
    """

    largest: int | None
    again: list[int] = field(default_factory=list[int])
    is_open: bool = False
    asked: dict[int, bool] = field(default_factory=dict[int, bool])


def largest(fits: Callable[[int], bool], first: int) -> Found:
    """Search by doubling and halving, and look at the neighbours of what was found.

    Args:
        fits: asked of values from 1 on, once each.
        first: where to begin.
    """
    asked: dict[int, bool] = {}

    def ask(value: int) -> bool:
        if value not in asked:
            asked[value] = fits(value)
        return asked[value]

    low, high = 0, first
    while ask(high):
        if high >= first * MOST_GROWTH:
            return Found(high, is_open=True, asked=asked)
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ask(middle) else (low, middle)
    for value in range(max(low - NEIGHBOURS, 1), low + NEIGHBOURS + 2):
        ask(value)
    failing = min(value for value, does_fit in asked.items() if not does_fit)
    below = [value for value, does_fit in asked.items() if does_fit and value < failing]
    again = sorted(value for value, does_fit in asked.items() if does_fit and value > failing)
    return Found(max(below, default=None), again, False, dict(sorted(asked.items())))
