"""What becomes of the program at a point: run under a limit, under several layouts of its segments.

Runs only; which points are worth a run is `tracekit.fit.search`'s to say, and words are the command's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tracekit.allocator.device import Layout, ascending, descending, shuffled
from tracekit.allocator.driver import as_driven
from tracekit.allocator.program import ALLOCATE, Program
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import Outcome, run
from tracekit.collector import paused
from tracekit.fit.model import Model
from tracekit.fit.rule import Point
from tracekit.fit.source import Source

FEW_LAYOUTS = 12
"""Layouts tried at each point, where the program is short enough."""

MANY_LAYOUTS = 64
"""Layouts tried where the first few do not agree on the reserved peak, and none of them has failed."""

_OPERATIONS = 500_000
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
        program: the program there; where it did not fit, the one that did not.
        source: the recording that its events are those of.
        is_recorded: whether the program is a recorded one, not a generated one.
        outcome: of the run under the likeliest layout.
        failed: an outcome that did not fit, the likeliest layout's first; None where all fitted.
        allocated: the lowest and the highest peak of allocated bytes among the runs.
        reserved: the lowest and the highest peak of reserved bytes.
        fit_count: runs in which it fits.
        run_count: runs under different layouts, and one with cautious sizes where some size has no rule.
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
    run_count: int

    @property
    def fits(self) -> bool:
        """Whether it fits in every run, wherever its segments come to lie."""
        return self.failed is None

    @property
    def told(self) -> Outcome:
        """The outcome to tell of: the one that did not fit, else the likeliest."""
        return self.failed or self.outcome

    @property
    def is_measured(self) -> bool:
        """Whether the figures are those of the recording: the same settings, and no limit that was felt."""
        same = self.outcome.settings.describe() == self.source.program.settings.describe()
        return self.is_recorded and same and self.outcome.fits and not self.outcome.retries


def answer(model: Model, point: Point, conditions: Conditions) -> Answer:
    """Run the program at a point under several layouts.

    The address of a segment only breaks ties between free blocks of the same size, and where segments that nobody
    recorded would lie is not known. Where a few layouts show that it matters, many are tried: rare ones count. What was
    recorded, under its own settings, is run as it lay and no other way. Where a size has no rule, one more run takes it
    as large as it may well be.
    """
    program, source = model.stream(point)
    is_recorded = model.recorded_at(point) is not None
    keeps_opening = None if is_recorded else model.keeps_opening
    affordable = max(_OPERATIONS // max(len(program), 1), 2)
    cautious = model.cautious(point)

    def carried_out(one: Program, layout: Layout | None) -> Outcome:
        return run(one, conditions.settings, conditions.reservable, layout, keeps_opening, keeps_events=False)

    outcomes: list[Outcome] = []
    with paused():
        for layout in _layouts(program, model, is_recorded=is_recorded):
            outcomes.append(carried_out(program, layout))
            if is_recorded and conditions.settings in (None, program.settings):
                break
            if len(outcomes) >= min(FEW_LAYOUTS, affordable) and _is_settled(outcomes):
                break
            if len(outcomes) >= min(MANY_LAYOUTS, affordable):
                break
        likely, failed = outcomes[0], next((outcome for outcome in outcomes if not outcome.fits), None)
        if cautious is not None:
            outcomes.append(carried_out(cautious, likeliest(cautious, is_recorded=is_recorded)))
            if failed is None and not outcomes[-1].fits:
                program, failed = cautious, outcomes[-1]
    allocated = [outcome.peak_allocated.value for outcome in outcomes]
    reserved = [outcome.peak_reserved.value for outcome in outcomes]
    return Answer(
        point,
        program,
        source,
        is_recorded,
        likely,
        failed,
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


def _is_settled(outcomes: list[Outcome]) -> bool:
    """Whether more layouts are unlikely to tell more: they agree, or one of them fails, which decides."""
    return len({outcome.peak_reserved.value for outcome in outcomes}) == 1 or not all(one.fits for one in outcomes)


def _layouts(program: Program, model: Model, *, is_recorded: bool) -> Iterator[Layout | None]:
    """The likeliest, what other processes of the same program would do, and others."""
    yield likeliest(program, is_recorded=is_recorded)
    for source in model.sources:
        if source.program.bases not in ([], program.bases):
            yield as_driven(source.program.bases)
    yield descending()
    yield ascending()
    seed = 0
    while True:
        yield shuffled(seed)
        seed += 1
