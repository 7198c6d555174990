"""Two sequences matched item by item: first by what is known best of each item, then by what is known at least.

Pure: tokens and numbers in, pairs of positions out. What a token is, and when a pair makes sense, the caller says.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from itertools import compress, pairwise

Pair = tuple[int, int]

Sense = Callable[[int, int], int]
"""How much sense a pair of items with equal tokens makes: more is better, less than `-MATCHED` is no pair at all."""

MATCHED = 4
"""What a match is worth by itself, on the scale of `Sense`."""

MOST_DIFFERENCES = 2_000
"""Items without a partner in a block beyond which sequences are called different; work grows with their square."""

BLOCK = 20_000
"""Items that are matched at a time; of a block the first half is kept, and the next begins where that ends."""

REACH = 32
"""Matches away from an item without a partner, up to which a doubtful match is undone and made anew."""

_LARGEST_GAP = 1_000_000
"""Pairs of items in a gap, beyond which the fewest unmatched are looked for and not the most sense."""

Tokens = Sequence[Hashable]


def align(
    fine: tuple[Tokens, Tokens],
    coarse: tuple[Tokens, Tokens],
    sense: Sense,
    is_doubtful: Callable[[int, int], bool] = lambda _, __: False,
) -> list[Pair] | None:
    """Match two sequences in order.

    Fine tokens are matched so that the fewest items are left; what is left between two matches is matched by coarse
    tokens so that it makes most sense. Where items are left, counting does not say which of their neighbours they are:
    doubtful matches near them are undone first.

    Args:
        fine: the tokens of either sequence; equal ones are the same item as far as can be known.
        coarse: tokens, item by item, of which more are equal.
        sense: asked of two items in a gap.
        is_doubtful: asked of two items with equal fine tokens, whether they may be of two kinds all the same.

    Returns:
        Pairs of positions, ascending in both; None where more than `MOST_DIFFERENCES` items of a block have no partner.
    """
    ours, theirs = _numbered(*fine)
    anchors = _fewest_unmatched(ours, theirs)
    if anchors is None:
        return None
    first, second = _numbered(*coarse)
    end = len(first), len(second)

    def filled(matched: list[Pair], begin: Pair, end: Pair, undone: list[Pair]) -> list[Pair]:
        """Matches, and others in the gaps between them; what was undone is done again where a gap is too large."""
        pairs: list[Pair] = []
        before = begin
        for anchor in (*matched, end):
            rows, columns = range(before[0] + 1, anchor[0]), range(before[1] + 1, anchor[1])
            between = undone[bisect_right(undone, before) : bisect_left(undone, anchor)]
            if between and len(rows) * len(columns) > _LARGEST_GAP:
                pairs += filled(between, before, anchor, [])
            elif rows and columns:
                pairs += _in_gap(rows, columns, first, second, sense)
            pairs.append(anchor)
            before = anchor
        return pairs[:-1]

    doubtful = _doubtful(anchors, end, is_doubtful)
    firm = [anchor for anchor, is_one in zip(anchors, doubtful, strict=True) if not is_one]
    return filled(firm, (-1, -1), end, list(compress(anchors, doubtful)))


def _doubtful(anchors: list[Pair], end: Pair, is_doubtful: Callable[[int, int], bool]) -> list[bool]:
    """Which matches have an item without a partner near them, and are not sure by themselves."""
    gaps = [
        at
        for at, (before, after) in enumerate(pairwise(((-1, -1), *anchors, end)))
        if after[0] - before[0] > 1 or after[1] - before[1] > 1
    ]
    near = [False] * len(anchors)
    for gap in gaps:
        for at in range(max(gap - REACH, 0), min(gap + REACH, len(anchors))):
            near[at] = True
    return [is_near and is_doubtful(*anchor) for anchor, is_near in zip(anchors, near, strict=True)]


def _numbered(*sequences: Tokens) -> list[list[int]]:
    """Tokens as numbers, equal ones as the same."""
    numbers: dict[Hashable, int] = {}
    return [[numbers.setdefault(token, len(numbers)) for token in sequence] for sequence in sequences]


def _in_gap(ours: range, theirs: range, first: Sequence[int], second: Sequence[int], sense: Sense) -> list[Pair]:
    if len(ours) * len(theirs) <= _LARGEST_GAP:
        return _most_sense(ours, theirs, first, second, sense)
    matched = _fewest_unmatched(first[ours.start : ours.stop], second[theirs.start : theirs.stop])
    return [(ours[one], theirs[other]) for one, other in matched or ()]


def _fewest_unmatched(first: Sequence[int], second: Sequence[int]) -> list[Pair] | None:
    """The matching that leaves the fewest items, block by block; None where a block leaves too many."""
    pairs: list[Pair] = []
    at, other = 0, 0
    while at < len(first) and other < len(second):
        found = _in_block(first[at : at + BLOCK], second[other : other + BLOCK])
        is_last = at + BLOCK >= len(first) and other + BLOCK >= len(second)
        kept = found if is_last else [pair for pair in found or () if max(pair) < BLOCK // 2]
        if found is None or (not kept and not is_last):
            return None
        pairs += [(at + one, other + two) for one, two in kept or ()]
        if is_last:
            break
        at, other = pairs[-1][0] + 1, pairs[-1][1] + 1
    return pairs


def _in_block(first: Sequence[int], second: Sequence[int]) -> list[Pair] | None:
    """A longest common subsequence, after E. W. Myers, "An O(ND) difference algorithm and its variations" (1986)."""
    begin = 0
    shorter = min(len(first), len(second))
    while begin < shorter and first[begin] == second[begin]:
        begin += 1
    tail = 0
    while tail < shorter - begin and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    ours, theirs = first[begin : len(first) - tail], second[begin : len(second) - tail]
    middle = _myers(ours, theirs)
    if middle is None:
        return None
    return [
        *((at, at) for at in range(begin)),
        *((begin + one, begin + other) for one, other in middle),
        *((len(first) - tail + at, len(second) - tail + at) for at in range(tail)),
    ]


def _myers(first: Sequence[int], second: Sequence[int]) -> list[Pair] | None:
    ours, theirs = len(first), len(second)
    furthest = {1: 0}
    rounds: list[dict[int, int]] = []
    for differences in range(min(ours + theirs, MOST_DIFFERENCES) + 1):
        reached: dict[int, int] = {}
        rounds.append(furthest)
        for diagonal in range(-differences, differences + 1, 2):
            below, right = furthest.get(diagonal + 1, -1), furthest.get(diagonal - 1, -1) + 1
            at = below if diagonal == -differences or (diagonal != differences and right <= below) else right
            other = at - diagonal
            while at < ours and other < theirs and first[at] == second[other]:
                at += 1
                other += 1
            reached[diagonal] = at
            if at >= ours and other >= theirs:
                return _backwards(rounds, ours, theirs)
        furthest = reached
    return None


def _backwards(rounds: list[dict[int, int]], at: int, other: int) -> list[Pair]:
    """The matched pairs on the way that was found, from its end to its beginning."""
    pairs: list[Pair] = []
    for differences in range(len(rounds) - 1, -1, -1):
        furthest, diagonal = rounds[differences], at - other
        below, right = furthest.get(diagonal + 1, -1), furthest.get(diagonal - 1, -1) + 1
        goes_down = diagonal == -differences or (diagonal != differences and right <= below)
        before = below if goes_down else right - 1
        before_other = before - (diagonal + 1 if goes_down else diagonal - 1)
        start = below if goes_down else right
        while at > start and at > 0 and other > 0:
            at -= 1
            other -= 1
            pairs.append((at, other))
        at, other = before, before_other
    pairs.reverse()
    return pairs


def _most_sense(ours: range, theirs: range, first: Sequence[int], second: Sequence[int], sense: Sense) -> list[Pair]:
    """The matching in order whose pairs make most sense together, by dynamic programming."""
    width = len(theirs)
    above = [0] * (width + 1)
    choices: list[bytearray] = []
    for one in ours:
        token = first[one]
        row, choice, best = [0] * (width + 1), bytearray(width), 0
        for column, other in enumerate(theirs):
            picked, value = (1, above[column + 1]) if above[column + 1] >= best else (2, best)
            if second[other] == token:
                matched = above[column] + MATCHED + sense(one, other)
                if matched >= value:
                    picked, value = 0, matched
            choice[column] = picked
            row[column + 1] = best = value
        choices.append(choice)
        above = row
    pairs: list[Pair] = []
    at, column = len(ours), width
    while at and column:
        picked = choices[at - 1][column - 1]
        if picked == 0:
            pairs.append((ours[at - 1], theirs[column - 1]))
        at -= picked != 2
        column -= picked != 1
    pairs.reverse()
    return pairs
