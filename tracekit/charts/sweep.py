"""`sweep`: allocated and reserved peaks against the batch, measured and predicted, the straight line and the ceiling.

The points come from a folder that `tracekit sweep` left, or from what `tracekit fit --format json` said; neither is a
dataset, so this chart has a reader of its own.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import linear_regression
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.charts import axis, theme
from tracekit.charts.chart import MOST_ROWS, Chart, Request, Tables
from tracekit.errors import ChartError
from tracekit.units import format_mib, format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_ENDS = ("lowest", "highest")

POINT = pa.schema(
    [
        ("value", pa.string()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("allocated_bytes", pa.int64()),
        ("reserved_bytes", pa.int64()),
        *((f"{what}_{end}_bytes", pa.int64()) for what in theme.PEAK_COLOURS for end in _ENDS),
        ("fits", pa.bool_()),
        ("limit_bytes", pa.int64()),
    ]
)
"""A point: the value as written, its place on the axis (8x512 is at 4,096), measured or predicted, its peaks and
the lowest and highest each may be, whether it fits (null where nobody says), and the ceiling (null without one)."""

_LONG = (
    POINT.append(pa.field("what", pa.string()))
    .append(pa.field("peak_bytes", pa.int64()))
    .append(pa.field("lowest_bytes", pa.int64()))
    .append(pa.field("highest_bytes", pa.int64()))
    .append(pa.field("verdict", pa.string()))
)

_WIDTH, _HEIGHT = 620, 340
_SHAPES = {"fits": "circle", "out of memory": "cross", "not said": "square"}
_IS_RANGE = "datum.highest_bytes > datum.lowest_bytes"
_TABLE = "sweep.parquet"
_HOW = "give the folder that `tracekit sweep` left, or a file that `tracekit fit --format json` wrote"


def read(source: Path) -> pa.Table:
    """The points of a sweep's folder or of a fit's JSON, in the shape of `POINT`.

    Raises:
        ChartError: where it is neither.
    """
    try:
        if source.is_dir():
            return _points(_of_sweep(row) for row in pq.read_table(source / _TABLE).to_pylist())
        return of_fit(json.loads(source.read_text(encoding="utf-8")))
    except OSError as error:
        raise ChartError(f"{source} holds no sweep: {error.strerror or error}", _HOW) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise ChartError(f"{source} holds no sweep that can be read", _HOW) from error


def of_fit(told: Row) -> pa.Table:
    """The points of what `tracekit fit` found, in the shape of `POINT`."""
    return _points(_of_fit(row, told["limit_bytes"]) for row in told["points"])


def _points(rows: Iterable[Row]) -> pa.Table:
    """Points in the order of the axis, without those that never ran; of very many, as many as a picture can hold."""
    ran = [row for row in rows if row["allocated_bytes"] is not None and row["reserved_bytes"] is not None]
    return pa.Table.from_pylist(sorted(ran, key=lambda row: row["position"])[: MOST_ROWS // 2 - 1], schema=POINT)


def _of_sweep(row: Row) -> Row:
    return {
        "value": str(row["batch"]),
        "position": row["batch"],
        "kind": "measured",
        "allocated_bytes": row["peak_allocated_bytes"],
        "reserved_bytes": row["peak_reserved_bytes"],
        "fits": row["fits"],
        "limit_bytes": row["limit_bytes"],
    }


def _of_fit(row: Row, limit_bytes: int | None) -> Row:
    value = str(row["value"])
    return {
        "value": value,
        "position": math.prod(int(part) for part in value.split("x")),
        "kind": "measured" if row["kind"] == "measured" else "predicted",
        "allocated_bytes": row["allocated_bytes"],
        "reserved_bytes": row["reserved_bytes"],
        **{
            f"{what}_{end}_bytes": reached
            for what in theme.PEAK_COLOURS
            for end, reached in zip(_ENDS, row.get(f"{what}_range_bytes", [None, None]), strict=True)
        },
        "fits": row["fits"],
        "limit_bytes": limit_bytes,
    }


def data(_: Warehouse, request: Request) -> dict[str, pa.Table]:
    """What the picture is drawn from, see `tables`."""
    return tables(POINT.empty_table() if request.sweep is None else request.sweep)


def tables(points: pa.Table) -> dict[str, pa.Table]:
    """The points (`sweep`, two rows each: allocated and reserved), and the straight line through them (`line`)."""
    rows = points.to_pylist()
    long = [
        {
            **row,
            "what": what,
            "peak_bytes": row[f"{what}_bytes"],
            **{f"{end}_bytes": row[f"{what}_{end}_bytes"] for end in _ENDS},
            "verdict": _verdict(row),
        }
        for row in rows
        for what in theme.PEAK_COLOURS
    ]
    line = _line(rows)
    ends = [rows[0]["position"], rows[-1]["position"]] if line else []
    return {
        "sweep": pa.Table.from_pylist(long, schema=_LONG),
        "line": pa.table(
            {
                "position": pa.array(ends, pa.int64()),
                "line_bytes": pa.array([round(line[0] * x + line[1]) for x in ends] if line else [], pa.int64()),
            }
        ),
    }


def _verdict(row: Row) -> str:
    return {True: "fits", False: "out of memory", None: "not said"}[row["fits"]]


def _line(rows: list[Row]) -> tuple[float, float] | None:
    """Slope and intercept of the allocated peaks by least squares: of the measured ones, where there are two.

    Where memory ran out, the peak is only what was reached before it did, and does not count.
    """
    whole = [row for row in rows if row["fits"] is not False]
    measured = [row for row in whole if row["kind"] == "measured"]
    used = measured if len({row["position"] for row in measured}) > 1 else whole
    if len({row["position"] for row in used}) < 2:
        return None
    slope, intercept = linear_regression([row["position"] for row in used], [row["allocated_bytes"] for row in used])
    return slope, intercept


def draw(tables: Tables) -> alt.TopLevelMixin:
    """Points joined by what they are of, the line dashed, the ceiling across."""
    rows, line = tables["sweep"].to_pylist(), tables["line"].to_pylist()
    limit = max((row["limit_bytes"] or 0 for row in rows), default=0)
    reached = [max(row["peak_bytes"], row["highest_bytes"] or 0) for row in rows]
    highest = max([1, limit, *reached, *(row["line_bytes"] for row in line)])
    positions = sorted({row["position"] for row in rows})
    scale = axis.bytes_scale(highest)
    x = alt.X(
        "position:Q",
        title="batch" if all("x" not in row["value"] for row in rows) else "product of the values",
        scale=alt.Scale(domain=[positions[0], positions[-1]] if positions else [0, 1], nice=False, padding=14),
        axis=alt.Axis(
            grid=False, format=",", values=axis.whole_ticks(positions[0], positions[-1]) if positions else []
        ),
    )
    y = alt.Y("peak_bytes:Q", scale=scale, axis=axis.bytes_axis(highest, "peak"))
    colour = alt.Color(
        "what:N",
        scale=alt.Scale(domain=list(theme.PEAK_COLOURS), range=list(theme.PEAK_COLOURS.values())),
        legend=alt.Legend(title=None, orient="top", symbolType="stroke", symbolOpacity=1),
    )
    base = alt.Chart(alt.NamedData("sweep"))
    # where memory ran out the peak is only what was reached before it did: a point, but no part of a line
    joined = (
        base.transform_filter("datum.verdict != 'out of memory'")
        .mark_line(strokeWidth=1.5)
        .encode(x=x, y=y, color=colour)
    )
    said = {row["verdict"] for row in rows}
    shape = alt.Shape(
        "verdict:N",
        scale=alt.Scale(domain=list(_SHAPES), range=list(_SHAPES.values())),
        legend=alt.Legend(title=None, orient="top", values=[verdict for verdict in _SHAPES if verdict in said]),
    )
    told = [
        alt.Tooltip("value:N"),
        alt.Tooltip("what:N"),
        alt.Tooltip("peak_bytes:Q", title="peak bytes", format=","),
        alt.Tooltip("lowest_bytes:Q", title="lowest", format=","),
        alt.Tooltip("highest_bytes:Q", title="highest", format=","),
        alt.Tooltip("kind:N"),
        alt.Tooltip("verdict:N"),
    ]
    points = [
        base.transform_filter(f"datum.kind == '{kind}'")
        .mark_point(size=70, opacity=1, strokeWidth=1.8, filled=kind == "measured")
        .encode(x=x, y=y, color=colour, shape=shape, tooltip=told)
        for kind in ("measured", "predicted")
    ]
    ranges = (
        base.transform_filter(_IS_RANGE)
        .mark_rule(strokeWidth=6, opacity=0.45)
        .encode(x=x, y=alt.Y("lowest_bytes:Q", scale=scale), y2="highest_bytes:Q", color=colour, tooltip=told)
    )
    straight = (
        alt.Chart(alt.NamedData("line"))
        .mark_line(style="quiet", strokeDash=[5, 3], strokeWidth=1.2)
        .encode(x=x, y=alt.Y("line_bytes:Q", scale=scale))
    )
    layers = [straight, joined, ranges, *points]
    if limit:
        ceiling = alt.Chart(alt.NamedData("sweep")).transform_aggregate(limit="max(limit_bytes)")
        layers += [
            ceiling.mark_rule(style="peak", strokeWidth=1.5).encode(y=alt.Y("limit:Q", scale=scale)),
            ceiling.transform_calculate(label="'ceiling ' + " + axis.mib_text("datum.limit"))
            .mark_text(style="peak", align="left", baseline="bottom", x=6, dy=-4)
            .encode(y=alt.Y("limit:Q", scale=scale), text="label:N"),
        ]
    title = alt.Title("Peak memory against the batch", subtitle=_subtitle(rows, line))
    return alt.layer(*layers, width=_WIDTH, height=_HEIGHT, title=title)


def _slope(line: list[Row]) -> int | None:
    if len(line) < 2 or line[0]["position"] == line[1]["position"]:
        return None
    rise = line[1]["line_bytes"] - line[0]["line_bytes"]
    return round(rise / (line[1]["position"] - line[0]["position"]))


def _subtitle(rows: list[Row], line: list[Row]) -> list[str]:
    slope = _slope(line)
    kinds = {row["kind"] for row in rows}
    told = (
        "filled points were measured, hollow ones are predicted" if len(kinds) > 1 else f"all points are {min(kinds)}"
    )
    if any((row["highest_bytes"] or 0) > (row["lowest_bytes"] or 0) for row in rows):
        told += "; bars: the range in which a peak may lie"
    if slope is None:
        return [told]
    return [told, f"dashed: a straight line through the allocated peaks, {format_mib(slope)} MiB for each one more"]


def describe(tables: Tables) -> str:
    """The slope, the largest that fits, and the smallest that does not."""
    rows, line = tables["sweep"].to_pylist(), tables["line"].to_pylist()
    reserved = [row for row in rows if row["what"] == "reserved"]
    told = [f"{len(reserved):,} values."]
    slope = _slope(line)
    if slope is not None:
        told.append(f"Allocated grows by {format_size(slope)} for each one more.")
    fitting = [row for row in reserved if row["fits"]]
    failing = [row for row in reserved if row["fits"] is False]
    has_limit = any(row["limit_bytes"] is not None for row in reserved)
    if fitting and (failing or has_limit):  # without either, that a value fits says nothing
        row = max(fitting, key=lambda one: one["position"])
        told.append(
            f"The largest that fits is {row['value']} ({row['kind']}), {format_size(row['peak_bytes'])} reserved."
        )
    if failing:
        row = min(failing, key=lambda one: one["position"])
        told.append(f"The smallest that runs out of memory is {row['value']} ({row['kind']}).")
    return " ".join(told)


def why_not(_: Warehouse, request: Request) -> str | None:
    """Why there is no sweep to draw: none was given, or it has no point."""
    if request.sweep is None:
        return f"one recording is no sweep; {_HOW}"
    return None if request.sweep.num_rows else "the sweep has no point that ran"


CHART = Chart(
    name="sweep",
    title="Peak memory against the batch",
    question="How do the peaks grow with the batch, and where is the ceiling?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=why_not,
    table="sweep",
    params={},
)
