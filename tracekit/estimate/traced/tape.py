"""What a step that never ran on a GPU asked for and gave back, in order, with the stack of each.

A tape is plain values, so that it can be looked at without torch: the tracer writes it, the allocator's program and a
dataset's raw tables are read from it. Neither torch nor the allocator's rules live here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from tracekit.allocator.program import ALLOCATE, COMPLETE, DROP, EMPTY_CACHE, Program
from tracekit.allocator.settings import Settings
from tracekit.flatten import seated_annotations
from tracekit.schema import RAW_TABLES, TABLES

Frame = tuple[str, str | None, int | None]
"""Name, file and line; a C++ frame has neither of the last two."""

Row = dict[str, Any]


@dataclass(slots=True)
class Tape:
    """The log of a traced step.

    Attributes:
        kind: ALLOCATE, DROP or EMPTY_CACHE, one an operation.
        number: the allocation that each operation is about, -1 for EMPTY_CACHE.
        stack: the stack of each operation, a position in `stacks`.
        label: the module each operation happened in, as the recorder writes it into user_metadata; None outside.
        requested: the bytes of each allocation.
        stacks: distinct stacks, each a tuple of positions in `frames`, innermost first.
        frames: distinct frames.
        marks: name, START or END, and the operation that each comes before.
        unknown: operators whose memory besides their outputs is not known, with how often they ran.
        approximate: operators whose memory besides their outputs is only about right, with how often they ran.
        assumed: what was taken for granted, in sentences.
    """

    kind: list[int] = field(default_factory=list[int])
    number: list[int] = field(default_factory=list[int])
    stack: list[int] = field(default_factory=list[int])
    label: list[str | None] = field(default_factory=list["str | None"])
    requested: list[int] = field(default_factory=list[int])
    stacks: dict[tuple[int, ...], int] = field(default_factory=dict[tuple[int, ...], int])
    frames: dict[Frame, int] = field(default_factory=dict[Frame, int])
    marks: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    unknown: Counter[str] = field(default_factory=Counter[str])
    approximate: Counter[str] = field(default_factory=Counter[str])
    assumed: dict[str, None] = field(default_factory=dict[str, None])

    def allocate(self, requested: int, frames: tuple[int, ...], label: str | None = None) -> int:
        """Write down an allocation and return its number."""
        number = len(self.requested)
        self.requested.append(requested)
        self._add(ALLOCATE, number, frames, label)
        return number

    def drop(self, number: int, frames: tuple[int, ...], label: str | None = None) -> None:
        """Write down that the program let go of an allocation."""
        self._add(DROP, number, frames, label)

    def empty_cache(self, frames: tuple[int, ...]) -> None:
        """Write down that the program asked for idle segments to be given back."""
        self._add(EMPTY_CACHE, -1, frames, None)

    def mark(self, name: str, stage: str) -> None:
        """Write down that a named range begins or ends here: START or END."""
        self.marks.append((name, stage, len(self.kind)))

    def frame(self, name: str, filename: str | None = None, line: int | None = None) -> int:
        """The position of a frame."""
        return self.frames.setdefault((name, filename, line), len(self.frames))

    def _add(self, kind: int, number: int, frames: tuple[int, ...], label: str | None) -> None:
        self.kind.append(kind)
        self.number.append(number)
        self.stack.append(self.stacks.setdefault(frames, len(self.stacks)))
        self.label.append(label)


def program(tape: Tape, settings: Settings) -> Program:
    """The tape as a program that the allocator can run; an operation's source is its position on the tape."""
    made = Program(settings=settings)
    for requested in tape.requested:
        made.add_allocation(requested)
    for position, (kind, number) in enumerate(zip(tape.kind, tape.number, strict=True)):
        made.add(kind, number, position)
        if kind == DROP:
            made.add(COMPLETE, number, position)
    return made


def tables(tape: Tape) -> dict[str, pa.Table]:
    """The tape as raw tables without addresses; trace_event has one row an operation.

    There is no clock in a step that never ran: its operations are one microsecond apart.
    """
    count = len(tape.kind)
    rows: dict[str, list[Row]] = {name: [] for name in RAW_TABLES}
    rows["run"] = [
        {"layout": "dict", "oldest_torch": None, "device_count": 1}
        | {"has_trace": count > 0, "has_stacks": True, "has_time": True}
    ]
    rows["device"] = [
        {"device": 0, "event_count": count, "segment_count": 0, "first_time_us": 0, "last_time_us": count}
    ]
    rows["stack"] = [{"stack_id": ix, "depth_count": len(frames)} for frames, ix in tape.stacks.items()]
    rows["stack_frame"] = [
        {"stack_id": ix, "depth_ix": depth, "frame_id": frame}
        for frames, ix in tape.stacks.items()
        for depth, frame in enumerate(frames)
    ]
    rows["frame"] = [
        {"frame_id": ix, "name": name, "filename": filename, "line": line}
        for (name, filename, line), ix in tape.frames.items()
    ]
    rows["annotation"] = [
        {"annotation_ix": ix, "device": 0, "name": name, "stage": stage, "time_us": position}
        for ix, (name, stage, position) in enumerate(tape.marks)
    ]
    made = {name: pa.Table.from_pylist(rows[name], schema=TABLES[name].schema) for name in RAW_TABLES}
    known: dict[str, pa.Array] = {
        "device": pa.array([0] * count, pa.int64()),
        "event_ix": pa.array(range(count), pa.int64()),
        "action": pa.array(["alloc" if kind == ALLOCATE else "free_requested" for kind in tape.kind], pa.string()),
        "size_bytes": pa.array([tape.requested[number] if number >= 0 else 0 for number in tape.number], pa.int64()),
        "time_us": pa.array(range(count), pa.int64()),
        "stack_id": pa.array(tape.stack, pa.int64()),
        "user_metadata": pa.array(tape.label, pa.string()),
    }
    schema = TABLES["trace_event"].schema
    made["trace_event"] = pa.table(
        [known.get(column.name, pa.nulls(count, column.type)) for column in schema], schema=schema
    )
    made["annotation"] = pa.Table.from_pylist(
        seated_annotations(made["annotation"].to_pylist(), made["trace_event"]), schema=TABLES["annotation"].schema
    )
    return made
