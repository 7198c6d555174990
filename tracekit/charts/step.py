"""`step`: one training step as readings at its marks see it, against what was true between them.

Marks are where phases and layers begin and where the recorder took a reading; the rows are made by
queries/report/step.sql.
"""

# pyarrow's and altair's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false, reportUnknownVariableType=false

from __future__ import annotations

from typing import Any

import altair as alt
import pyarrow as pa

from tracekit import ledger
from tracekit.charts import axis, stack, words
from tracekit.charts.chart import DRAWN_WIDTH, Chart, Drawing, Request, Tables, device_of, without_events
from tracekit.errors import QueryError
from tracekit.units import format_mib, format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

_WIDTH = 760
_NAME = 13
"""Pixels that a mark's name takes along the axis; where they are fewer, every second has its name, or every third."""


def data(warehouse: Warehouse, request: Request) -> dict[str, pa.Table]:
    """Marks (`step`), the buckets each lists the bytes of (`stacked`), and readings without a place (`unseated`)."""
    device = device_of(warehouse, request)
    number = _step(warehouse, request)
    rows, stacked = stack.split(warehouse.sql("from step(?, ?)", [device, number]))
    unseated = warehouse.sql(
        "select name, problem from mark_seat where device = ? and step = ? and event_ix is null order by mark_ix",
        [device, number],
    )
    numbered = pa.table({"step": pa.array([number], pa.int64())})
    return {"step": rows, "stacked": stacked, "number": numbered, "unseated": unseated}


def _step(warehouse: Warehouse, request: Request) -> int | None:
    """The step that is asked for: the one in which the moment lies, or else the one with the highest peak.

    Raises:
        QueryError: where the moment lies in no step.
    """
    device = device_of(warehouse, request)
    if request.moment is not None:
        (moment,) = ledger.find_moments(warehouse, request.moment, device)
        (row,) = warehouse.rows("from moment_at(?, ?)", [device, moment.event_ix])
        if row["step"] is None:
            raise QueryError(f"{request.moment} lies in no training step", "name a step, as in --at step:2")
        return row["step"]
    rows = warehouse.rows("from step_highest where device = ? order by step_order limit 1", [device])
    return rows[0]["step"] if rows else None


def draw(tables: Tables) -> alt.TopLevelMixin:
    """Readings as a stack, the most between them as a line above, and the account at the mark that is chosen."""
    marks = tables["step"].to_pylist()
    buckets = [str(name) for name in tables["stacked"]["bucket"].to_pylist()]
    (number,) = tables["number"]["step"].to_pylist()
    highest = max((max(row["reserved_bytes"], row["highest_bytes"] or 0) for row in marks), default=1)
    step_mark = alt.param(
        name="step_mark",
        value=_chosen(marks),
        bind=alt.binding_range(min=0, max=max(len(marks) - 1, 1), step=1, name="mark "),
    )
    mountain = _mountain(marks, buckets, highest).add_params(step_mark)
    chosen = alt.Chart(alt.NamedData("step")).transform_filter("datum.mark_ix == step_mark")
    read, most = axis.mib_text("datum.allocated_bytes"), axis.mib_text("datum.highest_bytes")
    told = (
        "[datum.mark + (isValid(datum.phase) && datum.phase != datum.mark"
        " ? ', ' + datum.phase : ''),"
        " (isValid(datum.reading) ? 'the recorder read ' : 'a reading shows ')"
        f" + {read} + ' allocated',"
        f" (isValid(datum.highest_bytes) ? 'since the mark before: ' + {most} : ''),"
        " (isValid(datum.requested_by) ? 'asked for by ' + datum.requested_by : '')]"
    )
    beside = stack.account(chosen, buckets, max((max(row["bucket_bytes"]) for row in marks), default=1), told)
    return (
        alt.hconcat(mountain, beside, spacing=24)
        .resolve_scale(color="independent")
        .add_params(alt.param(name=DRAWN_WIDTH, value=_WIDTH))
        .properties(title=alt.Title(f"Step {number}, as readings at its marks see it", subtitle=_subtitle(marks)))
    )


