"""A recording as fit takes it: where it was made, its program, and what each allocation can be known by.

The door to datasets; nothing is compared or predicted here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from tracekit import what_if
from tracekit.allocator.program import Program
from tracekit.errors import TracekitError
from tracekit.fit.rule import Point
from tracekit.warehouse import Warehouse

Frame = tuple[str, str, int | None]
"""A Python frame: file, without its folders, function and line."""


@dataclass(frozen=True, slots=True)
class Source:
    """A recording and the point it was made at.

    Attributes:
        point: the value of each variable.
        name: what the person called it.
        warehouse: its database.
        recording: its tables and programs.
        device: the device that is looked at.
        step_count: the training steps seen, 0 where nothing tells.
        python: the Python frames of each allocation, innermost first.
        native: its C++ frames.
        bucket: its bucket.
    """

    point: Point
    name: str
    warehouse: Warehouse
    recording: what_if.Recorded
    device: int
    step_count: int
    python: list[tuple[Frame, ...]]
    native: list[tuple[str, ...]]
    bucket: list[str | None]

    @property
    def program(self) -> Program:
        """What the device was asked for."""
        return self.recording.programs[self.device]

    @property
    def has_native(self) -> bool:
        """Whether C++ frames were recorded."""
        return any(self.native)


def read(point: Point, name: str, warehouse: Warehouse, device: int | None = None) -> Source:
    """Take what fit needs out of a dataset.

    Args:
        point: the value of each variable that it was recorded at.
        name: what to call it in words for the person.
        warehouse: the dataset.
        device: the device to look at; the one with the most events otherwise.

    Raises:
        TracekitError: where it has no events, or ran out of memory, so that its program is cut off.
    """
    recording = what_if.recorded(warehouse, device)
    chosen = max(recording.programs, key=lambda one: len(recording.programs[one]))
    (about,) = (row for row in warehouse.table("device_summary").to_pylist() if row["device"] == chosen)
    if about["oom_count"]:
        raise TracekitError(
            f"{name} ran out of memory, so that its program is cut off",
            "give recordings that ran to their end, at smaller values; they say what larger ones need",
        )
    count = len(recording.programs[chosen].requested)
    python: list[tuple[Frame, ...]] = [()] * count
    native: list[tuple[str, ...]] = [()] * count
    bucket: list[str | None] = [None] * count
    by_stack = _frames(warehouse)
    rows = [row for row in warehouse.table("placement").to_pylist() if row["device"] == chosen]
    buckets = {row["allocation_id"]: row["bucket"] for row in warehouse.table("allocation_bucket").to_pylist()}
    for number, row in enumerate(rows):
        python[number], native[number] = by_stack.get(row["stack_id"], ((), ()))
        bucket[number] = buckets.get(row["placement_id"])
    return Source(point, name, warehouse, recording, chosen, about["step_count"], python, native, bucket)


def _frames(warehouse: Warehouse) -> dict[int, tuple[tuple[Frame, ...], tuple[str, ...]]]:
    """The frames of each stack, Python's and C++'s apart: their order against each other is not reliable."""
    files: dict[int, tuple[str, str]] = {
        row["frame_id"]: (row["language"], (row["file"] or "").rpartition("/")[2])
        for row in warehouse.table("frame_label").to_pylist()
    }
    names: dict[int, tuple[str, int | None]] = {
        row["frame_id"]: (row["name"] or "", row["line"]) for row in warehouse.table("frame").to_pylist()
    }
    python: defaultdict[int, list[Frame]] = defaultdict(list)
    native: defaultdict[int, list[str]] = defaultdict(list)
    rows: list[dict[str, Any]] = warehouse.table("stack_frame").to_pylist()
    for row in sorted(rows, key=lambda one: (one["stack_id"], one["depth_ix"])):
        language, file = files[row["frame_id"]]
        name, line = names[row["frame_id"]]
        if language == "python":
            python[row["stack_id"]].append((file, name, line))
        else:
            native[row["stack_id"]].append(name)
    return {stack: (tuple(python[stack]), tuple(native[stack])) for stack in python.keys() | native.keys()}
