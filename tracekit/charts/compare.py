"""`compare`: the account at two moments, of one dataset or of two, side by side.

The accounts are made by queries/ledger/; here each line is put beside its other.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from dataclasses import replace
from typing import Any

import altair as alt
import pyarrow as pa

from tracekit.charts import axis, theme, words
from tracekit.charts.chart import Chart, Request, Tables, empty, moment_of
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_LINE = pa.schema(
    [
        ("bucket", pa.string()),
        ("first_bytes", pa.int64()),
        ("second_bytes", pa.int64()),
        ("change_bytes", pa.int64()),
        ("meaning", pa.string()),
    ]
)


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """A line a bucket with its bytes on both sides (`compare`), and what the two sides are (`side`).

    Unless they are named, the sides are the peaks of two datasets, or the peak and the end of one.
    """
    other = request.other or warehouse
    first = moment_of(warehouse, request)
    usual = "end" if request.other is None else "peak"
    second = moment_of(other, replace(request, moment=request.other_moment), usual)
    sides = ((warehouse, first), (other, second))
    accounts = [
        {row["bucket"]: row for row in which.rows("from ledger_shown(?, ?)", [moment.device, moment.event_ix])}
        for which, moment in sides
    ]
    # a bucket's place is its own dataset's: one of the user's rules may be known to one side only
    buckets = sorted(accounts[0] | accounts[1], key=lambda name: (accounts[1] | accounts[0])[name]["bucket_order"])
    lines: list[Row] = []
    for name in buckets:
        held = [account[name]["entry_bytes"] if name in account else 0 for account in accounts]
        lines.append(
            {
                "bucket": name,
                "first_bytes": held[0],
                "second_bytes": held[1],
                "change_bytes": held[1] - held[0],
                "meaning": (accounts[0] | accounts[1])[name]["meaning"],
            }
        )
    names = request.names if request.other is not None else ("", "")
    return {
        "compare": pa.Table.from_pylist(lines, schema=_LINE),
        "side": pa.concat_tables(
            which.sql("from moment_at(?, ?)", [moment.device, moment.event_ix]).append_column(
                "label", pa.array([f"{name} {moment.name}".strip()], pa.string())
            )
            for name, (which, moment) in zip(names, sides, strict=True)
        ),
    }


def draw(tables: Tables) -> alt.TopLevelMixin:
    """Both sides as bars on one scale, and the difference beside them."""
    lines = tables["compare"].to_pylist()
    sides = tables["side"].to_pylist()
    buckets = [row["bucket"] for row in lines]
    sizes = [row[side] for row in lines for side in ("first_bytes", "second_bytes")]
    lowest, highest = min(sizes, default=0), max(sizes, default=1)
    rise, fall = (pick((row["change_bytes"] for row in lines), default=0) for pick in (max, min))
    panels = [
        *(
            _bars(side, buckets, axis.bytes_scale(highest, 3, lowest), axis.bytes_axis(highest, None, 3, lowest))
            for side in ("first_bytes", "second_bytes")
        ),
        _bars("change_bytes", buckets, axis.change_scale(rise, fall), axis.change_axis(rise, fall)),
    ]
    titles = [*(row["label"] for row in sides), "change"]
    shown = [
        panel.properties(title=alt.Title(title, fontSize=12, offset=4, frame="group"))
        for panel, title in zip(panels, titles, strict=True)
    ]
    return alt.hconcat(*shown, spacing=28).properties(
        title=alt.Title(
            "Two accounts, line by line",
            subtitle=[
                f"{row['label']}: {words.where(row)}, {format_size(row['allocated_bytes'])} allocated" for row in sides
            ],
        )
    )


def _bars(field: str, buckets: list[str], scale: alt.Scale, of_bytes: alt.Axis) -> Any:
    is_change = field == "change_bytes"
    label = f"{axis.mib_text(f'datum.{field}')}"
    if is_change:
        label = f"(datum.{field} > 0 ? '+' : '') + {label}"
    base = (
        alt.Chart(alt.NamedData("compare"))
        .transform_calculate(label=f"datum.{field} == 0 ? '' : {label}")
        .encode(
            y=alt.Y(
                "bucket:N",
                sort=buckets,
                title=None,
                axis=alt.Axis(domain=False, ticks=False, labels=field == "first_bytes"),
                scale=alt.Scale(domain=buckets),
            ),
            x=alt.X(f"{field}:Q", scale=scale, axis=of_bytes),
            tooltip=[
                alt.Tooltip("bucket:N"),
                alt.Tooltip("first_bytes:Q", title="left", format=","),
                alt.Tooltip("second_bytes:Q", title="right", format=","),
                alt.Tooltip("change_bytes:Q", title="change in bytes", format="+,"),
                alt.Tooltip("meaning:N"),
            ],
        )
    )
    bars = base.mark_bar(style="edge", cornerRadiusEnd=2).encode(
        color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=None)
    )
    beside = base.mark_text(align="left", dx=4, fontSize=10).encode(text="label:N")
    rise = beside.transform_filter(f"datum.{field} > 0")
    # the number of what is below zero stands on the right of the zero line, where nothing else is
    fall = beside.transform_filter(f"datum.{field} < 0").encode(x=alt.XDatum(0))
    return alt.layer(bars, rise, fall, width=230, height=alt.Step(22))


def describe(tables: Tables) -> str:
    """What the sides hold, and the lines that differ most."""
    first, second = tables["side"].to_pylist()
    lines = [row for row in tables["compare"].to_pylist() if row["change_bytes"]]
    lines.sort(key=lambda row: -abs(row["change_bytes"]))
    told = (
        f"{first['label']} ({words.where(first)}) has {format_size(first['allocated_bytes'])} allocated,"
        f" {second['label']} ({words.where(second)}) {format_size(second['allocated_bytes'])}."
    )
    if not lines:
        return f"{told} No line differs."
    return f"{told} The lines that differ most: {', '.join(_change(row) for row in lines[:5])}."


def _change(row: Row) -> str:
    return f"{row['bucket']} {'+' if row['change_bytes'] > 0 else '-'}{format_size(abs(row['change_bytes']))}"


def why_not(warehouse: Warehouse, request: Request) -> str | None:
    """Why there is nothing to compare: one side never reserved a byte."""
    return empty(warehouse, request) or (empty(request.other, request) if request.other is not None else None)


CHART = Chart(
    name="compare",
    title="Two accounts, line by line",
    question="What differs between two moments, or between two recordings?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=why_not,
    table="compare",
    params={},
)