def _mountain(marks: list[Row], buckets: list[str], highest: int) -> Drawing:
    rows = alt.Chart(alt.NamedData("step"))
    scale = axis.bytes_scale(highest)
    at = alt.X(
        "mark_ix:Q",
        scale=alt.Scale(domain=[0, max(len(marks) - 1, 1)], nice=False),
        axis=alt.Axis(labels=False, ticks=False, title=None, grid=False),
    )
    held = [name for name in buckets if name != "cached"]
    heights = stack.on_scale(held, axis.bytes_axis(highest, None), scale)
    areas = (
        stack.stacked(rows, buckets)
        .transform_filter("datum.bucket != 'cached'")
        .mark_area(interpolate="linear")
        .encode(x=at, **heights)
    )
    told = [
        alt.Tooltip("mark:N"),
        alt.Tooltip("phase:N"),
        alt.Tooltip("reading:N", title="read by the recorder"),
        alt.Tooltip("allocated_bytes:Q", title="a reading shows", format=","),
        alt.Tooltip("highest_bytes:Q", title="the most since the mark before", format=","),
        alt.Tooltip("highest_event_ix:Q", title="at event", format=","),
        alt.Tooltip("requested_by:N", title="asked for by"),
        alt.Tooltip("user_frame:N", title="in"),
    ]
    between = rows.transform_filter("isValid(datum.highest_bytes)").transform_calculate(from_ix="datum.mark_ix - 1")
    missed = between.mark_rect(style="missed").encode(
        x=alt.X("from_ix:Q"),
        x2="mark_ix:Q",
        y=alt.Y("allocated_bytes:Q", scale=scale),
        y2="highest_bytes:Q",
        tooltip=told,
    )
    most = between.mark_rule(style="peak", strokeWidth=2).encode(
        x="from_ix:Q", x2="mark_ix:Q", y=alt.Y("highest_bytes:Q", scale=scale), tooltip=told
    )
    readings = rows.mark_point(opacity=1).encode(
        x=at,
        y=alt.Y("allocated_bytes:Q", scale=scale),
        size=alt.condition("isValid(datum.reading)", alt.value(54), alt.value(16)),
        tooltip=told,
    )
    names = (
        rows.transform_filter(f"datum.mark_ix % ceil({_NAME * len(marks)} / {DRAWN_WIDTH}) == 0")
        .mark_text(angle=300, align="right", baseline="middle", dx=-6, y="height", fontSize=10, limit=110)
        .encode(x=at, text="mark:N")
    )
    here = rows.transform_filter("datum.mark_ix == step_mark").mark_rule(strokeDash=[2, 2]).encode(x=at)
    peak = max(marks, key=lambda row: row["highest_bytes"] or 0, default=None)
    label = f"'the true peak, ' + {axis.mib_text('datum.highest_bytes')} + {axis.asker_text()}"
    is_right = peak is not None and peak["mark_ix"] > 0.6 * len(marks)
    share = f"datum.from_ix / {max(len(marks) - 1, 1)}"
    room = f"({share if is_right else f'1 - {share}'}) * {DRAWN_WIDTH}"
    pointed = (
        between.transform_filter(f"datum.mark_ix == {peak['mark_ix'] if peak else -1}")
        .transform_calculate(label=label, room=room)
        .mark_text(
            style="peak",
            align="right" if is_right else "left",
            dy=-9,
            dx=-4 if is_right else 4,
            limit=alt.expr("datum.room"),
        )
        .encode(x="from_ix:Q", y=alt.Y("highest_bytes:Q", scale=scale), text="label:N")
    )
    return alt.layer(areas, missed, most, readings, names, here, pointed, width=_WIDTH, height=360)


def _chosen(marks: list[Row]) -> int:
    """The mark whose account stands beside at first: the one whose reading is the highest."""
    return _highest_read(marks)["mark_ix"] if marks else 0


def _highest_read(marks: list[Row]) -> Row:
    """The mark with the highest reading: of those that the recorder took, where it took any."""
    taken = [row for row in marks if row["reading"] is not None]
    return max(taken or marks, key=_read_bytes)


def _read_bytes(mark: Row) -> int:
    """What a reading at a mark shows: torch's own number where the recorder took one, else what it would have shown."""
    return mark["allocated_bytes"] if mark["reading_bytes"] is None else mark["reading_bytes"]


def _missed(marks: list[Row]) -> tuple[Row, Row, int]:
    """The highest reading, the mark before which the truth was highest, and how much lies between them."""
    read = _highest_read(marks)
    true = max(marks, key=lambda row: row["highest_bytes"] or 0)
    return read, true, max((true["highest_bytes"] or 0) - _read_bytes(read), 0)


def _subtitle(marks: list[Row]) -> list[str]:
    if not marks:
        return []
    read, true, missed = _missed(marks)
    begins = "phases and layers begin" if any(row["layer_ix"] is not None for row in marks) else "phases begin"
    whose = "readings"
    if read["reading"] is not None:
        begins += " and the recorder took a reading (the large points)"
        whose = "the recorder's readings"
    true_mib, read_mib = format_mib(true["highest_bytes"] or 0), format_mib(_read_bytes(read))
    return [
        f"{len(marks):,} marks, where {begins}; red: the most allocated between two, which no reading sees",
        f"{whose} reach {read_mib} MiB, the truth {true_mib}: they miss {format_mib(missed)} MiB",
    ]


def describe(tables: Tables) -> str:
    """How high readings at the marks reach, how high the truth, and who asked for the difference."""
    marks = tables["step"].to_pylist()
    (number,) = tables["number"]["step"].to_pylist()
    if not marks:
        return f"Step {number} has no marks."
    read, true, missed = _missed(marks)
    taken = sum(1 for row in marks if row["reading"] is not None)
    told = f"Step {number} has {len(marks):,} marks. A reading shows"
    if taken:
        told = (
            f"Step {number} has {len(marks):,} marks, and at {taken:,} of them the recorder took a reading. These show"
        )
    return (
        f"{told} {format_size(_read_bytes(read))} at most, at {read['reading'] or read['mark']}; the true peak is"
        f" {format_size(true['highest_bytes'] or 0)}, at event {true['highest_event_ix'] or 0:,}, requested by"
        f" {words.asker(true)}: {format_size(missed)} are missed.{_left_out(tables['unseated'].to_pylist())}"
    )


def _left_out(unseated: list[Row]) -> str:
    if not unseated:
        return ""
    problems = ", ".join(dict.fromkeys(row["problem"] for row in unseated))
    verb = "is" if len(unseated) == 1 else "are"
    return f" Of the recorder's readings {len(unseated):,} {verb} left out: {problems}."


def why_not(warehouse: Warehouse, request: Request) -> str | None:
    """Why there is no step to draw: none was told apart, or there are no events."""
    return without_events(warehouse, request) or (
        "no training step is told apart in this recording" if _step(warehouse, request) is None else None
    )


CHART = Chart(
    name="step",
    title="One step, as readings at its marks see it",
    question="What does a reading at each layer show of a step, and what does it miss?",
    data=data,
    draw=draw,
    describe=describe,
    why_not=why_not,
    table="step",
    params={
        "step_mark": "the mark whose account stands beside: a number, from 0 to the last mark; the slider's",
        DRAWN_WIDTH: "its width, by which names know their room",
    },
)
