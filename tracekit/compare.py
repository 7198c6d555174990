"""Two datasets of one program held against each other: an estimate and its recording, or two recordings.

Allocations are aligned in their order by size, and by who asked and when; the account is set side by side. Rows come
out finished; nothing is printed here.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tracekit import ledger
from tracekit.errors import TracekitError
from tracekit.fit.align import MATCHED, MOST_DIFFERENCES, Pair, align
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

SIDES = ("first", "second")
_PEAKS = ("peak_allocated_bytes", "peak_requested_bytes", "highest_reserved_bytes")
_TOLD = ("operator", "autograd_node", "bucket")
"""What two allocations of one size may agree or differ in, where both tell it."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two datasets.

    Attributes:
        name: what the person called it.
        device: the device that is looked at.
        summary: its row of device_summary.
        allocations: its rows of allocation_story, by birth; those older than the recording first.
        ledger: its account at its peak.
    """

    name: str
    device: int
    summary: Row
    allocations: list[Row]
    ledger: list[Row]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two datasets have in common, and what not.

    Attributes:
        sides: the two.
        pairs: positions of allocations that are the same in both, or the same but for their size.
        first: the earliest divergence in words and numbers; None where there is none.
        peaks: rows of name, first_bytes, second_bytes, difference_bytes.
        buckets: the same for each line of the account at each side's peak.
        divergences: what only one side has, keeps longer or makes larger (then with the bytes it is larger by): by
            kind, phase and who asked, the most bytes first.
    """

    sides: tuple[Side, Side]
    pairs: list[Pair]
    first: Row | None
    peaks: list[Row]
    buckets: list[Row]
    divergences: list[Row]

    def sizes(self, pair: Pair) -> tuple[int, int]:
        """Bytes that either side asked for."""
        return _sizes(self.sides, pair)

    def as_json(self) -> Row:
        """The comparison in the shape of `tracekit compare --format json`."""
        return {
            "first": self.sides[0].name,
            "second": self.sides[1].name,
            "first_allocation_count": len(self.sides[0].allocations),
            "second_allocation_count": len(self.sides[1].allocations),
            "matched_count": len(self.pairs) - sum(one != other for one, other in map(self.sizes, self.pairs)),
            "resized_count": sum(one != other for one, other in map(self.sizes, self.pairs)),
            "first_divergence": self.first,
            "peaks": self.peaks,
            "buckets": self.buckets,
            "divergences": self.divergences,
        }


def _sizes(sides: tuple[Side, Side], pair: Pair) -> tuple[int, int]:
    one, other = (side.allocations[at]["requested_bytes"] for side, at in zip(sides, pair, strict=True))
    return one, other


def read(name: str, warehouse: Warehouse, device: int | None = None) -> Side:
    """Take what is compared out of a dataset.

    Args:
        name: what to call it.
        warehouse: the dataset.
        device: the device to look at; the one with the most events otherwise.

    Raises:
        TracekitError: where it has no such device, or no events.
    """
    rows = [row for row in ledger.summaries(warehouse) if device in (None, row["device"]) and row["event_count"]]
    if not rows:
        where = "" if device is None else f" on device {device}"
        raise TracekitError(f"{name} has no events{where} to compare", "give a dataset with events on that device")
    summary = max(rows, key=lambda row: row["event_count"])
    chosen = summary["device"]
    allocations = warehouse.rows(
        "select birth_event_ix, free_requested_event_ix, requested_bytes, held_bytes, step, phase, requested_by,"
        " operator, autograd_node, user_frame, bucket from allocation_story where device = ? and requested_bytes > 0"
        " order by birth_event_ix nulls first, allocation_id",
        [chosen],
    )
    (moment,) = ledger.find_moments(warehouse, "peak", chosen)
    return Side(name, chosen, summary, allocations, ledger.lines(warehouse, moment))


def compare(first: Side, second: Side) -> Comparison:
    """Align the allocations of two datasets and set their accounts side by side.

    Raises:
        TracekitError: where they have too little in common to be aligned.
    """
    sides = (first, second)
    pairs = _aligned(first.allocations, second.allocations)
    if pairs is None:
        raise TracekitError(
            f"{first.name} and {second.name} have too little in common: more than {MOST_DIFFERENCES:,} allocations have"
            " no partner",
            "compare runs of one program, at the same batch and with the same number of steps",
        )
    longer = _kept_longer(sides, pairs)
    return Comparison(
        sides,
        pairs,
        _first_divergence(sides, pairs, longer),
        [_beside(name, first.summary[name], second.summary[name]) for name in _PEAKS],
        _buckets(first.ledger, second.ledger),
        _grouped(_divergent(sides, pairs, longer)),
    )


def _aligned(first: Sequence[Row], second: Sequence[Row]) -> list[Pair] | None:
    """Pairs in order: of one size and in one step; between those, of another size where all that is told agrees."""
    has_steps = all(any(row["step"] is not None for row in rows) for rows in (first, second))

    def tokens(rows: Sequence[Row], name: str) -> list[tuple[object, object]]:
        return [(row[name], row["step"] if has_steps else None) for row in rows]

    def sense(one: int, other: int) -> int:
        mine, its = first[one], second[other]
        told = [(mine[name], its[name]) for name in _TOLD if mine[name] is not None and its[name] is not None]
        agreed = sum(1 if left == right else -1 for left, right in told)
        if mine["requested_bytes"] == its["requested_bytes"]:
            return agreed + 1
        return agreed if told and agreed == len(told) else -MATCHED - 1

    fine = tokens(first, "requested_bytes"), tokens(second, "requested_bytes")
    return align(fine, (tokens(first, "phase"), tokens(second, "phase")), sense)


