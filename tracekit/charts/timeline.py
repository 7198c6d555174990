"""`timeline`: every allocation and free in order, live bytes stacked by bucket under what is reserved.

An overview to choose a part of, the part in detail, and beside it the account at the event that is chosen. The rows are
binned by queries/report/timeline_event.sql so that no peak is lost.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from typing import Any

import altair as alt
import pyarrow as pa

from tracekit.charts import axis, stack, theme, words
from tracekit.charts.chart import DRAWN_WIDTH, Chart, Drawing, Request, Tables, device_of, without_events
from tracekit.units import format_mib, format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_WIDTH = 760
_HEIGHT = 340

_LABEL_HEIGHT = 14
_MOST_LABELS = 3
"""Marks that are named in the drawing, each on a line of its own; the words below the drawing name them all."""

_MOST_MARKS = 12
"""Failed requests that are pointed at; the first ones, as a program that goes on can fail thousands of times."""

_MOST_SPANS = 1000


_APART = alt.Resolve(scale=alt.ScaleResolveMap(color="independent", shape="independent"))
"""Each part has its own colours; told when a part is made, as Altair copies a whole chart for every later word."""


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """Kept events with their account (`timeline`), phases (`timeline_span`), peak and failures (`timeline_mark`).

    `stacked` names the buckets whose bytes `timeline` lists, `bucket` the most that each ever held, and when; `axis`
    says whether the axis is time.
    """
    device = device_of(warehouse, request)
    timeline, stacked = stack.split(warehouse.sql("from timeline(?, ?)", [device, request.bins]))
    has_time = timeline["time_us"].null_count <= 1
    return {
        "timeline": timeline,
        "stacked": stacked,
        "span": warehouse.sql("from timeline_span(?, ?)", [device, min(request.bins, _MOST_SPANS)]),
        "mark": warehouse.sql("from timeline_mark where device = ? limit ?", [device, 1 + _MOST_MARKS]),
        "bucket": warehouse.sql("from bucket_highest where device = ?", [device]),
        "axis": pa.table({"by_time": [request.by_time and has_time]}),
    }


def draw(tables: Tables) -> alt.TopLevelMixin:
    """Overview, phases and detail on the left, the account at the chosen event on the right."""
    events = tables["timeline"].to_pylist()
    marks = tables["mark"].to_pylist()
    x = _Across(events, by_time=bool(tables["axis"]["by_time"][0].as_py()))
    highest = max((row["reserved_bytes"] for row in events), default=1)
    buckets = [str(name) for name in tables["stacked"]["bucket"].to_pylist()]
    brush = alt.selection_interval(name="brush", encodings=["x"])
    # on the way up: between down and up the mark under the pointer may be another, and then nothing is clicked
    moment = alt.selection_point(
        name="moment",
        fields=["event_ix"],
        on="[pointerdown, window:pointerup] > pointerup[!event.button]",
        toggle=False,
        clear=False,
        empty=False,
        value=[{"event_ix": _first_moment(marks, events)}],
    )
    left = alt.vconcat(
        _band(x, None),
        _overview(x, highest, brush),
        _band(x, brush),
        _detail(x, highest, buckets, marks, brush, moment),
        spacing=4,
        resolve=_APART,
    )
    return alt.hconcat(
        left,
        _account(buckets, events, moment),
        spacing=24,
        resolve=_APART,
        params=[alt.param(name=DRAWN_WIDTH, value=_WIDTH).param],
        title=alt.Title("Every allocation and free, by what it is for", subtitle=_subtitle(tables)),
    )


class _Across:
    """The horizontal axis: the number of the event, or seconds since the first one."""

    def __init__(self, events: list[Row], *, by_time: bool) -> None:
        self.by_time = by_time
        self.field = "time_us" if by_time else "event_ix"
        self.begin, self.end = ("begin_us", "end_us") if by_time else ("begin_event_ix", "end_event_ix")
        places = [row[self.field] for row in events if row[self.field] is not None]
        begin = min(places, default=0)
        self.domain = [begin, max([begin + 1, *places])]

    def scale(self, brush: alt.Parameter | None) -> alt.Scale:
        if brush is None:
            return alt.Scale(domain=self.domain, nice=False, padding=0)
        # what is not brushed is shown whole; a domain of its own, so that no layer without rows is asked for one
        return alt.Scale(domain=self.domain, domainRaw=alt.ExprRef(f"brush.{self.field}"), nice=False, padding=0)

    def at(self, brush: alt.Parameter | None, labels: bool) -> alt.X:
        title = ("seconds since the first event" if self.by_time else "event") if labels else None
        label = "format(datum.value / 1e6, ',.3~f')" if self.by_time else "format(datum.value, ',')"
        words_of_axis = alt.Axis(title=title, labels=labels, ticks=labels, grid=False, labelExpr=label, tickCount=8)
        return alt.X(f"{self.field}:Q", scale=self.scale(brush), axis=words_of_axis)

    def shown(self) -> str:
        """A Vega expression for how much of the axis the detail shows."""
        whole = self.domain[1] - self.domain[0]
        return f"(brush.{self.field} ? brush.{self.field}[1] - brush.{self.field}[0] : {whole})"

    def shown_from(self) -> str:
        """A Vega expression for where the part begins that the detail shows."""
        return f"(brush.{self.field} ? brush.{self.field}[0] : {self.domain[0]})"

    def neighboured(self, chart: alt.Chart) -> alt.Chart:
        """With from_x and to_x: the part of the axis to which no other event is nearer."""
        begin, end = self.domain
        neighbours: list[Any] = [
            {"op": "lag", "field": self.field, "as": "before_x"},
            {"op": "lead", "field": self.field, "as": "after_x"},
        ]
        return chart.transform_window(
            neighbours,
            sort=[alt.SortField("event_ix")],
        ).transform_calculate(
            from_x=f"isValid(datum.before_x) ? (datum.before_x + datum.{self.field}) / 2 : {begin - 1}",
            to_x=f"isValid(datum.after_x) ? (datum.after_x + datum.{self.field}) / 2 : {end + 1}",
        )


def _rows(x: _Across) -> alt.Chart:
    chart = alt.Chart(alt.NamedData("timeline"))
    return chart.transform_filter("isValid(datum.time_us)") if x.by_time else chart


def _band(x: _Across, brush: alt.Parameter | None) -> Drawing:
    """Steps and phases; a name where there is room for it."""
    spans = alt.Chart(alt.NamedData("span"))
    at = alt.X(f"{x.begin}:Q", scale=x.scale(brush), axis=None, title=None)
    shown = x.shown() if brush is not None else str(x.domain[1] - x.domain[0])
    room = f"(datum.{x.end} - datum.{x.begin}) / {shown} * {DRAWN_WIDTH}"
    rects = (
        spans.transform_filter("isValid(datum.phase)")
        .mark_rect(clip=True, style="edge", strokeWidth=0.5)
        .encode(
            x=at,
            x2=f"{x.end}:Q",
            color=alt.Color("phase:N", scale=theme.phase_scale(), legend=None),
            tooltip=[
                alt.Tooltip("phase:N"),
                alt.Tooltip("step:Q"),
                alt.Tooltip("begin_event_ix:Q", title="first event", format=","),
                alt.Tooltip("end_event_ix:Q", title="ends before event", format=","),
                alt.Tooltip("span_count:Q", title="stands for phases", format=","),
            ],
        )
    )
    middle = f"(datum.{x.begin} + datum.{x.end}) / 2"
    names = (
        spans.transform_filter("isValid(datum.phase)")
        .transform_calculate(
            middle=middle,
            label=f"{room} > 6.5 * length(datum.phase) ? datum.phase : ''",
        )
        .mark_text(clip=True, baseline="middle", fontSize=10, style="on_band")
        .encode(x=alt.X("middle:Q", scale=x.scale(brush)), text="label:N")
    )
    steps = (
        spans.transform_filter("isValid(datum.step)")
        .transform_aggregate(begin=f"min({x.begin})", end=f"max({x.end})", groupby=["step"])
        .transform_calculate(
            middle="(datum.begin + datum.end) / 2",
            label=f"(datum.end - datum.begin) / {shown} * {DRAWN_WIDTH} > 42 ? 'step ' + datum.step : ''",
        )
        .mark_text(clip=False, baseline="bottom", fontSize=11, y=-3)
        .encode(x=alt.X("middle:Q", scale=x.scale(brush)), text="label:N")
    )
    layers = [rects, names] if brush is not None else [rects, names, steps]
    return alt.layer(*layers, width=_WIDTH, height=16)


def _overview(x: _Across, highest: int, brush: alt.Parameter) -> Drawing:
    """The allocated bytes alone, to choose a part of."""
    y = axis.bytes_axis(highest, None, 2)
    scale = axis.bytes_scale(highest, 2)
    area = (
        _rows(x)
        .properties(name="choosing")
        .mark_area(interpolate="step-after", style="quiet", opacity=0.6)
        .encode(x=x.at(None, labels=False), y=alt.Y("allocated_bytes:Q", stack=None, axis=y, scale=scale))
        .add_params(brush)
    )
    return alt.layer(area, name="overview", width=_WIDTH, height=56)


def _detail(
    x: _Across,
    highest: int,
    buckets: list[str],
    marks: list[Row],
    brush: alt.Parameter,
    moment: alt.Parameter,
) -> Drawing:
    hover = alt.selection_point(
        name="hover",
        fields=["event_ix"],
        on="pointermove",
        toggle=False,
        clear="view:mouseleave",  # not before the mouseout by which a tooltip goes
        empty=False,
    )
    labels = marks[:_MOST_LABELS]
    room = highest * _HEIGHT // (_HEIGHT - _LABEL_HEIGHT * (len(labels) + 1))
    at = x.at(brush, labels=True)
    of_bytes = axis.bytes_axis(room, None)
    scale = axis.bytes_scale(room)
    heights = stack.on_scale(buckets, of_bytes, scale)
    areas = stack.stacked(_rows(x), buckets).mark_area(interpolate="step-after", clip=True).encode(x=at, **heights)
    reserved = (
        _rows(x)
        .mark_line(interpolate="step-after", clip=True, strokeWidth=1.5)
        .encode(x=at, y=alt.Y("reserved_bytes:Q", scale=scale))
    )
    high_water = (
        _rows(x)
        .mark_line(interpolate="step-after", clip=True, strokeWidth=1, strokeDash=[5, 3])
        .encode(x=at, y=alt.Y("high_water_bytes:Q", scale=scale))
    )
    chosen = _rows(x).transform_filter(moment).mark_rule(clip=True, strokeWidth=1, strokeDash=[2, 2]).encode(x=at)
    # above all that is drawn, each event has the part of the width that is nearest to it
    nearest: dict[str, Any] = {"x": alt.X("from_x:Q", scale=x.scale(brush)), "x2": "to_x:Q"}
    finder = (
        x.neighboured(_rows(x))
        .properties(name="finder")
        .mark_rect(color="transparent", clip=True)
        .encode(**nearest)
        .add_params(hover, moment)
    )
    under_pointer = stack.stacked(x.neighboured(_rows(x)).transform_filter(hover), buckets).transform_filter(
        "datum.bytes > 0"
    )
    hovered = under_pointer.mark_bar(size=7, style="edge", strokeWidth=0.5, clip=True).encode(x=at, **heights)
    told = under_pointer.mark_rect(opacity=0, clip=True).encode(tooltip=_told(), **nearest, **heights)
    pointers = _pointers(x, labels, highest, brush, scale)
    return alt.layer(
        *(areas, high_water, reserved, *pointers, chosen, finder, hovered, told),
        name="detail",
        width=_WIDTH,
        height=_HEIGHT,
    )


def _told() -> list[alt.Tooltip]:
    """What hovering tells of a bucket at an event, and of the event."""
    return [
        alt.Tooltip("bucket:N"),
        alt.Tooltip("bytes:Q", format=","),
        alt.Tooltip("event_ix:Q", title="after event", format=","),
        alt.Tooltip("action:N", title="which is"),
        alt.Tooltip("size_bytes:Q", title="of bytes", format=","),
        alt.Tooltip("event_bucket:N", title="for"),
        alt.Tooltip("requested_by:N", title="by"),
        alt.Tooltip("user_frame:N", title="in"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("phase:N"),
        alt.Tooltip("allocated_bytes:Q", title="allocated", format=","),
        alt.Tooltip("reserved_bytes:Q", title="reserved", format=","),
    ]


def _pointers(x: _Across, labels: list[Row], highest: int, brush: alt.Parameter, scale: alt.Scale) -> list[alt.Chart]:
    """The peak and failed requests, with who asked: named above all that was ever reserved, where nothing is drawn."""
    place = f"(datum.{x.field} - {x.shown_from()}) / {x.shown()}"
    chart = alt.Chart(alt.NamedData("mark")).transform_filter(f"{place} >= 0 && {place} <= 1")
    at = x.at(brush, labels=True)
    here = alt.Y("allocated_bytes:Q", scale=scale)
    points = chart.mark_point(style="peak", size=55).encode(
        x=at,
        y=here,
        shape=alt.Shape("moment:N", scale=alt.Scale(domain=["peak"], range=["circle", "cross"]), legend=None),
    )
    names = [row["moment"] for row in labels]
    named = chart.transform_filter(alt.FieldOneOfPredicate(field="moment", oneOf=names)).transform_calculate(
        label=f"datum.moment + ' ' + {axis.mib_text('datum.allocated_bytes')} + {axis.asker_text()}"
    )
    above = alt.YDatum(highest, scale=scale)
    is_right = f"{place} > 0.5"
    leaders = named.mark_rule(style="peak", strokeWidth=1, strokeDash=[1, 2]).encode(
        x=at, y=here, y2=alt.Y2Datum(highest)
    )
    texts = named.mark_text(
        style="peak",
        baseline="bottom",
        align=alt.ExprRef(f"{is_right} ? 'right' : 'left'"),
        dx=alt.ExprRef(f"{is_right} ? -4 : 4"),
        dy=alt.ExprRef(f"-4 - {_LABEL_HEIGHT} * indexof({json.dumps(names)}, datum.moment)"),
        limit=alt.ExprRef(f"{DRAWN_WIDTH} / 2"),
    ).encode(x=at, y=above, text="label:N")
    return [leaders, points, texts]


def _account(buckets: list[str], events: list[Row], moment: alt.Parameter) -> alt.VConcatChart:
    """The ledger at the chosen event, from that event's own row."""
    size, allocated, reserved = (axis.mib_text(f"datum.{name}_bytes") for name in ("size", "allocated", "reserved"))
    return stack.account(
        alt.Chart(alt.NamedData("timeline")).transform_filter(moment),
        buckets,
        max((max(row["bucket_bytes"]) for row in events), default=1),
        "['after event ' + format(datum.event_ix, ',')"
        " + (isValid(datum.step) ? ', step ' + datum.step : '') + (isValid(datum.phase) ? ', ' + datum.phase : ''),"
        f" (isValid(datum.action) ? datum.action + ' of ' + {size} : 'the opening state'),"
        " (isValid(datum.requested_by) ? 'by ' + datum.requested_by : ''),"
        f" {allocated} + ' allocated, ' + {reserved} + ' reserved']",
    )


