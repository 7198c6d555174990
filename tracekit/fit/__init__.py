"""Any batch, or length, from a few recorded ones, and the largest that fits.

Every size is a rule of the variables, the order of events stays, and the allocator is run again: `source` reads a
recording, `align` matches two, `rule` learns a size, `model` puts these together, `answer` runs the program at a point,
`search` finds the largest that fits, `remedy` says what would make another fit, `report` tells all of it in rows,
`output` makes tables of the generated stream. Nothing is printed here.

    sources = [fit.read((8,), "gpt2_b8", warehouse), fit.read((16,), "gpt2_b16", other)]
    fitted = fit.fit(fit.build(["batch"], sources), fit.Conditions(limit), at=[(18,), (20,)], others=())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tracekit.fit.answer import Answer, Conditions, answer
from tracekit.fit.model import Model, build, told
from tracekit.fit.output import tables_at
from tracekit.fit.rule import Point
from tracekit.fit.search import Found, largest
from tracekit.fit.source import Source, read

__all__ = ["Answer", "Conditions", "Fitted", "Found", "Model", "Source", "build", "fit", "read", "tables_at", "told"]


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was asked, and the answers.

    Attributes:
        model: the program with its rules.
        conditions: what it was run under.
        answers: by point, ascending: those that were asked for, the recorded ones, and those around the largest.
        found: what the search found, None where there was none.
        others: the values after the first that it was searched at.
    """

    model: Model
    conditions: Conditions
    answers: dict[Point, Answer]
    found: Found | None
    others: Point = ()


def fit(
    model: Model,
    conditions: Conditions,
    at: Sequence[Point] = (),
    others: Point | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Fitted:
    """Answer at points, and find the largest value of the first variable that fits.

    Args:
        model: the program with its rules.
        conditions: the limit and the settings.
        at: points asked for.
        others: the values of the variables after the first, at which the largest is searched: () for one variable;
            None does not search.
        tell: told what is being done.
    """
    answers: dict[Point, Answer] = {}

    def ask(point: Point) -> Answer:
        if point not in answers:
            tell(f"{' x '.join(model.variables)} {told(point)}")
            answers[point] = answer(model, point, conditions)
        return answers[point]

    for point in (*at, *(source.point for source in model.sources)):
        ask(point)
    found = None
    if others is not None:
        first = max(source.point[0] for source in model.sources)
        found = largest(lambda value: ask((value, *others)).fits, first)
        edge = found.largest or 0
        shown = {edge, edge + 1, *found.again}
        wanted = {*at, *(source.point for source in model.sources), *((value, *others) for value in shown)}
        answers = {point: one for point, one in answers.items() if point in wanted}
    return Fitted(model, conditions, dict(sorted(answers.items())), found, others or ())
