"""Pictures of a dataset: each answers one question from small tables made by queries/report/.

One file a chart; `CHARTS` is the list of them.
"""

from __future__ import annotations

from tracekit.charts import allocations, compare, flame, growth, ledger, segments, step, sweep, timeline
from tracekit.charts.chart import Chart, Request
from tracekit.errors import ChartError

__all__ = ["CHARTS", "Chart", "Request", "named"]

_FILES = (timeline, step, ledger, compare, flame, segments, allocations, growth, sweep)

CHARTS: dict[str, Chart] = {file.CHART.name: file.CHART for file in _FILES}
"""Every chart by the name that `tracekit chart` knows, in the order in which a page shows them."""


def named(name: str) -> Chart:
    """The chart of a name.

    Raises:
        ChartError: where there is none.
    """
    if name not in CHARTS:
        raise ChartError(f"there is no chart called {name!r}", f"charts: {', '.join(CHARTS)}")
    return CHARTS[name]
