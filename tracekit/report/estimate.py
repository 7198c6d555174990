"""The interactive page of an estimate: a step chosen on the left, its nine moments and its ledger on the right.

The page knows no formula: what it gets are the tensors that `tracekit.estimate` made, as products of sizes, and it
multiplies and adds. It is estimate.html, estimate.css and estimate.js beside this file, over the style of page.css.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2

from tracekit import __version__
from tracekit.charts import render, theme
from tracekit.estimate.answer import Answer, assumptions, settings
from tracekit.estimate.fit import RESERVED_AT_MOST
from tracekit.estimate.ledger import BUCKETS
from tracekit.estimate.levers import LEVERS
from tracekit.estimate.moments import MOMENTS, PLACES, place_sizes
from tracekit.estimate.rows import presets
from tracekit.estimate.run import ADAPTED, CHUNK_ROWS, Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.static import trained_sizes
from tracekit.estimate.templates import KINDS, Templates, choices
from tracekit.estimate.traced.cards import CARDS
from tracekit.report import embed

Row = dict[str, Any]

_HERE = Path(__file__).resolve().parent


def html(one: Answer) -> str:
    """The page of an estimate, self-contained: its model and every preset, its run as the first choice.

    Args:
        one: the estimate of a training step.
    """
    script = _file("estimate.js")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    return environment.from_string(_file("estimate.html")).render(
        version=__version__,
        policy=embed.policy([script]),
        style=_file("page.css") + _file("estimate.css"),
        script=script,
        payload=render.script_json(payload(one)),
        assumptions=_lasting(one),
    )


def payload(one: Answer) -> Row:
    """What estimate.js reads."""
    shape, run = one.estimate.shape, one.estimate.run
    shapes = [shape, *(known for name, known in presets().items() if name != shape.name)]
    return {
        "models": [_model(known, run) for known in shapes],
        "templates": Templates(shapes, run).as_json(),
        "places": [
            {
                "moment": [name for name, _, _ in MOMENTS].index(place.moment),
                "name": place.name,
                "kind": KINDS.index((place.kind, place.part)),
            }
            for place in PLACES
        ],
        "moments": [{"name": name, "meaning": meaning} for name, _, meaning in MOMENTS],
        "buckets": [{"name": name, "colour": theme.colour(name)} for name in BUCKETS],
        "choices": {name: [_word(value) for value in values] for name, values in choices().items()},
        "cards": [
            {"name": card.name, "limit": card.total_bytes, "workspace": card.cublas_workspace}
            for card in sorted(CARDS.values(), key=lambda card: card.total_bytes)
        ],
        "chosen": {
            **{name: _word(getattr(run, name)) for name in choices()},
            "batch": run.batch,
            "sequence": run.sequence,
            "ranks": run.ranks,
        },
        "limit": one.limit_bytes,
        "rank": run.rank,
        "workspace": run.workspace_bytes,
        "chunk_rows": CHUNK_ROWS,
        "reserved_at_most": [RESERVED_AT_MOST.numerator, RESERVED_AT_MOST.denominator],
        "levers": _levers(run),
    }


def _model(shape: Shape, run: Run) -> Row:
    """A model's sizes, by what is trained of it, and the blocks around each place."""
    return {
        "name": shape.name,
        "positions": shape.positions if shape.has_learned_positions else None,
        "sizes": {adapted: shape.sizes | trained_sizes(shape, replace(run, adapted=adapted)) for adapted in ADAPTED},
        "around": [[around["before"], around["after"]] for around in place_sizes(shape.layers).values()],
    }


def _levers(run: Run) -> list[Row]:
    """The levers that are one choice among those of the page: what they set."""
    # a run in which no lever is pulled yet, so that each shows in what it changes
    idle = replace(Run(), attention="eager", precision=run.precision, workspace_bytes=run.workspace_bytes)
    names = (*choices(), "batch", "sequence", "ranks")
    levers: list[Row] = []
    for lever in LEVERS:
        after = lever.change(idle)
        sets = {name: _word(getattr(after, name)) for name in names if getattr(after, name) != getattr(idle, name)}
        if sets and not {"batch", "sequence"} & sets.keys():
            levers.append({"name": lever.name, "cost": lever.cost, "sets": sets})
    return levers


def _word(value: Any) -> Any:
    """A choice as the page shows it."""
    return getattr(value, "name", value)


def _lasting(one: Answer) -> Sequence[str]:
    """The assumptions that hold whatever a person chooses in the page."""
    run = one.estimate.run
    plain = replace(Run(), code=run.code, logits=run.logits, workspace_bytes=run.workspace_bytes)
    kept = assumptions(replace(one, estimate=replace(one.estimate, run=plain)))
    chosen = settings(one)
    return [*kept, f"adapters have rank {run.rank}; dropout is {'on' if chosen['dropout'] else 'off'}"]


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")
