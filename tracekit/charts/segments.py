"""`segments`: the address space at a moment: a row a segment, its blocks coloured by bucket, what is free hatched.

Where a request failed: before and after the allocator gave back what it could, and the request on the same scale.
Pieces and their places are made by queries/report/segment_piece_at.sql.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import altair as alt
import pyarrow as pa

from tracekit import ledger, oom
from tracekit.charts import axis, theme, words
from tracekit.charts.chart import DRAWN_WIDTH, LEGEND_COLUMNS, Chart, Drawing, Request, Tables, device_of, empty
from tracekit.ledger import Moment
from tracekit.units import format_mib, format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_WIDTH = 860
_ROW = 13
_STRIPES = 150
"""Diagonals that a hatched piece as wide as the picture has."""

_MOST_ROWS_BEFORE = 24
"""Rows of each picture where two stand below each other; forty where there is one."""


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """Pieces (`piece`) and segments (`segment`) of one or two moments (`panel`), told apart by panel_ix."""
    panels = _panels(warehouse, request)
    most = _MOST_ROWS_BEFORE if len(panels) > 1 else 40
    tables: dict[str, list[pa.Table]] = {"piece": [], "segment": [], "panel": []}
    for panel_ix, (label, moment, failed) in enumerate(panels):
        at = [moment.device, moment.event_ix]
        asked = failed and failed["asked_bytes"]
        usable = failed and oom.largest_free(warehouse, failed | {"event_ix": moment.event_ix})
        made = {
            "piece": warehouse.sql("from segment_piece_at(?, ?) where segment_ix < ?", [*at, most]),
            "segment": warehouse.sql("from segment_shown_at(?, ?) where segment_ix < ?", [*at, most]),
            "panel": warehouse.sql("from moment_at(?, ?)", at)
            .append_column("label", pa.array([label], pa.string()))
            .append_column("asked_bytes", pa.array([asked], pa.int64()))
            .append_column("usable_bytes", pa.array([usable], pa.int64())),
        }
        for name, table in made.items():
            number = pa.array([panel_ix] * table.num_rows, pa.int64())
            tables[name].append(table.append_column("panel_ix", number))
    return {name: pa.concat_tables(parts) for name, parts in tables.items()}


def _panels(warehouse: Warehouse, request: Request) -> list[tuple[str, Moment, Row | None]]:
    """The moments that are drawn, each with its title and the request that failed then, see the view oom."""
    device = device_of(warehouse, request)
    edges = warehouse.rows("from oom_edge where device = ?", [device])
    name = request.moment or (edges[0]["moment"] if edges else "peak")
    (moment,) = ledger.find_moments(warehouse, name, device)
    for edge in edges:
        if edge["moment"] == name:
            (failed,) = warehouse.rows("from oom where device = ? and event_ix = ?", [device, edge["event_ix"]])
            if edge["before_event_ix"] == edge["event_ix"] - 1:
                return [(f"{name}: there was nothing to give back", moment, failed)]
            before = Moment(device, f"event:{edge['before_event_ix']}", edge["before_event_ix"])
            return [
                (f"{name}: before the allocator gave anything back", before, failed),
                (f"{name}: after the allocator had given back what it could", moment, failed),
            ]
    return [(name, moment, None)]


def draw(tables: Tables) -> alt.TopLevelMixin:
    """A picture a moment, all of them on one scale of bytes."""
    pieces, panels = tables["piece"].to_pylist(), tables["panel"].to_pylist()
    segments = tables["segment"].to_pylist()
    widest = max([*(row["size_bytes"] for row in segments), *(row["asked_bytes"] or 0 for row in panels)], default=1)
    found = {row["piece"] for row in pieces}
    kinds = [name for name in [*theme.BUCKET_COLOURS, "several"] if name in found]
    kinds += sorted(found - set(kinds))
    shown = [_panel(row, segments, kinds, widest) for row in panels]
    return (
        alt.vconcat(*shown, spacing=18)
        .add_params(alt.param(name=DRAWN_WIDTH, value=_WIDTH))
        .properties(title=alt.Title("The address space", subtitle=_subtitle(panels, segments)))
    )


def _panel(panel: Row, segments: list[Row], kinds: list[str], widest: int) -> Drawing:
    here = f"datum.panel_ix == {panel['panel_ix']}"
    count = sum(1 for row in segments if row["panel_ix"] == panel["panel_ix"])
    above = 1.6 if panel["asked_bytes"] else 0
    y_scale = alt.Scale(domain=[-above, max(count, 1)], reverse=True, nice=False)
    x_scale = axis.bytes_scale(widest, 8)
    x_axis = axis.bytes_axis(widest, None, 8, grid=False)
    end = axis.ticks(widest, 8)[-1]
    told = [
        alt.Tooltip("piece:N"),
        alt.Tooltip("size_bytes:Q", title="bytes", format=","),
        alt.Tooltip("from_bytes:Q", title="from byte", format=","),
        alt.Tooltip("piece_count:Q", title="pieces", format=","),
        alt.Tooltip("free_bytes:Q", title="free bytes in it", format=","),
        alt.Tooltip("requested_by:N", title="asked for by"),
        alt.Tooltip("user_frame:N", title="in"),
        alt.Tooltip("allocation_id:Q", title="allocation"),
    ]
    pieces = (
        alt.Chart(alt.NamedData("piece"))
        .transform_filter(here)
        .transform_calculate(top="datum.segment_ix + 0.06", bottom="datum.segment_ix + 0.94")
    )
    blocks = pieces.mark_rect(style="edge", strokeWidth=0.4).encode(
        x=alt.X("from_bytes:Q", scale=x_scale, axis=x_axis),
        x2="to_bytes:Q",
        y=alt.Y("top:Q", scale=y_scale, axis=None),
        y2="bottom:Q",
        color=alt.Color(
            "piece:N",
            scale=theme.bucket_scale(kinds),
            legend=alt.Legend(title=None, orient="bottom", columns=alt.expr(LEGEND_COLUMNS)),
        ),
        tooltip=told,
    )
    step = end / _STRIPES
    hatch = (
        pieces.transform_filter("datum.piece == 'cached' || datum.piece == 'block_slack'")
        .transform_calculate(begin=f"sequence(ceil(datum.from_bytes / {step}) * {step}, datum.to_bytes, {step})")
        .transform_flatten(["begin"])
        .transform_calculate(part=f"min((datum.to_bytes - datum.begin) / {step}, 1)")
        .transform_calculate(
            stripe_end=f"datum.begin + datum.part * {step}", stripe_top="datum.bottom - 0.88 * datum.part"
        )
        .mark_rule(style="quiet", strokeWidth=0.7, opacity=0.7)
        .encode(
            x=alt.X("begin:Q", scale=x_scale, axis=x_axis),
            x2="stripe_end:Q",
            y=alt.Y("bottom:Q", scale=y_scale, axis=None),
            y2="stripe_top:Q",
        )
    )
    rows = (
        alt.Chart(alt.NamedData("segment"))
        .transform_filter(here)
        .transform_calculate(
            top="datum.segment_ix + 0.06",
            bottom="datum.segment_ix + 0.94",
            middle="datum.segment_ix + 0.5",
            label=axis.mib_text("datum.size_bytes"),
            at="'0x' + format(datum.address, 'x')",
            zero="0",
        )
    )
    of_segment = [
        alt.Tooltip("at:N", title="segment at"),
        alt.Tooltip("size_bytes:Q", title="bytes", format=","),
        alt.Tooltip("pool:N"),
        alt.Tooltip("stream:Q"),
        alt.Tooltip("is_small:N", title="of the small pool"),
        alt.Tooltip("is_expandable:N", title="expandable"),
    ]
    frames = rows.mark_rect(style="frame").encode(
        x=alt.X("zero:Q", scale=x_scale, axis=x_axis),
        x2="size_bytes:Q",
        y=alt.Y("top:Q", scale=y_scale, axis=None),
        y2="bottom:Q",
    )
    names = rows.mark_text(align="right", baseline="middle", dx=-6, fontSize=9, style="quiet").encode(
        x=alt.X("zero:Q", scale=x_scale, axis=x_axis),
        y=alt.Y("middle:Q", scale=y_scale, axis=None),
        text="label:N",
        tooltip=of_segment,
    )
    layers = [blocks, hatch, frames, names]
    if panel["asked_bytes"]:
        layers += _asked(panel, x_scale, x_axis, y_scale)
    title = alt.Title(
        f"{panel['label']} ({words.where(panel)}): {format_mib(panel['allocated_bytes'])} MiB allocated"
        f" of {format_mib(panel['reserved_bytes'])} reserved",
        fontSize=12,
        offset=4,
    )
    return alt.layer(*layers, width=_WIDTH, height=_ROW * (max(count, 1) + above), title=title)


def _asked(panel: Row, x_scale: alt.Scale, x_axis: alt.Axis, y_scale: alt.Scale) -> list[alt.Chart]:
    """The request that failed, above the rows: as long as the free run it would have needed."""
    base = (
        alt.Chart(alt.NamedData("panel"))
        .transform_filter(f"datum.panel_ix == {panel['panel_ix']}")
        .transform_calculate(
            top="-1.5",
            bottom="-0.5",
            middle="-1",
            zero="0",
            label=f"'asked for: ' + {axis.mib_text('datum.asked_bytes')} + ' in one piece; the largest free one that'"
            f" + ' may serve it has ' + {axis.mib_text('datum.usable_bytes')}",
        )
        .encode(x=alt.X("zero:Q", scale=x_scale, axis=x_axis))
    )
    rect = base.mark_rect(style="asked").encode(
        x2="asked_bytes:Q",
        y=alt.Y("top:Q", scale=y_scale, axis=None),
        y2="bottom:Q",
        tooltip=[alt.Tooltip("asked_bytes:Q", title="bytes asked for", format=",")],
    )
    text = base.mark_text(style="peak", align="left", baseline="middle", dx=6, fontSize=10).encode(
        y=alt.Y("middle:Q", scale=y_scale, axis=None), text="label:N"
    )
    return [rect, text]


def _subtitle(panels: list[Row], segments: list[Row]) -> list[str]:
    told = ["a row a segment, the largest first; hatched is free, and a request must fit into one such piece"]
    left = [row for row in segments if row["segment_ix"] == 0]
    for panel, row in zip(panels, left, strict=False):
        drawn = [one for one in segments if one["panel_ix"] == panel["panel_ix"]]
        rest = row["segment_count"] - len(drawn)
        if rest:
            size = panel["reserved_bytes"] - sum(one["size_bytes"] for one in drawn)
            told.append(f"{rest:,} smaller segments of {format_mib(size)} MiB together are not drawn")
            break
    return told


def describe(tables: Tables) -> str:
    """How much is free at each moment, the largest free piece, and what was asked for."""
    told: list[str] = []
    pieces = tables["piece"].to_pylist()
    for panel in tables["panel"].to_pylist():
        free = [
            row["size_bytes"] for row in pieces if row["panel_ix"] == panel["panel_ix"] and row["piece"] == "cached"
        ]
        one = (
            f"{panel['label']} ({words.where(panel)}): {format_size(panel['reserved_bytes'])} reserved,"
            f" {format_size(panel['reserved_bytes'] - panel['active_bytes'])} of it free,"
            f" the largest free piece drawn {format_size(max(free, default=0))}"
        )
        if panel["asked_bytes"]:
            one += (
                f"; {format_size(panel['asked_bytes'])} were asked for in one piece, and the largest that may serve it"
                f" has {format_size(panel['usable_bytes'])}"
            )
        told.append(one + ".")
    return " ".join(told)


CHART = Chart(
    name="segments",
    title="The address space",
    question="What lies where, and why did a request not fit?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=empty,
    table="segment",
    params={DRAWN_WIDTH: "its width, by which the legend knows its room"},
)
