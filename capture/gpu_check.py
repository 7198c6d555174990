"""What only a GPU can show about the recorder and the stories, in one prepared run of a few minutes.

Starts the stories as anybody would and looks at what they leave; `make gpu-check` is the same.

    python capture/gpu_check.py -o gpu_check
    python capture/gpu_check.py -o gpu_check --only golden,marks
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import train_step

WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":4096:2:16:8"}
"""Most GPUs' cuBLAS workspace; with it, other GPUs give the figures of the A40 that the story began on."""

CAP = "45440MiB"
SWEEP = {16: (32_611.9, 36_072.0), 18: (36_489.8, 40_506.0), 20: (40_375.3, 44_948.0), 21: None}
"""Allocated and reserved peaks in MiB under the cap; None where memory runs out."""

GOLDEN = {"warmup": 8.1, "load_model": 527.2, "optimizer": 0.0, "1.optimizer": 949.4, "1.zero_grad": -476.4}
"""What each line changes, MiB. Which remainder a block inherits depends on addresses, and is worth about 1 MiB."""

NEAR_MIB = 1.5
Check = tuple[str, str, str, bool]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks asked for; exit 1 where one fails."""
    parser = argparse.ArgumentParser(description="Check on a GPU what only a GPU can show; takes a few minutes.")
    parser.add_argument("-o", "--out", default="gpu_check", help="a new folder for the recordings")
    parser.add_argument("--only", default=",".join(CHECKS), help=f"some of {', '.join(CHECKS)}")
    args = parser.parse_args(argv)
    chosen = args.only.split(",")
    if unknown := [name for name in chosen if name not in CHECKS]:
        parser.error(f"there is no check {unknown[0]!r}; there are {', '.join(CHECKS)}")
    train_step.reach_neighbours()
    from tracekit.recorder import RecordingError, require_recording

    folder = Path(args.out)
    try:
        require_recording()
        folder.mkdir(parents=True)
    except RecordingError as error:
        return train_step.refuse(error.problem, error.remedy)
    except FileExistsError:
        return train_step.refuse(f"{folder} exists already", "choose another folder with -o")
    found: list[Check] = []
    for name in chosen:
        begin_s = time.monotonic()
        try:
            found += CHECKS[name](folder)
        except Exception as error:  # the other checks still have something to say
            found.append((name, "runs", f"{type(error).__name__}: {error}", False))
        print(f"{name}: {time.monotonic() - begin_s:.0f} s", file=sys.stderr, flush=True)
    for check, expected, seen, is_right in found:
        print(f"{'ok  ' if is_right else 'FAIL'}  {check:<44}{expected:>28}  {seen}")
    rows = [dict(zip(("check", "expected", "seen", "is_right"), one, strict=True)) for one in found]
    (folder / "gpu_check.json").write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(one[3] for one in found) else 1


# The checks


def check_golden(folder: Path) -> list[Check]:
    """Batch 8: the peak, and what each line changes."""
    report = step(folder / "golden")
    peak = report["peak_allocated_bytes"] / train_step.MIB
    found = [near("golden: peak allocated MiB", 17_053.6, peak)]
    changes = {line["after"]: line["change_bytes"] / train_step.MIB for line in report["lines"]}
    found += [near(f"golden: {name} changes MiB", expected, changes[name]) for name, expected in GOLDEN.items()]
    begin = next(line for line in report["lines"] if line["after"] == "2.data")["allocated_bytes"]
    found.append(near("golden: step 2 begins at MiB", 1_494.0, begin / train_step.MIB))
    found.append(
        ("golden: first loss", "10.98 +- 0.2", f"{report['losses'][0]:.2f}", abs(report["losses"][0] - 10.98) < 0.2)
    )
    return found


def check_sweep(folder: Path) -> list[Check]:
    """Batches 16 to 21 under the A40's free memory."""
    sizes = ",".join(map(str, SWEEP))
    command = ["batch_sweep.py", "--batches", sizes, "--cap", CAP, "--stacks", "python"]
    rows = run([*command, "-o", str(folder / "sweep"), "--format", "json"])
    found: list[Check] = []
    for row in rows:
        expected = SWEEP[row["batch"]]
        if expected is None:
            found.append(
                (f"sweep: batch {row['batch']}", "out_of_memory", row["status"], row["status"] == "out_of_memory")
            )
            continue
        for name, size in zip(("allocated", "reserved"), expected, strict=True):
            seen = (row[f"peak_{name}_bytes"] or 0) / train_step.MIB
            found.append(
                near(f"sweep: batch {row['batch']} {name} MiB", size, seen, 0.05 if name == "reserved" else NEAR_MIB)
            )
    return found


def check_marks(folder: Path) -> list[Check]:
    """Module marks change no allocation; neither does recording at all."""
    marked = step(folder / "marked", "--stacks", "python")
    bare = step(folder / "unmarked", "--stacks", "python", "--no-modules")
    counted = step(folder / "unrecorded", "--no-history", "--no-modules")
    difference = first_difference(requests(folder / "marked"), requests(folder / "unmarked"))
    found: list[Check] = [("marks: events with and without them", "the same", difference, difference == "the same")]
    for other, report in (("without marks", bare), ("without recording", counted)):
        wrong = [
            one["after"]
            for one, two in zip(marked["lines"], report["lines"], strict=True)
            if abs(one["peak_allocated_bytes"] - two["peak_allocated_bytes"]) > NEAR_MIB * train_step.MIB
        ]
        found.append((f"marks: peaks {other}", "the same", ", ".join(wrong) or "the same", not wrong))
    counts = [
        {mark["label"]: mark["alloc_count"] for mark in capture(folder / name)["marks"]}
        for name in ("marked", "unrecorded")
    ]
    found.append(
        ("marks: allocations counted", str(counts[1]["2.end"]), str(counts[0]["2.end"]), counts[0] == counts[1])
    )
    return found


