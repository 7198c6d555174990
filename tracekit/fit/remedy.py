"""What would make a point fit: allocator settings that do, and buckets that would have to shrink, each by a run.

Nothing is ever subtracted from a peak: with other sizes the peak may lie elsewhere, and blocks fall otherwise.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from tracekit import what_if
from tracekit.allocator.program import ALLOCATE, COMPLETE, Program
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import Outcome, run
from tracekit.collector import paused
from tracekit.fit.answer import Answer, Conditions, answer
from tracekit.fit.model import Model
from tracekit.fit.rule import Point

LEAST_SHARE = 100
"""A bucket is looked at where it has more than one in so many of the bytes of the largest one."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """A bucket with all of its allocations smaller.

    Attributes:
        bucket: the bucket.
        held_bytes: what it asks for at once, at most, at its full size.
        percent: the largest share of its size at which the program fits; None where it does not fit even without it.
        outcome: of the run at that share, or without it.
    """

    bucket: str
    held_bytes: int
    percent: int | None
    outcome: Outcome


def settings_tried(model: Model, point: Point, conditions: Conditions) -> list[tuple[str, Answer]]:
    """A point under each of the settings that are worth a try in general, as it is answered under any."""
    base = model.template.program.settings
    seen: dict[Settings, str] = {}
    for name in ("recorded", *what_if.SUGGESTED):
        seen.setdefault(what_if.chosen_settings(base, name), name)
    return [(name, answer(model, point, replace(conditions, settings=settings))) for settings, name in seen.items()]


def buckets_tried(answered: Answer, conditions: Conditions) -> list[Shrunk]:
    """How far each bucket alone would have to shrink, largest bucket first."""
    held = _held(answered.program, answered.source.bucket)
    floor = max(held.values(), default=0) // LEAST_SHARE
    return [_shrunk(answered, conditions, bucket, size) for bucket, size in held.most_common() if size > floor]


def _shrunk(answered: Answer, conditions: Conditions, bucket: str, held: int) -> Shrunk:
    """Halve between nothing and all of it: whole percents, and the one that is told was run."""
    chosen = [name == bucket for name in answered.source.bucket]

    def outcome(percent: int) -> Outcome:
        with paused():
            program = _scaled(answered.program, chosen, percent)
            return run(program, conditions.settings, conditions.reservable, keeps_opening=False, keeps_events=False)

    low, high, best = 0, 100, outcome(0)
    if not best.fits:
        return Shrunk(bucket, held, None, best)
    while high - low > 1:
        middle = (low + high) // 2
        tried = outcome(middle)
        if tried.fits:
            low, best = middle, tried
        else:
            high = middle
    return Shrunk(bucket, held, low, best)


def _scaled(program: Program, chosen: list[bool], percent: int) -> Program:
    """The program with some allocations at a share of their size; without them at none of it."""
    requested = [
        -(-size * percent // 100) if is_chosen else size
        for size, is_chosen in zip(program.requested, chosen, strict=True)
    ]
    kept = [number < 0 or requested[number] > 0 for number in program.number]
    return replace(
        program,
        kind=_of(program.kind, kept),
        number=_of(program.number, kept),
        source_ix=_of(program.source_ix, kept),
        requested=requested,
        opening_count=sum(kept[: program.opening_count]),
    )


def _of(column: list[Any], kept: list[bool]) -> list[Any]:
    return [value for value, is_kept in zip(column, kept, strict=True) if is_kept]


def _held(program: Program, bucket: list[str | None]) -> Counter[str]:
    """What each bucket asks for at once, at most."""
    live: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for kind, number in zip(program.kind, program.number, strict=True):
        name = bucket[number] if number >= 0 else None
        if name is not None and kind == ALLOCATE:
            live[name] += program.requested[number]
            most[name] = max(most[name], live[name])
        elif name is not None and kind == COMPLETE:
            live[name] -= program.requested[number]
    return most
