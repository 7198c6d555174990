"""What a chart is: a question, the small tables that answer it, the drawing, and the answer in words.

No chart is known here, and nothing is written to a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import pyarrow as pa

from tracekit import ledger
from tracekit.errors import QueryError
from tracekit.ledger import Moment
from tracekit.warehouse import Warehouse

Row = dict[str, Any]
Drawing = alt.LayerChart | alt.FacetChart
"""What Altair makes of layers, in its own words."""

DRAWN_WIDTH = "drawn_width"
"""The parameter by which expressions know how wide a chart is drawn, for a page that draws it wider or narrower."""

LEGEND_COLUMNS = f"max(floor({DRAWN_WIDTH} / 105), 1)"
"""As many columns of a legend of buckets as are no wider than its chart."""

Tables = Mapping[str, pa.Table]
"""Small tables by the name under which the drawing asks for them."""

MOST_ROWS = 5000
"""Rows of any one table of a chart, however long the recording; the largest are kept, or the bins made wider."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a chart is asked about.

    Attributes:
        device: a device's ordinal; the one with the highest peak otherwise.
        moment: a moment's name as `tracekit ledger --at` knows it; each chart has its own where none is given.
        other: another dataset, for the chart that compares.
        other_moment: the moment on the other side of a comparison.
        names: what the two datasets of a comparison are called.
        sweep: points of a sweep or a fit, in the shape of `tracekit.charts.sweep.POINT`; no dataset has them.
        by_time: whether the horizontal axis is time rather than the number of the event.
        bins: runs of events that are told apart along the axis; fewer make a smaller file.
    """

    device: int | None = None
    moment: str | None = None
    other: Warehouse | None = None
    other_moment: str | None = None
    names: tuple[str, str] = ("first", "second")
    sweep: pa.Table | None = None
    by_time: bool = False
    bins: int = 900


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """What is drawn, in parts that can be tested apart, wherever its tables come from.

    Attributes:
        name: what it is called on the command line.
        title: what stands above it.
        question: the question that it answers, in one sentence.
        draw: the tables as a chart, whose data are named after them; `render.spec` puts the rows in.
        describe: the answer in words with the real numbers: the text for a reader who does not see the chart.
        table: which of its tables is shown to people beside the chart.
        params: names of the chart's Vega-Lite parameters that a page may drive or listen to, each with its meaning.
    """

    name: str
    title: str
    question: str
    draw: Callable[[Tables], alt.TopLevelMixin]
    describe: Callable[[Tables], str]
    table: str
    params: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart(Picture):
    """A picture of a dataset.

    Attributes:
        data: the tables it is drawn from, each of fewer than `MOST_ROWS` rows, made by the views of queries/report/.
        why_not: why there is nothing to draw for a dataset, in a sentence; None where there is.
    """

    data: Callable[[Warehouse, Request], dict[str, pa.Table]]
    why_not: Callable[[Warehouse, Request], str | None]


def summary_of(warehouse: Warehouse, request: Request) -> Row | None:
    """The row of device_summary of the device a chart is about; None where the recording speaks of no device at all.

    Raises:
        QueryError: where the recording has others, but not the one asked for.
    """
    rows = ledger.summaries(warehouse)
    if request.device is not None and request.device not in {row["device"] for row in rows}:
        known = ", ".join(str(row["device"]) for row in rows) or "none"
        raise QueryError(f"the recording has no device {request.device}", f"devices in it: {known}")
    wanted = [row for row in rows if request.device in (None, row["device"])]
    return max(wanted, key=lambda row: row["peak_allocated_bytes"], default=None)


def device_of(warehouse: Warehouse, request: Request) -> int:
    """The device a chart is about.

    Raises:
        QueryError: where the recording has no such device, or none at all.
    """
    row = summary_of(warehouse, request)
    if row is None:
        raise QueryError("no device has a segment or an event", "record some work on a GPU")
    return row["device"]


def moment_of(warehouse: Warehouse, request: Request, usual: str = "peak") -> Moment:
    """The moment a chart is about.

    Raises:
        QueryError: where there is no such device or moment.
    """
    (found,) = ledger.find_moments(warehouse, request.moment or usual, device_of(warehouse, request))
    return found


def empty(warehouse: Warehouse, request: Request) -> str | None:
    """Why a dataset has nothing to draw at all: it never reserved a byte."""
    row = summary_of(warehouse, request)
    if row is None or not row["highest_reserved_bytes"]:
        return "no byte was ever reserved from a device"
    return None


def without_events(warehouse: Warehouse, request: Request) -> str | None:
    """Why a chart over time has nothing to draw: a state has no events, or never reserved a byte."""
    row = summary_of(warehouse, request)
    if row is None or not row["event_count"]:
        return "no events were recorded, so there is only one state"
    return empty(warehouse, request)
