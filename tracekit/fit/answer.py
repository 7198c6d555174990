"""What becomes of the program at a point: run under a limit, under several layouts of its segments.

Runs only; which points are worth a run is `tracekit.fit.search`'s to say, and words are the command's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tracekit.allocator.device import Layout, ascending, descending, shuffled
from tracekit.allocator.driver import as_driven
from tracekit.allocator.program import ALLOCATE, Program
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import Outcome, run
from tracekit.collector import paused
from tracekit.fit.model import Model
from tracekit.fit.rule import Point
from tracekit.fit.source import Source

MOST_LAYOUTS = 12
"""Layouts tried at each point, where the program is short enough."""

_OPERATIONS = 200_000
"""Operations that one point may take in all; a long program is run under fewer layouts, but under two at least."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a program is run under.

    Attributes:
        limit: bytes that may be reserved in all; None is no limit.
        margin: bytes of the limit to keep free.
        settings: the allocator's settings; those of the recording where None.
    """

    limit: int | None = None
    margin: int = 0
    settings: Settings | None = None

    @property
    def reservable(self) -> int | None:
        """What a run may reserve."""
        return None if self.limit is None else self.limit - self.margin


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the program at a point.

    Attributes:
        point: the point.
        program: the program there.
        source: the recording that its events are those of.
        is_recorded: whether the program is a recorded one, not a generated one.
        outcome: of the run under the likeliest layout.
        failed: an outcome that did not fit, the likeliest layout's first; None where all fitted.
        allocated: the lowest and the highest peak of allocated bytes among the layouts.
        reserved: the lowest and the highest peak of reserved bytes.
        fit_count: layouts under which it fits.
        layout_count: layouts tried.
    """

    point: Point
    program: Program
    source: Source
    is_recorded: bool
    outcome: Outcome
    failed: Outcome | None
    allocated: tuple[int, int]
    reserved: tuple[int, int]
    fit_count: int
    layout_count: int

    @property
    def fits(self) -> bool:
        """Whether it fits wherever its segments come to lie."""
        return self.failed is None

    @property
    def is_measured(self) -> bool:
        """Whether the figures are those of the recording: the same settings, and no limit that was felt."""
        same = self.outcome.settings.describe() == self.source.program.settings.describe()
        return self.is_recorded and same and self.outcome.fits and not self.outcome.retries


def answer(model: Model, point: Point, conditions: Conditions) -> Answer:
    """Run the program at a point under each layout.

    The address of a segment only breaks ties between free blocks of the same size, and where segments that nobody
    recorded would lie is not known. What was recorded, under its own settings, is run as it lay and no other way.
    """
    program, source = model.stream(point)
    is_recorded = model.recorded_at(point) is not None
    keeps_opening = None if is_recorded else model.keeps_opening
    count = min(max(_OPERATIONS // max(len(program), 1), 2), MOST_LAYOUTS)
    if is_recorded and conditions.settings in (None, program.settings):
        count = 1
    with paused():
        outcomes = [
            run(program, conditions.settings, conditions.reservable, layout, keeps_opening, keeps_events=False)
            for layout in islice(_layouts(program, is_recorded=is_recorded), count)
        ]
    allocated = [outcome.peak_allocated.value for outcome in outcomes]
    reserved = [outcome.peak_reserved.value for outcome in outcomes]
    return Answer(
        point,
        program,
        source,
        is_recorded,
        outcomes[0],
        next((outcome for outcome in outcomes if not outcome.fits), None),
        (min(allocated), max(allocated)),
        (min(reserved), max(reserved)),
        sum(outcome.fits for outcome in outcomes),
        len(outcomes),
    )


def request_at(program: Program, event_ix: int | None) -> int | None:
    """The bytes that were asked for at an event of the recording, None where nothing was."""
    for kind, number, source_ix in zip(program.kind, program.number, program.source_ix, strict=True):
        if kind == ALLOCATE and source_ix == event_ix and event_ix is not None:
            return program.requested[number]
    return None


def likeliest(program: Program, *, is_recorded: bool) -> Layout | None:
    """Where segments most likely lie: of a recorded program, where they lay; else, where the driver would go on.

    None is the former, as `run` takes it; so it is for expandable segments, whose ranges are few and lie anywhere.
    """
    return None if is_recorded or program.range_bases else as_driven(program.bases)


def _layouts(program: Program, *, is_recorded: bool) -> Iterator[Layout | None]:
    yield likeliest(program, is_recorded=is_recorded)
    yield descending()
    yield ascending()
    seed = 0
    while True:
        yield shuffled(seed)
        seed += 1
