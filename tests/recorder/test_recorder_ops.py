"""The op log on CPU tensors: every operator that makes a tensor, forward and backward."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from reading import docs
from stand_in import StandIn

from tracekit.recorder.door import Door
from tracekit.recorder.modules import ModuleMarks
from tracekit.recorder.ops import COLUMNS, OpLog
from tracekit.recorder.roll import write_table


@pytest.fixture(autouse=True)
def _begun(gpu: StandIn) -> None:  # pyright: ignore[reportUnusedFunction]
    """The program has touched the device already."""
    gpu.initialize()


@pytest.fixture
def logged(torch: Any, gpu: StandIn) -> list[dict[str, Any]]:
    """The log of a small step."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU())
    door = Door(torch)
    marks = ModuleMarks(door, lambda _model: None, needs_backward=True)
    marks.add(model)
    log = OpLog(door, marks, lambda: ("forward", 1), device_type="cpu")
    x = torch.ones(2, 4)
    log.open()
    try:
        model(x).sum().backward()
    finally:
        log.close()
    marks.remove()
    assert gpu.label() == ""
    return log.rows


def find(rows: list[dict[str, Any]], operator: str) -> list[dict[str, Any]]:
    return [row for row in rows if row["operator"].split(".")[1] == operator]


def test_an_operator_says_shape_storage_module_and_pass(logged: list[dict[str, Any]]) -> None:
    (gelu,) = find(logged, "gelu")
    assert (gelu["pass"], gelu["module"], gelu["phase"], gelu["step"]) == ("forward", "1", "forward", 1)
    assert (gelu["shape"], gelu["dtype"], gelu["storage_bytes"]) == ([2, 8], "float32", 64)
    assert json.loads(gelu["input_shapes"]) == [[2, 8]]
    assert gelu["begin_us"] <= gelu["end_us"]
    (backward,) = find(logged, "gelu_backward")
    assert (backward["pass"], backward["module"]) == ("backward", "1")
    assert {row["module"] for row in find(logged, "mm")} == {"0"}


def test_views_make_nothing_and_are_not_listed(logged: list[dict[str, Any]]) -> None:
    assert not find(logged, "t")
    assert not find(logged, "view")
    addresses = [row["address"] for row in logged if row.get("address")]
    assert len(addresses) > 5


def test_calls_are_numbered_in_order(logged: list[dict[str, Any]]) -> None:
    numbers = [row["op_ix"] for row in logged]
    assert numbers == sorted(numbers)


def test_events_carry_the_number_of_the_operator(torch: Any, gpu: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []

    def hear(text: str) -> None:
        heard.append(text)

    monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", hear)
    door = Door(torch)
    log = OpLog(door, ModuleMarks(door, lambda _model: None), lambda: (None, None), device_type="cpu")
    log.open()
    try:
        torch.add(torch.ones(1), 1)
    finally:
        log.close()
    del gpu
    assert heard == ["[null, null, 0]", "", "[null, null, 1]", ""]
    assert [row["op_ix"] for row in log.rows] == [0, 1]


def test_an_operator_that_fails_fails_as_before(torch: Any, gpu: StandIn) -> None:
    door = Door(torch)
    log = OpLog(door, ModuleMarks(door, lambda _model: None), lambda: (None, None), device_type="cpu")
    log.open()
    try:
        with pytest.raises(RuntimeError):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    finally:
        log.close()
    assert gpu.label() == ""


def test_the_log_is_bounded(torch: Any, gpu: StandIn) -> None:
    del gpu
    door = Door(torch)
    log = OpLog(door, ModuleMarks(door, lambda _model: None), lambda: (None, None), device_type="cpu", max_rows=8)
    log.open()
    try:
        for _ in range(20):
            torch.ones(1)
    finally:
        log.close()
    assert len(log.rows) <= 8
    assert log.dropped_count + len(log.rows) == 20
    assert log.rows[-1]["op_ix"] == 19


def test_the_file_has_every_column(logged: list[dict[str, Any]]) -> None:
    file = io.BytesIO()
    write_table(logged, COLUMNS, file)
    assert list(docs(file)) == list(COLUMNS)