def check_ops(folder: Path) -> list[Check]:
    """With an op log, every allocation of a step has an operator and a shape."""
    step(folder / "ops", "--stacks", "python", "--ops")
    named, shaped, count, example = cover(folder / "ops")
    return [
        ("ops: allocations with an operator", str(count), f"{named} {example}".strip(), named == count),
        ("ops: allocations with a shape", str(count), str(shaped), shaped == count),
    ]


def check_cost(folder: Path) -> list[Check]:
    """What recording costs: seconds a step, and seconds for a dump. Nothing here can fail; it is to be written down."""
    ways = {
        "nothing": ["--no-history", "--no-modules"],
        "stacks python": ["--no-modules", "--stacks", "python"],
        "stacks python, marks": ["--stacks", "python"],
        "stacks all, marks": ["--stacks", "all"],
        "stacks python, marks, ops": ["--stacks", "python", "--ops"],
    }
    found: list[Check] = []
    for name, words in ways.items():
        place = folder / f"cost_{name.replace(', ', '_').replace(' ', '_')}"
        report = step(place, *words, "--steps", "8")
        dumps = [f"{one['wall_s']} s for {one['event_count'][0]:,} events" for one in capture(place)["dumps"]]
        seconds = sorted(report["step_s"][2:])
        seen = f"{seconds[len(seconds) // 2]:.4f} s a step, dump: {', '.join(dumps) or 'none'}"
        found.append((f"cost: {name}", "-", seen, True))
    return found


CHECKS: dict[str, Callable[[Path], list[Check]]] = {
    "golden": check_golden,
    "sweep": check_sweep,
    "marks": check_marks,
    "ops": check_ops,
    "cost": check_cost,
}


# Looking at what was left


def requests(folder: Path) -> list[tuple[str, int]]:
    """Action and bytes of each event, in order."""
    return [(event["action"], event["size"]) for event in trace(folder)]


def first_difference(one: Sequence[tuple[str, int]], two: Sequence[tuple[str, int]]) -> str:
    """Where two recordings part, in a few words."""
    for index, (left, right) in enumerate(zip(one, two, strict=False)):
        if left != right:
            return f"event {index}: {left} against {right}"
    return "the same" if len(one) == len(two) else f"{len(one)} events against {len(two)}"


def cover(folder: Path) -> tuple[int, int, int, str]:
    """How many allocations from the first step on have an operator, and how many a shape, of how many.

    An event names its operator by number. Its shape is that of the output that lies at its address, or else what went
    into the operator: scratch memory has no shape of its own.

    Returns:
        With an operator, with a shape, all, and the first one without an operator.
    """
    from pyarrow.parquet import ParquetFile

    rows = ParquetFile(folder / "ops.parquet").read(columns=["op_ix", "address", "shape", "input_shapes"]).to_pylist()
    known = {row["op_ix"] for row in rows}
    outputs = {(row["op_ix"], row["address"]) for row in rows if row["shape"] is not None}
    inputs = {row["op_ix"] for row in rows if row["input_shapes"] != "[]"}
    begin_us = next(mark["time_us"] for mark in capture(folder)["marks"] if mark["label"] == "optimizer")
    events = [event for event in trace(folder) if event["action"] == "alloc" and event["time_us"] > begin_us]
    named, shaped, example = 0, 0, ""
    for event in events:
        label = json.loads(event.get("user_metadata") or "[]")
        number = label[2] if len(label) > 2 else None
        named += number in known
        shaped += (number, event["addr"]) in outputs or number in inputs
        if number not in known and not example:
            example = f"(not one of {event['size']} bytes)"
    return named, shaped, len(events), example


def trace(folder: Path) -> list[dict[str, Any]]:
    """The events of the first device that has any."""
    with (folder / "snapshot.pickle").open("rb") as file:
        traces = pickle.load(file)["device_traces"]  # noqa: S301  (this program has just had it written)
    return next((events for events in traces if events), [])


def capture(folder: Path) -> dict[str, Any]:
    """capture.json of a run folder."""
    return json.loads((folder / "capture.json").read_text(encoding="utf-8"))


def near(name: str, expected: float, seen: float, by: float = NEAR_MIB) -> Check:
    """A check of a figure against what it should be."""
    return name, f"{expected:,.1f} +- {by}", f"{seen:,.1f}", abs(seen - expected) <= by


def step(folder: Path, *words: str) -> dict[str, Any]:
    """Record a training step, and give its report."""
    return run(["train_step.py", "--out", str(folder), "--format", "json", *words])


def run(command: list[str]) -> Any:
    """Run a story in a process of its own, and give what it printed as JSON."""
    words = [sys.executable, str(train_step.HERE / command[0]), *command[1:]]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, env=os.environ | WORKSPACE)  # noqa: S603
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