def _first_moment(marks: list[Row], events: list[Row]) -> int:
    """The event whose account is shown before one is chosen: the peak."""
    peak = next((row["event_ix"] for row in marks if row["moment"] == "peak"), None)
    return peak if peak is not None else events[-1]["event_ix"] if events else -1


def _subtitle(tables: Tables) -> list[str]:
    kept = tables["timeline"].num_rows
    return [
        "solid line: reserved; dashed: the most allocated so far; drag across the overview to look closer",
        f"{kept:,} events are drawn: the first, last, lowest and highest of every run, so that no peak is lost",
    ]


def describe(tables: Tables) -> str:
    """The highest point and who asked, what was reserved, and which buckets were large then."""
    marks = tables["mark"].to_pylist()
    told: list[str] = []
    for row in marks:
        asked = "" if row["requested_by"] is None else f", requested by {row['requested_by']}"
        told.append(
            f"{row['moment']}: {format_size(row['allocated_bytes'])} allocated at {words.where(row)}{asked},"
            f" {format_mib(row['reserved_bytes'])} MiB reserved."
        )
    highest = [row for row in tables["bucket"].to_pylist() if row["highest_bytes"]]
    told.append(f"The most each bucket ever held: {words.largest(highest, 'bucket', 'highest_bytes', 5)}.")
    return " ".join(told)


CHART = Chart(
    name="timeline",
    title="Every allocation and free, by what it is for",
    question="When did memory rise and fall, what for, and who set the peak?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=without_events,
    table="bucket",
    params={
        "brush": "the part of the overview that the detail shows: an interval over event_ix, or over time_us",
        "moment": "the event whose account stands beside: a point with event_ix",
        DRAWN_WIDTH: "the width of its parts, by which names of phases know their room",
        "hover": "the event under the pointer: a point with event_ix",
    },
)
