"""Rows that hold the bytes of every bucket as one list: as a stack, and as the account beside it.

The lists come from the macro account_at; which rows are drawn is for each chart to say.
"""

# altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa

from tracekit.charts import axis, theme
from tracekit.charts.chart import Drawing

BESIDE = 300
"""Width of the account beside a chart."""


def split(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows without their list of buckets, which is the same in each, and those buckets as a table of their own."""
    buckets: list[str] = rows["buckets"][0].as_py() if rows.num_rows else []
    return rows.drop_columns(["buckets"]), pa.table({"bucket": pa.array(buckets, pa.string())})


def stacked(chart: alt.Chart, buckets: Sequence[str]) -> alt.Chart:
    """One row a bucket from the list of a row, with from_bytes and to_bytes of its place in the stack."""
    names = json.dumps(list(buckets))
    return (
        chart.transform_calculate(bucket=names, bytes="datum.bucket_bytes")
        .transform_flatten(["bucket", "bytes"])
        .transform_calculate(bucket_ix=f"indexof({names}, datum.bucket)")
        # by event and not by place on the axis: events may share their time
        .transform_stack(
            stack="bytes", groupby=["event_ix"], sort=[alt.SortField("bucket_ix")], as_=["from_bytes", "to_bytes"]
        )
    )


def on_scale(buckets: Sequence[str], axis_of_bytes: alt.Axis | None, scale: alt.Scale) -> dict[str, Any]:
    """The encodings of a stack's heights and colours."""
    return {
        "y": alt.Y("from_bytes:Q", axis=axis_of_bytes, scale=scale),
        "y2": "to_bytes:Q",
        "color": alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=None),
    }


def account(chosen: alt.Chart, buckets: Sequence[str], highest: int, words: str) -> alt.VConcatChart:
    """The ledger of one row: a bar a bucket, and what the row is above them.

    Args:
        chosen: the rows, filtered to the one.
        buckets: the names that belong to its list.
        highest: the most that any bar can reach, so that bars keep their scale.
        words: a Vega expression for the lines of text above.
    """
    bars = stacked(chosen, buckets).encode(
        y=alt.Y(
            "bucket:N",
            sort=list(buckets),
            title=None,
            scale=alt.Scale(domain=list(buckets)),
            axis=alt.Axis(domain=False, ticks=False),
        ),
        tooltip=[alt.Tooltip("bucket:N"), alt.Tooltip("bytes:Q", format=",")],
    )
    filled = bars.mark_bar(cornerRadiusEnd=2, style="edge").encode(
        x=alt.X("bytes:Q", scale=axis.bytes_scale(highest, 3), axis=axis.bytes_axis(highest, None, 3)),
        color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=None),
    )
    numbers = (
        bars.transform_filter("datum.bytes > 0")
        .transform_calculate(label=axis.mib_text("datum.bytes"))
        .mark_text(align="left", dx=4, fontSize=10)
        .encode(x="bytes:Q", text="label:N")
    )
    told = (
        chosen.transform_calculate(line=words)
        .mark_text(align="left", baseline="top", lineHeight=15, x=-100, y=0)
        .encode(text="line:N")
        .properties(width=BESIDE, height=68)
    )
    below: Drawing = alt.layer(filled, numbers, width=BESIDE - 60, height=alt.Step(22))
    return alt.vconcat(told, below, spacing=4)
