"""`flame`: who asked for what is held at a moment, as an icicle of stacks as wide as their bytes.

The tree and its places are made by queries/report/flame_at.sql; clicking a frame makes it as wide as the picture.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import altair as alt
import pyarrow as pa

from tracekit.charts import theme, words
from tracekit.charts.chart import DRAWN_WIDTH, LEGEND_COLUMNS, Chart, Request, Tables, empty, moment_of
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_WIDTH = 1060
_ROW = 20
_BESIDE = 4
"""Pixels between a frame's border and its name."""

_LEAST_ROOM = 24
"""Pixels below which a frame goes without a name; in more, the name is cut where they end."""


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """The frames in their places (`flame`), and the moment (`moment`)."""
    moment = moment_of(warehouse, request)
    at = [moment.device, moment.event_ix]
    return {
        "flame": warehouse.sql("from flame_at(?, ?)", at),
        "moment": warehouse.sql("from moment_at(?, ?)", at),
    }


def draw(tables: Tables) -> alt.TopLevelMixin:
    """A rectangle a frame, coloured by the bucket of most of its bytes; the outermost call is on top."""
    nodes = tables["flame"].to_pylist()
    (moment,) = tables["moment"].to_pylist()
    whole = max((row["requested_bytes"] for row in nodes), default=1)
    deepest = max((row["depth_ix"] for row in nodes), default=0)
    held = {row["bucket"] for row in nodes}
    buckets = [name for name in theme.BUCKET_COLOURS if name in held] + sorted(held - theme.BUCKET_COLOURS.keys())
    zoom = alt.selection_point(name="zoom", fields=["from_bytes", "to_bytes"], on="click", clear="dblclick")
    begin = "(isDefined(zoom.from_bytes) ? zoom.from_bytes[0] : 0)"
    end = f"(isDefined(zoom.to_bytes) ? zoom.to_bytes[0] : {whole})"
    x = alt.X("left:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None)
    y = alt.Y("depth_ix:Q", scale=alt.Scale(domain=[0, deepest + 1], reverse=True, nice=False), axis=None)
    base = (
        alt.Chart(alt.NamedData("flame"))
        .transform_calculate(
            left=f"clamp((datum.from_bytes - {begin}) / ({end} - {begin}), 0, 1)",
            right=f"clamp((datum.to_bytes - {begin}) / ({end} - {begin}), 0, 1)",
            below="datum.depth_ix + 1",
        )
        .transform_filter("datum.right > datum.left")
        .transform_calculate(
            room=f"(datum.right - datum.left) * {DRAWN_WIDTH} - {2 * _BESIDE}",
            share=f"datum.requested_bytes / {whole}",
        )
        .transform_calculate(
            text=f"datum.room < {_LEAST_ROOM} ? '' : datum.label",
            text_left=f"datum.left + {_BESIDE} / {DRAWN_WIDTH}",
            middle="datum.depth_ix + 0.5",
        )
    )
    rects = (
        base.mark_rect(style="edge", strokeWidth=1, fillOpacity=theme.FRAME_OPACITY, cursor="pointer")
        .encode(
            x=x,
            x2="right:Q",
            y=y,
            y2="below:Q",
            color=alt.Color(
                "bucket:N",
                scale=theme.bucket_scale(buckets),
                legend=alt.Legend(title="most of it is", orient="bottom", columns=alt.expr(LEGEND_COLUMNS)),
            ),
            tooltip=[
                alt.Tooltip("frame:N"),
                alt.Tooltip("requested_bytes:Q", title="bytes", format=","),
                alt.Tooltip("share:Q", title="share of all", format=".2%"),
                alt.Tooltip("allocation_count:Q", title="allocations", format=","),
                alt.Tooltip("bucket:N", title="most of it is"),
                alt.Tooltip("origin:N", title="code of"),
            ],
        )
        .add_params(zoom)
    )
    names = base.mark_text(
        align="left", baseline="middle", fontSize=10, style="on_colour", limit=alt.expr("datum.room")
    ).encode(
        x=alt.X("text_left:Q", scale=alt.Scale(domain=[0, 1], nice=False), axis=None),
        y=alt.Y("middle:Q", scale=alt.Scale(domain=[0, deepest + 1], reverse=True, nice=False), axis=None),
        text="text:N",
    )
    drawn = alt.layer(rects, names, width=_WIDTH, height=_ROW * (deepest + 1))
    return drawn.add_params(alt.param(name=DRAWN_WIDTH, value=_WIDTH)).properties(
        title=alt.Title(
            "Who asked for what is held",
            subtitle=[
                f"{words.where(moment)}: {format_size(whole)} requested; wider is more, the outermost call is on top",
                "click a frame to look into it, double-click to go back",
            ],
        )
    )


def describe(tables: Tables) -> str:
    """The whole, and the operators and lines at which most of it ends."""
    nodes = tables["flame"].to_pylist()
    (moment,) = tables["moment"].to_pylist()
    when = f"At {words.where(moment)}"
    if not nodes:
        return f"{when}, nothing is held."
    whole = max(row["requested_bytes"] for row in nodes)
    lines = [row for row in nodes if row["origin"] == "user" and not _is_passed_through(row, nodes)]
    told = f"{when}, {format_size(whole)} are requested."
    if lines:
        # one line may be reached on several ways
        beneath: dict[str, int] = {}
        for row in lines:
            beneath[row["label"]] = beneath.get(row["label"], 0) + row["requested_bytes"]
        summed = [{"line": line, "bytes": size} for line, size in beneath.items()]
        told += f" Lines of the user's own code with most beneath them: {words.largest(summed, 'line', 'bytes')}."
    return told


def _is_passed_through(row: Row, nodes: list[Row]) -> bool:
    """Whether a deeper line of the user's own code lies beneath a frame."""
    return any(
        one["origin"] == "user"
        and one["depth_ix"] > row["depth_ix"]
        and one["from_bytes"] >= row["from_bytes"]
        and one["to_bytes"] <= row["to_bytes"]
        for one in nodes
    )


CHART = Chart(
    name="flame",
    title="Who asked for what is held",
    question="Which lines of code asked for what is held?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=empty,
    table="flame",
    params={
        "zoom": "the frame that is looked into: a point with from_bytes and to_bytes",
        DRAWN_WIDTH: "its width, by which names know their room",
    },
)
