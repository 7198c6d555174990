"""`moments`: which kind of tensor is alive at each of the moments of a step that never ran.

The bytes are made by `tracekit.estimate`; here they are drawn.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from collections.abc import Sequence

import altair as alt
import pyarrow as pa

from tracekit.charts import axis, theme, words
from tracekit.charts.chart import Drawing, Picture, Row, Tables
from tracekit.units import format_size


def tables(rows: Sequence[Row], limit_bytes: int | None) -> dict[str, pa.Table]:
    """What the picture is drawn from.

    Args:
        rows: moment_ix, moment, bucket, bucket_ix and requested_bytes of every line of every moment.
        limit_bytes: bytes that may be reserved, where a limit was given.
    """
    limit: list[Row] = [] if limit_bytes is None else [{"limit_bytes": limit_bytes}]
    schema = pa.schema([("limit_bytes", pa.int64())])
    return {"moments": pa.Table.from_pylist(list(rows)), "limit": pa.Table.from_pylist(limit, schema=schema)}


def draw(tables: Tables) -> Drawing:
    """A bar a moment, stacked by bucket from the model up, and a line where the limit is."""
    rows = tables["moments"].to_pylist()
    totals = _totals(tables)
    highest = max([*totals.values(), *_limits(tables)])
    buckets = [bucket for _, bucket in sorted({(row["bucket_ix"], row["bucket"]) for row in rows})]
    scale = axis.bytes_scale(highest)
    across = alt.X("moment:N", sort=list(totals), title=None, axis=alt.Axis(labelAngle=0, ticks=False))
    base = alt.Chart(alt.NamedData("moments")).encode(x=across)
    bars = base.mark_bar(style="edge").encode(
        y=alt.Y("requested_bytes:Q", stack="zero", axis=axis.bytes_axis(highest, None), scale=scale),
        color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=alt.Legend(title=None)),
        order=alt.Order("bucket_ix:Q"),
        tooltip=[
            alt.Tooltip("moment:N"),
            alt.Tooltip("place:N", title="highest at"),
            alt.Tooltip("bucket:N"),
            alt.Tooltip("requested_bytes:Q", title="bytes", format=","),
        ],
    )
    told = (
        base.transform_aggregate(total_bytes="sum(requested_bytes)", groupby=["moment"])
        .transform_calculate(label=axis.mib_text("datum.total_bytes"))
        .mark_text(dy=-8)
        .encode(y="total_bytes:Q", text="label:N")
    )
    limit = alt.Chart(alt.NamedData("limit")).mark_rule(style="peak", strokeDash=[6, 4]).encode(
        y="limit_bytes:Q", tooltip=[alt.Tooltip("limit_bytes:Q", title="limit, bytes", format=",")]
    )  # fmt: skip
    return alt.layer(bars, told, limit).properties(
        width=alt.Step(84), height=360, title=alt.Title(PICTURE.title, subtitle=describe(tables).split("; "))
    )


def describe(tables: Tables) -> str:
    """The highest moment and its largest lines, in a sentence."""
    totals = _totals(tables)
    moment = max(totals, key=lambda name: totals[name])
    lines = [row for row in tables["moments"].to_pylist() if row["moment"] == moment]
    told = f"Highest at {moment}, {format_size(totals[moment])}: {words.largest(lines, 'bucket', 'requested_bytes', 3)}"
    for limit in _limits(tables):
        told += f"; the limit is {format_size(limit)}"
    return told


def _limits(tables: Tables) -> list[int]:
    """The limit, where there is one."""
    return [row["limit_bytes"] for row in tables["limit"].to_pylist()]


def _totals(tables: Tables) -> dict[str, int]:
    """Bytes of every moment, in order."""
    totals: dict[str, int] = {}
    for row in tables["moments"].to_pylist():
        totals[row["moment"]] = totals.get(row["moment"], 0) + row["requested_bytes"]
    return totals


PICTURE = Picture(
    name="moments",
    title="What is alive when",
    question="Which kind of tensor is alive at each moment of a step?",
    draw=draw,
    describe=describe,
    table="moments",
    params={},
)
