"""Each chart without its rows, as `golden/NAME.json`: what the drawing is, for a person to read.

Charts that the sample has nothing for are drawn from rows given here. After a change that is meant, write them anew
with `python -m tests.charts.golden` and read the difference.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.conftest import SAMPLE
from tracekit.analysis import analyze
from tracekit.charts import CHARTS, Chart, Request, render, sweep
from tracekit.charts.chart import Tables
from tracekit.units import GIB, MIB
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

FOLDER = Path(__file__).parent / "golden"

BESIDE = ("$schema", "description")
"""What a version of Altair adds, and the numbers in words, which have tests of their own."""

LINES = (
    # line, verdict, stacks, MiB at the beginnings of steps 2 to 5
    ("nll_loss_forward, train.py:12 train", "grows", 1, (1, 2, 3, 4)),
    ("empty, train.py:30 evaluate", "varies", 1, (6, 0, 9, 3)),
    ("zeros_like, adam.py:238 step", "stays", 1, (80, 80, 80, 80)),
    ("7 more", "the rest", 7, (40, 41, 40, 40)),
)

_POINTS = (
    # value, kind, GiB allocated and reserved, fits
    (2, "measured", 5, 6, True),
    (4, "measured", 9, 10, True),
    (8, "predicted", 17, 18, True),
    (16, "predicted", 20, 22, False),
)


def growth_rows() -> pa.Table:
    """What view growth_shown could say: a leak, what comes and goes, what stays, and the rest."""
    return pa.Table.from_pylist(
        [
            {
                "line_ix": line_ix,
                "line": line,
                "verdict": verdict,
                "stack_count": stacks,
                "step": step,
                "held_bytes": size * MIB,
                "change_bytes": (size - sizes[0]) * MIB,
                "allocation_count": size,
            }
            for line_ix, (line, verdict, stacks, sizes) in enumerate(LINES, 1)
            for step, size in enumerate(sizes, 2)
        ]
    )


def sweep_points() -> pa.Table:
    """What a fit could say under a ceiling: two values measured, one predicted to fit, one not."""
    return pa.Table.from_pylist(
        [
            {
                "value": str(value),
                "position": value,
                "kind": kind,
                "allocated_bytes": allocated * GIB,
                "reserved_bytes": reserved * GIB,
                "reserved_lowest_bytes": reserved * GIB,
                "reserved_highest_bytes": (reserved + (kind == "predicted")) * GIB,
                "fits": fits,
                "limit_bytes": 24 * GIB,
            }
            for value, kind, allocated, reserved, fits in _POINTS
        ],
        schema=sweep.POINT,
    )


def tables(chart: Chart, sample: Warehouse, request: Request | None = None) -> Tables:
    """What a chart is drawn from: the sample, or rows given here where the sample has none."""
    if chart.name == "growth":
        return {"growth": growth_rows()}
    if chart.name == "sweep":
        return sweep.tables(sweep_points())
    return chart.data(sample, request or Request())


def outline(chart: Chart, made: Tables) -> Row:
    """A chart as golden files keep it: without rows."""
    return {name: value for name, value in render.outline(chart, made).items() if name not in BESIDE}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        analyze(SAMPLE / "snapshot.pickle.xz", Path(folder) / "sample.tracekit")
        with Warehouse.open(Path(folder) / "sample.tracekit") as opened:
            for one in CHARTS.values():
                text = json.dumps(outline(one, tables(one, opened)), indent=1, ensure_ascii=False)
                (FOLDER / f"{one.name}.json").write_text(text + "\n", encoding="utf-8")
