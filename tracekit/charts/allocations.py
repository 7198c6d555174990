"""`allocations`: lifetimes as rectangles, as wide as they live, as high as they are large; the rest summed and named.

The rows are made by queries/report/; here each rectangle is given a height to stand at, where no other is in its way.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

import altair as alt
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.charts import axis, theme, words
from tracekit.charts.chart import Chart, Drawing, Request, Tables, device_of, without_events
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

MOST = 400
"""Allocations that have a rectangle of their own."""

_WIDTH = 760

_ON_LINE = 4
"""Buckets of the rest named on a line."""


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """The largest allocations with their places (`allocation`), the rest by bucket (`rest`), and stacks (`stack`)."""
    device = device_of(warehouse, request)
    largest = warehouse.sql("from allocation_largest(?, ?)", [device, MOST])
    lives = [(row["begin_event_ix"], row["end_event_ix"], row["held_bytes"]) for row in largest.to_pylist()]
    placed = largest.append_column("from_bytes", pa.array(places(lives), pa.int64()))
    stacks = warehouse.sql("from stack_few")
    return {
        "allocation": placed,
        "rest": warehouse.sql("from allocation_rest(?, ?)", [device, MOST]),
        "stack": stacks.filter(pc.is_in(stacks["stack_id"], largest["stack_id"].combine_chunks())),
    }


def places(lives: Sequence[tuple[int, int, int]]) -> list[int]:
    """The height at which each rectangle stands, the lowest at which no earlier one is in its way.

    Args:
        lives: begin, end and bytes, in the order in which they are placed: the largest first.

    Returns:
        The lower edge of each, in bytes.
    """
    standing: list[tuple[int, int, int, int]] = []  # lower edge, upper edge, begin, end; by lower edge
    found: list[int] = []
    for begin, end, size in lives:
        lower = 0
        for from_bytes, to_bytes, other_begin, other_end in standing:
            if from_bytes >= lower + size:
                break
            if other_begin < end and begin < other_end and to_bytes > lower:
                lower = to_bytes
        insort(standing, (lower, lower + size, begin, end))
        found.append(lower)
    return found


def draw(tables: Tables) -> alt.TopLevelMixin:
    """The largest above, the rest below, and beside them the stack of the one that is picked."""
    rows, rest = tables["allocation"].to_pylist(), tables["rest"].to_pylist()
    held = {row["bucket"] for row in [*rows, *rest]}
    buckets = [name for name in theme.BUCKET_COLOURS if name in held] + sorted(held - theme.BUCKET_COLOURS.keys())
    last = max([1, *(row["end_event_ix"] for row in rows), *(row["event_ix"] for row in rest)])
    scale = alt.Scale(domain=[-1, last], nice=False)
    first = rows[0] if rows else {"allocation_id": -1, "stack_id": None}
    picked = alt.selection_point(
        name="picked",
        fields=["allocation_id", "stack_id"],
        on="rect:click",  # between the rectangles there is nothing to tell
        toggle=False,
        clear=False,
        value=[{"allocation_id": first["allocation_id"], "stack_id": first["stack_id"]}],
    )
    parts = [_largest(rows, buckets, scale, picked, is_last=not rest)]
    if rest:
        parts.append(_rest(rest, buckets, scale))
    left = alt.vconcat(*parts, spacing=14)
    return alt.hconcat(left, _story(picked), spacing=24).properties(
        title=alt.Title("The largest allocations, one by one", subtitle=_subtitle(rows, rest))
    )


def _largest(rows: list[Row], buckets: list[str], scale: alt.Scale, picked: alt.Parameter, *, is_last: bool) -> Drawing:
    highest = max((row["from_bytes"] + row["held_bytes"] for row in rows), default=1)
    rects = (
        alt.Chart(alt.NamedData("allocation"), name="lifetimes")
        .transform_calculate(to_bytes="datum.from_bytes + datum.held_bytes")
        .mark_rect(style="edge", strokeWidth=0.4, cursor="pointer")
        .encode(
            x=alt.X("begin_event_ix:Q", scale=scale, axis=_event_axis(labels=is_last)),
            x2="end_event_ix:Q",
            y=alt.Y("from_bytes:Q", scale=axis.bytes_scale(highest), axis=axis.bytes_axis(highest, None)),
            y2="to_bytes:Q",
            color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=_legend()),
            opacity=alt.condition(picked, alt.value(1), alt.value(0.78)),
            tooltip=[
                alt.Tooltip("allocation_id:Q", title="allocation"),
                alt.Tooltip("bucket:N"),
                alt.Tooltip("requested_bytes:Q", title="bytes asked for", format=","),
                alt.Tooltip("held_bytes:Q", title="bytes of its block", format=","),
                alt.Tooltip("begin_event_ix:Q", title="born at event", format=","),
                alt.Tooltip("end_event_ix:Q", title="gone at event", format=","),
                alt.Tooltip("requested_by:N", title="by"),
                alt.Tooltip("user_frame:N", title="in"),
                alt.Tooltip("step:Q"),
                alt.Tooltip("phase:N"),
            ],
        )
        .add_params(picked)
    )
    return alt.layer(rects, width=_WIDTH, height=340)


def _rest(rest: list[Row], buckets: list[str], scale: alt.Scale) -> Drawing:
    total: dict[int, int] = {}
    for row in rest:
        total[row["event_ix"]] = total.get(row["event_ix"], 0) + row["held_bytes"]
    highest = max(total.values(), default=1)
    area = (
        alt.Chart(alt.NamedData("rest"))
        .mark_area(interpolate="step-after")
        .encode(
            x=alt.X("event_ix:Q", scale=scale, axis=_event_axis(labels=True)),
            y=alt.Y(
                "held_bytes:Q",
                stack="zero",
                scale=axis.bytes_scale(highest, 3),
                axis=axis.bytes_axis(highest, None, 3),
            ),
            order=alt.Order("bucket_order:Q"),
            color=alt.Color("bucket:N", scale=theme.bucket_scale(buckets), legend=_legend()),
            tooltip=[
                alt.Tooltip("bucket:N", title="the rest of"),
                alt.Tooltip("allocation_count:Q", title="allocations", format=","),
                alt.Tooltip("largest_bytes:Q", title="the largest of them, bytes", format=","),
            ],
        )
    )
    lines = _rest_lines(rest)
    return alt.layer(
        area,
        width=_WIDTH,
        height=90,
        title=alt.Title(lines[0], subtitle=lines[1:], fontSize=12, offset=4),
    )


def _rest_counts(rest: list[Row]) -> tuple[int, list[str]]:
    """How many allocations the rest stands for, and how many of each bucket in words, most first."""
    counts = {row["bucket"]: row["allocation_count"] for row in rest}
    ordered = sorted(counts.items(), key=lambda one: -one[1])
    return sum(counts.values()), [f"{count:,} of {bucket}" for bucket, count in ordered]


def _rest_lines(rest: list[Row]) -> list[str]:
    """The rest, of which there is some, by name."""
    total, parts = _rest_counts(rest)
    lines = [", ".join(parts[at : at + _ON_LINE]) for at in range(0, len(parts), _ON_LINE)]
    return [f"the rest, summed: {total:,} smaller allocations", *lines]


def _event_axis(*, labels: bool) -> alt.Axis:
    return alt.Axis(
        title="event" if labels else None,
        labels=labels,
        ticks=labels,
        grid=False,
        tickCount=8,
        labelExpr="format(datum.value, ',')",
    )


def _legend() -> alt.Legend:
    """One for both parts, which share their colours."""
    return alt.Legend(title=None, orient="top", columns=6)


def _story(picked: alt.Parameter) -> alt.VConcatChart:
    """The allocation that is picked in words, and its stack, innermost first."""
    told = (
        alt.Chart(alt.NamedData("allocation"))
        .transform_filter(picked)
        .transform_calculate(
            line="['allocation ' + datum.allocation_id + ', ' + datum.bucket,"
            f" {axis.mib_text('datum.requested_bytes')} + ' (' + format(datum.requested_bytes, ',') + ' bytes)',"
            " datum.is_older ? 'older than the recording' : 'born at event ' + format(datum.begin_event_ix, ',')"
            " + (isValid(datum.step) ? ', step ' + datum.step : '') + (isValid(datum.phase) ? ', ' + datum.phase : ''),"
            " datum.is_kept ? 'never given back' : 'gone at event ' + format(datum.end_event_ix, ','),"
            " isValid(datum.stack_id) ? 'allocated by (innermost first):' : 'no stack was recorded']"
        )
        .mark_text(align="left", baseline="top", lineHeight=15, x=0, y=0)
        .encode(text="line:N")
        .properties(width=330, height=84)
    )
    frames = (
        alt.Chart(alt.NamedData("stack"))
        .transform_filter("isDefined(picked.stack_id) && datum.stack_id == picked.stack_id[0]")
        .transform_calculate(
            line="length(datum.shown) > 56 ? '…' + slice(datum.shown, length(datum.shown) - 55) : datum.shown"
        )
        .mark_text(align="left", baseline="top", x=0, fontSize=10)
        .encode(
            y=alt.Y("line_ix:Q", scale=alt.Scale(domain=[0, 12], reverse=True, nice=False), axis=None),
            text="line:N",
            tooltip=[alt.Tooltip("shown:N", title="frame")],
        )
        .properties(width=330, height=190)
    )
    return alt.vconcat(told, frames, spacing=2)


def _which(rows: list[Row], rest: list[Row]) -> str:
    """What has a rectangle of its own, to stand within a sentence."""
    return f"the {len(rows):,} largest allocations" if rest else f"all {len(rows):,} allocations"


def _subtitle(rows: list[Row], rest: list[Row]) -> list[str]:
    return [
        f"{_which(rows, rest)}, as wide as they live and as high as they are large; heights are free of meaning",
        "click one to see who asked for it",
    ]


def describe(tables: Tables) -> str:
    """The largest allocations, and what the rest is."""
    rows, rest = tables["allocation"].to_pylist(), tables["rest"].to_pylist()
    total, parts = _rest_counts(rest)
    told = "; ".join(
        f"{format_size(row['requested_bytes'])} of {row['bucket']}, requested by {words.asker(row)}" for row in rows[:4]
    )
    which = _which(rows, rest)
    smallest = f", of {format_size(rows[-1]['held_bytes'])} and more" if rest else ""
    more = f" {total:,} smaller ones are summed by bucket: {', '.join(parts)}." if rest else ""
    return f"{which[0].upper()}{which[1:]}{smallest}. The largest: {told}.{more}"


CHART = Chart(
    name="allocations",
    title="The largest allocations, one by one",
    question="Which single allocations are large, how long do they live, and who asked?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=without_events,
    table="allocation",
    params={"picked": "the allocation whose stack stands beside: a point with allocation_id and stack_id"},
)
