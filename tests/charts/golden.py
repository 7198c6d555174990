"""Each chart of the sample without its rows, as `golden/NAME.json`: what the drawing is, for a person to read.

After a change that is meant, write them anew with `python -m tests.charts.golden` and read the difference.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from tests.conftest import SAMPLE
from tracekit.analysis import analyze
from tracekit.charts import CHARTS, Chart, Request, render
from tracekit.warehouse import Warehouse

FOLDER = Path(__file__).parent / "golden"

BESIDE = ("$schema", "description")
"""What a version of Altair adds, and the numbers in words, which have tests of their own."""


def outline(chart: Chart, warehouse: Warehouse) -> dict[str, Any]:
    """A chart of the sample as golden files keep it: without rows."""
    drawn = render.outline(chart, chart.data(warehouse, Request()))
    return {name: value for name, value in drawn.items() if name not in BESIDE}


def drawable(warehouse: Warehouse) -> list[Chart]:
    return [chart for chart in CHARTS.values() if chart.why_not(warehouse, Request()) is None]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        analyze(SAMPLE / "snapshot.pickle.xz", Path(folder) / "sample.tracekit")
        with Warehouse.open(Path(folder) / "sample.tracekit") as sample:
            FOLDER.mkdir(exist_ok=True)
            for one in drawable(sample):
                text = json.dumps(outline(one, sample), indent=1, ensure_ascii=False)
                (FOLDER / f"{one.name}.json").write_text(text + "\n", encoding="utf-8")
