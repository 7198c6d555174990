"""`ledger`: where every byte is at one moment, as bars with bytes and share.

The account itself is made by queries/ledger/; here it is drawn.
"""

from __future__ import annotations

import altair as alt
import pyarrow as pa

from tracekit.charts import axis, theme, words
from tracekit.charts.chart import Chart, Request, Tables, empty, moment_of
from tracekit.units import format_size
from tracekit.warehouse import Warehouse


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """The lines of the account (`ledger_shown`) and the moment they belong to (`moment_at`)."""
    moment = moment_of(warehouse, request)
    at = [moment.device, moment.event_ix]
    return {
        "ledger": warehouse.sql("from ledger_shown(?, ?)", at),
        "moment": warehouse.sql("from moment_at(?, ?)", at),
    }


def draw(tables: Tables) -> alt.TopLevelMixin:
    """A bar a line, in the order of the printed ledger."""
    lines = tables["ledger"].to_pylist()
    (moment,) = tables["moment"].to_pylist()
    lowest, highest = (pick((row["entry_bytes"] for row in lines), default=1) for pick in (min, max))
    buckets = [row["bucket"] for row in lines]
    base = alt.Chart(alt.NamedData("ledger")).encode(
        y=alt.Y("bucket:N", sort=buckets, title=None, axis=alt.Axis(domain=False, ticks=False, labelLimit=200)),
        tooltip=[
            alt.Tooltip("bucket:N"),
            alt.Tooltip("entry_bytes:Q", title="bytes", format=","),
            alt.Tooltip("share_ratio:Q", title="share of reserved", format=".2%"),
            alt.Tooltip("allocation_count:Q", title="allocations", format=","),
            alt.Tooltip("meaning:N"),
        ],
    )
    bars = base.mark_bar(style="edge", cornerRadiusEnd=2).encode(
        x=alt.X(
            "entry_bytes:Q",
            axis=axis.bytes_axis(highest, None, lowest=lowest, grid=False),
            scale=axis.bytes_scale(highest, lowest=lowest),
        ),
        color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=None),
    )
    label = f"{axis.mib_text('datum.entry_bytes')} + ' · ' + format(datum.share_ratio, '.1%')"
    texts = (
        base.transform_calculate(label=label, beside="max(datum.entry_bytes, 0)")
        .mark_text(align="left", dx=5)
        .encode(x="beside:Q", text="label:N")
    )
    return alt.layer(bars, texts).properties(
        width=440,
        height=alt.Step(24),
        title=alt.Title(
            "Where every byte is",
            subtitle=[
                f"{words.where(moment)}: {format_size(moment['allocated_bytes'])} allocated,",
                f"{format_size(moment['reserved_bytes'])} reserved; the lines add up to it",
            ],
        ),
    )


def describe(tables: Tables) -> str:
    """The account in a sentence."""
    (moment,) = tables["moment"].to_pylist()
    lines = tables["ledger"].to_pylist()
    return (
        f"At {words.where(moment)}, {format_size(moment['allocated_bytes'])} are allocated and"
        f" {format_size(moment['reserved_bytes'])} reserved. The largest lines of the ledger:"
        f" {words.largest(lines, 'bucket', 'entry_bytes', 5)}." + words.contradiction(lines, "entry_bytes")
    )


CHART = Chart(
    name="ledger",
    title="Where every byte is",
    question="Where is every byte at this moment?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=empty,
    table="ledger",
    params={},
)