def _ends(rows: Sequence[Row], matched: Sequence[int]) -> list[int]:
    """How many of the matched allocations had been made when each of them was dropped; all of them for what was not."""
    births = [-1 if rows[at]["birth_event_ix"] is None else rows[at]["birth_event_ix"] for at in matched]
    frees = [rows[at]["free_requested_event_ix"] for at in matched]
    return [len(births) if free is None else bisect_left(births, free) for free in frees]


def _kept_longer(sides: tuple[Side, Side], pairs: Sequence[Pair]) -> list[tuple[int, int, int]]:
    """Pairs that one side keeps longer: the pair's number, that side, and the matched allocation at which they part."""
    ends = [_ends(side.allocations, [pair[index] for pair in pairs]) for index, side in enumerate(sides)]
    return [
        (number, int(one < other), min(one, other))
        for number, (one, other) in enumerate(zip(*ends, strict=True))
        if one != other
    ]


def _first_divergence(
    sides: tuple[Side, Side], pairs: Sequence[Pair], longer: Iterable[tuple[int, int, int]]
) -> Row | None:
    """The earliest allocation that only one side has, or that the other had let go of by then."""
    found: list[tuple[int, Row]] = []
    for index, side in enumerate(sides):
        at = next((at for at, pair in enumerate(pairs) if pair[index] != at), len(pairs))
        if at < len(side.allocations) and (at == len(pairs) or pairs[at][index] != at):
            found.append((at, {"kind": f"only in {SIDES[index]}", **_described(side.allocations[at])}))
    for number, pair in enumerate(pairs):
        one, other = _sizes(sides, pair)
        if one != other:
            index = int(one < other)
            said = {"kind": f"larger in {SIDES[index]}", **_described(sides[index].allocations[pair[index]])}
            found.append((number, said | {"smaller_bytes": min(one, other)}))
            break
    parted = min(longer, key=lambda one: one[2], default=None)
    if parted is not None:
        number, index, when = parted
        row = sides[index].allocations[pairs[number][index]]
        other = sides[1 - index].allocations[pairs[number][1 - index]]
        said = {"kind": f"kept longer in {SIDES[index]}", **_described(row)}
        found.append((when, said | {"dropped_event_ix": other["free_requested_event_ix"]}))
    return min(found, key=lambda one: one[0])[1] if found else None


def _described(row: Row) -> Row:
    names = ("requested_bytes", "requested_by", "phase", "step", "bucket", "user_frame", "birth_event_ix")
    return {name: row[name] for name in names}


def _beside(name: str, one: int | None, other: int | None) -> Row:
    return {
        "name": name.removesuffix("_bytes"),
        "first_bytes": one,
        "second_bytes": other,
        "difference_bytes": None if one is None or other is None else one - other,
    }


def _buckets(first: Sequence[Row], second: Sequence[Row]) -> list[Row]:
    """The two accounts at their peaks, line by line, in the ledger's order."""
    sizes = [{row["bucket"]: row["entry_bytes"] for row in rows} for rows in (first, second)]
    return [
        _beside(name, sizes[0].get(name, 0), sizes[1].get(name, 0)) for name in dict.fromkeys([*sizes[0], *sizes[1]])
    ]


def _divergent(
    sides: tuple[Side, Side], pairs: Sequence[Pair], longer: Iterable[tuple[int, int, int]]
) -> Iterator[tuple[str, Row]]:
    """Every allocation that only one side has, or keeps longer, with the word for it."""
    for index, side in enumerate(sides):
        matched = {pair[index] for pair in pairs}
        yield from ((f"only in {SIDES[index]}", row) for at, row in enumerate(side.allocations) if at not in matched)
    for pair in pairs:
        one, other = _sizes(sides, pair)
        if one != other:
            index = int(one < other)
            row = sides[index].allocations[pair[index]]
            yield f"larger in {SIDES[index]}", row | {"requested_bytes": abs(one - other)}
    for number, index, _ in longer:
        yield f"kept longer in {SIDES[index]}", sides[index].allocations[pairs[number][index]]


def _grouped(divergent: Iterable[tuple[str, Row]]) -> list[Row]:
    """Divergences of one kind, in one phase, by one who asked: how many, and their bytes."""
    groups: defaultdict[tuple[str, str | None, str | None], list[int]] = defaultdict(list)
    for kind, row in divergent:
        groups[kind, row["phase"], row["requested_by"]].append(row["requested_bytes"])
    return [
        {
            "kind": kind,
            "phase": phase,
            "requested_by": asker,
            "allocation_count": len(found),
            "requested_bytes": sum(found),
            "largest_bytes": max(found),
        }
        for (kind, phase, asker), found in sorted(groups.items(), key=lambda item: -sum(item[1]))
    ]
