"""`growth`: what is held at the beginning of each step, by the stack that asked, and how far it is from the first.

The lines and their verdicts are made by queries/report/; a verdict is no bucket, and has colours of its own.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import altair as alt
import pyarrow as pa

from tracekit import growth
from tracekit.charts import axis, theme
from tracekit.charts.chart import Chart, Drawing, Request, Tables, device_of, without_events
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_WIDTH = 620


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """A row a line and step (`growth`)."""
    return {"growth": warehouse.sql("from growth_shown(?)", [device_of(warehouse, request)])}


def draw(tables: Tables) -> alt.TopLevelMixin:
    """All that is held above, and below it how far each line is from where it began."""
    rows = tables["growth"].to_pylist()
    steps = sorted({row["step"] for row in rows})
    total: dict[int, int] = {}
    for row in rows:
        total[row["step"]] = total.get(row["step"], 0) + row["held_bytes"]
    at = alt.X(
        "step:Q",
        title="step that begins",
        scale=alt.Scale(domain=[steps[0], steps[-1]] if steps else [0, 1], nice=False),
        axis=alt.Axis(grid=False, format=",d", values=axis.whole_ticks(steps[0], steps[-1]) if steps else []),
    )
    colour = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=list(theme.VERDICT_COLOURS), range=list(theme.VERDICT_COLOURS.values())),
        legend=alt.Legend(
            title=None, orient="top", values=[name for name in theme.VERDICT_COLOURS if _is_used(name, rows)]
        ),
    )
    told = [
        alt.Tooltip("line:N"),
        alt.Tooltip("verdict:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("held_bytes:Q", title="held bytes", format=","),
        alt.Tooltip("change_bytes:Q", title="since the first", format="+,"),
        alt.Tooltip("allocation_count:Q", title="allocations", format=","),
        alt.Tooltip("stack_count:Q", title="stacks", format=","),
    ]
    base = alt.Chart(alt.NamedData("growth"))
    highest = max(total.values(), default=1)
    held = base.mark_area(style="edge", interpolate="linear", strokeWidth=0.5, line=False).encode(
        x=at,
        y=alt.Y(
            "held_bytes:Q", stack="zero", axis=axis.bytes_axis(highest, None, 4), scale=axis.bytes_scale(highest, 4)
        ),
        detail="line:N",
        order=alt.Order("line_ix:Q", sort="descending"),
        color=colour,
        tooltip=told,
    )
    return alt.vconcat(
        held.properties(
            width=_WIDTH, height=130, title=alt.Title("held at the beginning of each step", fontSize=12, frame="group")
        ),
        _changes(base, rows, steps, at, colour, told),
    ).properties(title=alt.Title("What grows from step to step", subtitle=[_verdict(rows)]))


def _changes(
    base: alt.Chart, rows: list[Row], steps: list[int], at: alt.X, colour: alt.Color, told: list[alt.Tooltip]
) -> Drawing:
    """A line a stack: its distance from the first moment, with its name where it ends."""
    lowest, highest = (pick((row["change_bytes"] for row in rows), default=0) for pick in (min, max))
    y = alt.Y(
        "change_bytes:Q",
        scale=axis.change_scale(highest, lowest),
        axis=axis.change_axis(highest, lowest),
    )
    lines = base.mark_line(strokeWidth=1.6, point=alt.OverlayMarkDef(size=22)).encode(
        x=at, y=y, detail="line:N", color=colour, tooltip=told
    )
    # names of lines that end at one height would lie on each other: one of them stands for all
    last = [row for row in rows if steps and row["step"] == steps[-1]]
    shown: dict[int, Row] = {}
    for row in last:
        if row["verdict"] not in ("stays", "the rest"):
            shown.setdefault(round(20 * row["change_bytes"] / max(highest - lowest, 1)), row)
    names = (
        base.transform_filter(f"datum.step == {steps[-1] if steps else 0}")
        .transform_filter(alt.FieldOneOfPredicate(field="line_ix", oneOf=[row["line_ix"] for row in shown.values()]))
        .transform_calculate(label="length(datum.line) > 60 ? slice(datum.line, 0, 59) + '…' : datum.line")
        .mark_text(align="left", dx=7, fontSize=10)
        .encode(x=at, y=y, text="label:N")
    )
    title = alt.Title("change since the first of them, by the stack that asked", fontSize=12, frame="group")
    return alt.layer(lines, names, width=_WIDTH, height=240, title=title)


def _is_used(verdict: str, rows: list[Row]) -> bool:
    return any(row["verdict"] == verdict for row in rows)


def _growing(rows: list[Row]) -> list[Row]:
    """The last row of each line that grows or bursts."""
    lines: dict[int, Row] = {}
    for row in rows:
        if row["verdict"] in ("grows", "bursts"):
            lines[row["line_ix"]] = row
    return list(lines.values())


def _verdict(rows: list[Row]) -> str:
    moments = len({row["step"] for row in rows})
    if moments < growth.ENOUGH:
        return f"{moments} moments compare, too few for a verdict"
    found = _growing(rows)
    if not found:
        return "nothing grows from step to step"
    more = format_size(sum(row["change_bytes"] for row in found))
    grow = "1 stack grows" if len(found) == 1 else f"{len(found):,} stacks grow"
    return f"{grow}: {more} more at the last step than at the first"


def describe(tables: Tables) -> str:
    """What grows, by how much, and who asked for it."""
    rows = tables["growth"].to_pylist()
    steps = sorted({row["step"] for row in rows})
    told = f"The beginnings of steps {steps[0]:,} to {steps[-1]:,}: {_verdict(rows)}."
    for row in _growing(rows)[:3]:
        told += f" {row['line']}: {format_size(row['change_bytes'])} more, {row['allocation_count']:,} allocations."
    return told


def why_not(warehouse: Warehouse, request: Request) -> str | None:
    """Why there is no growth to draw: fewer than two moments compare."""
    reason = without_events(warehouse, request)
    if reason:
        return reason
    rows = warehouse.rows("from step_begin where device = ? limit 2", [device_of(warehouse, request)])
    if len(rows) < 2:
        return f"it needs the beginnings of 2 steps after the first one, and the recording has {len(rows)}"
    return None


CHART = Chart(
    name="growth",
    title="What grows from step to step",
    question="Does memory grow from step to step, and whose is it?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=why_not,
    table="growth",
    params={},
)
