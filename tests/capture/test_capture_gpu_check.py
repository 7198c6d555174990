"""The check for a GPU, as far as it can be tested without one: what it makes of the files it finds."""

from __future__ import annotations

import importlib
import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from tracekit.recorder import RecordingError
from tracekit.recorder.ops import COLUMNS
from tracekit.recorder.roll import write_table


@pytest.fixture
def gpu_check(story: Any) -> Any:
    """The check."""
    return story("gpu_check")


def leave(folder: Path, events: list[dict[str, Any]], ops: list[dict[str, Any]]) -> None:
    folder.mkdir()
    (folder / "snapshot.pickle").write_bytes(pickle.dumps({"device_traces": [[], events]}))
    marks = [{"label": "optimizer", "time_us": 10}]
    (folder / "capture.json").write_text(json.dumps({"marks": marks}))
    with (folder / "ops.parquet").open("wb") as file:
        write_table(ops, COLUMNS, file)


def alloc(address: int, label: Any, time_us: int = 20) -> dict[str, Any]:
    text = json.dumps(label) if label else ""
    return {"action": "alloc", "addr": address, "size": 512, "time_us": time_us, "user_metadata": text}


def test_allocations_are_covered_by_number_and_address(gpu_check: Any, tmp_path: Path) -> None:
    ops: list[dict[str, Any]] = [
        {"op_ix": 0, "operator": "aten.mm.default", "address": 1, "shape": [2, 2], "input_shapes": "[[2, 3], [3, 2]]"},
        {"op_ix": 1, "operator": "aten.ones.default", "address": 7, "shape": [4], "input_shapes": "[]"},
    ]
    events = [
        alloc(9, None, time_us=5),  # before the first step
        alloc(1, ["forward", "0", 0]),
        alloc(2, ["forward", "0", 0]),  # scratch of the same operator
        alloc(7, [None, None, 1]),
        alloc(8, ["forward", "0"]),
    ]
    leave(tmp_path / "ops", events, ops)
    assert gpu_check.cover(tmp_path / "ops") == (3, 3, 4, "(not one of 512 bytes)")


def test_two_recordings_are_compared_event_by_event(gpu_check: Any) -> None:
    one = [("alloc", 512), ("free_requested", 512)]
    assert gpu_check.first_difference(one, list(one)) == "the same"
    assert gpu_check.first_difference(one, [one[0], ("alloc", 4)]).startswith("event 1:")
    assert gpu_check.first_difference(one, one[:1]) == "2 events against 1"


def test_a_check_that_breaks_is_a_check_that_fails(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(_folder: Path) -> list[Any]:
        raise OSError("no space left")

    def fine(_folder: Path) -> list[Any]:
        return [gpu_check.near("peak MiB", 17_053.6, 17_053.9)]

    monkeypatch.setattr("tracekit.recorder.require_recording", lambda: None)
    monkeypatch.setattr(gpu_check, "CHECKS", {"golden": fine, "sweep": stop})
    assert gpu_check.main(["-o", str(tmp_path / "out"), "--only", "golden,sweep"]) == 1
    out = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in out] == ["ok", "FAIL"]
    found = json.loads((tmp_path / "out" / "gpu_check.json").read_text())
    assert [row["is_right"] for row in found] == [True, False]
    assert importlib.import_module("gpu_check") is gpu_check


def test_without_a_gpu_it_says_so(
    gpu_check: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise RecordingError("torch 2.13.0 finds no GPU", "run it where there is one")

    monkeypatch.setattr("tracekit.recorder.require_recording", refuse)
    assert gpu_check.main(["-o", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.startswith("tracekit: torch 2.13.0 finds no GPU")
    assert not (tmp_path / "out").exists()


def test_an_unknown_check_is_wrong_usage(gpu_check: Any) -> None:
    with pytest.raises(SystemExit) as caught:
        gpu_check.main(["--only", "luck"])
    assert caught.value.code == 2
