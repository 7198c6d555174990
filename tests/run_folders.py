"""A shared recording and what was measured beside it, as the recorder would have left them: a run folder.

The bytes of its marks and the tensors of its roll are torch's own, measured when the recording was made. Counts were
not, and are counted here from the events' times: what is proven on such a folder is all but that torch counts so.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.conftest import facts_of, recording_name
from tracekit.recorder.ops import COLUMNS as OP_COLUMNS
from tracekit.recorder.roll import COLUMNS as ROLL_COLUMNS
from tracekit.recorder.roll import write_table
from tracekit.snapshot import read_snapshot

Row = dict[str, Any]

COUNTED = {
    "alloc_count": "alloc",
    "free_count": "free_requested",
    "segment_alloc_count": "segment_alloc",
    "segment_free_count": "segment_free",
}
BEFORE = 17
"""What torch had counted of each before the recording began, in these folders."""

ROLES = {"optimizer": "optimizer_state"}


def make_run(capture: Path, folder: Path, **changes: Any) -> Path:
    """Make a run folder of a shared recording.

    Args:
        capture: the recording, NAME.pickle.xz.
        folder: where.
        changes: of capture.json.
    """
    facts = facts_of(capture)
    times = _times(capture)
    folder.mkdir(parents=True)
    (folder / "snapshot.pickle.xz").hardlink_to(capture)
    marks = _marks(facts, times)
    is_ring_full = recording_name(capture) == "small_ring"
    if is_ring_full:
        marks[0] |= dict.fromkeys(COUNTED, 0)  # it lies among what the ring lost
        marks.append(_end_mark(capture, marks[-1], times))
    made: Row = {
        "format": "tracekit run",
        "version": 1,
        "torch": facts["torch"],
        "cuda": facts["cuda"],
        "program": recording_name(capture),
        "recorder": {"context": "all", "max_entries": 1_000_000},
        "step_count": len(facts.get("step_stats") or []),
        "snapshot": "end_step2_rank0_pid1.pickle",
        "dumps": [
            {
                "file": "end_step2_rank0_pid1.pickle",
                "reason": "end",
                "step": None,
                "phase": None,
                "time_us": None,
                "event_count": [len(times["all"])],
                "is_ring_full": [is_ring_full],
            }
        ],
        "marks": marks,
        **changes,
    }
    (folder / "capture.json").write_text(json.dumps(made), encoding="utf-8")
    if facts.get("dispatch"):
        with (folder / "ops.parquet").open("wb") as file:
            write_table(list(_ops(facts)), OP_COLUMNS, file)
    if facts.get("tensors"):
        rows = _roll(facts, times)
        with (folder / "tensors.parquet").open("wb") as file:
            write_table(rows, ROLL_COLUMNS, file)
    return folder


def _times(capture: Path) -> dict[str, list[int]]:
    """The times of device 0's events, by action and all."""
    times: dict[str, list[int]] = {"all": []}
    for trace in read_snapshot(capture).device_traces[:1]:
        for event in trace:
            times["all"].append(event["time_us"])
            times.setdefault(event["action"], []).append(event["time_us"])
    return times


# what memory_stats calls more of them; it leaves zeros out
COUNTED_IN_STATS = {
    "active.all.freed": ("free_completed",),
    "num_device_alloc": ("segment_alloc", "segment_map"),
    "num_device_free": ("segment_free", "segment_unmap"),
    "num_ooms": ("oom",),
}


def _counts(times: dict[str, list[int]], now: int) -> dict[str, int]:
    return {name: BEFORE + bisect_right(times.get(action, []), now) for name, action in COUNTED.items()}


def _marks(facts: Row, times: dict[str, list[int]]) -> list[Row]:
    """A mark begin, and one for each reading after it; a recording that began late begins at the reading before."""
    first_us = times["all"][0] if times["all"] else 0
    readings = [reading for reading in facts["readings"] if reading[5] >= first_us]
    early = facts["readings"][: len(facts["readings"]) - len(readings)]
    marks = [_mark(["begin", *(early[-1][1:5] if early else [0] * 4), first_us - 1], None, None, times)]
    step, reset_us = None, None
    for reading in readings:
        number, _, phase = reading[0].partition(".")
        if phase and number.isdecimal() and int(number) != step:
            step, reset_us = int(number), marks[-1]["time_us"]  # the peaks were reset at each step's start
        if reading[0] == "model.cuda":
            reading = ["load_model", *reading[1:]]  # the recorder's word for it
        mark = _mark(reading, step, reset_us, times)
        if phase == "zero_grad" and step is not None:  # at a step's end memory_stats were kept
            kept = facts["step_stats"][step - 1]
            assert kept["allocated_bytes.all.current"] == mark["allocated_bytes"]
            mark["stats"] = {**mark["stats"], **{name: value for name, value in kept.items() if value}}
        marks.append(mark)
    return marks


def _mark(reading: list[Any], step: int | None, reset_us: int | None, times: dict[str, list[int]]) -> Row:
    label, allocated, reserved, peak_allocated, peak_reserved, now = reading
    return {
        "label": label,
        "step": step,
        "device": 0,
        "time_us": now,
        "allocated_bytes": allocated,
        "reserved_bytes": reserved,
        "peak_allocated_bytes": peak_allocated,
        "peak_reserved_bytes": peak_reserved,
        "peak_since_us": reset_us,
        **_counts(times, now),
        "stats": {
            name: BEFORE + sum(bisect_right(times.get(action, []), now) for action in actions)
            for name, actions in COUNTED_IN_STATS.items()
        },
    }


def _end_mark(capture: Path, last: Row, times: dict[str, list[int]]) -> Row:
    """The mark that the recorder leaves before its last dump; what is freed after the last reading moves no peak.

    The bytes are what torch counted segment by segment.
    """
    segments = [one for one in read_snapshot(capture).segments if one["device"] == 0]
    allocated, reserved = (sum(one[key] for one in segments) for key in ("allocated_size", "total_size"))
    peaks = last["peak_allocated_bytes"], last["peak_reserved_bytes"]
    return _mark(
        ["end_of_recording", allocated, reserved, *peaks, times["all"][-1]], None, last["peak_since_us"], times
    )


def _roll(facts: Row, times: dict[str, list[int]]) -> list[Row]:
    """The tensors at the end of the last optimizer step."""
    ends = [row for row in facts["readings"] if row[0].endswith(".optimizer")]
    step, now = max((int(row[0].partition(".")[0]), row[5]) for row in ends)
    return [
        {
            "address": address,
            "byte_count": size,
            "storage_bytes": size,
            "storage_offset_bytes": 0,
            "shape": shape,
            "dtype": dtype.removeprefix("torch."),
            "role": ROLES.get(role, role),
            "name": name,
            "device": 0,
            "step": step,
            "time_us": now,
            "alloc_count": _counts(times, now)["alloc_count"],
        }
        for role, name, address, size, shape, dtype in facts["tensors"]
    ]


def _ops(facts: Row) -> Iterator[Row]:
    """What a dispatch mode saw: an output of each call, when it had returned."""
    for op_ix, (operator, address, size, shape, dtype, now) in enumerate(facts["dispatch"]):
        yield {
            "op_ix": op_ix,
            "operator": operator,
            "begin_us": now,
            "end_us": now,
            "output_ix": 0,
            "device": 0,
            "address": address,
            "storage_bytes": size,
            "shape": shape,
            "dtype": dtype.removeprefix("torch."),
        }


def read_capture(folder: Path) -> Row:
    """capture.json of a run folder."""
    return json.loads((folder / "capture.json").read_text(encoding="utf-8"))
