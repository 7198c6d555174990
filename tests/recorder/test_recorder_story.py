"""The story of capture/train_step.py under the recorder: CPU tensors, and the stand-in for a GPU's memory."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from reading import capture, load, names, rows
from stand_in import KIB, StandIn

from tracekit.recorder import Recorder
from tracekit.recorder import session as session_module
from tracekit.recorder.roll import take_roll

SIZES = {"--sequence": 8, "--vocabulary": 97, "--context-length": 8, "--width": 16, "--heads": 2, "--layers": 2}
TINY = ["--device", "cpu", "--batch", "2", *(str(word) for pair in SIZES.items() for word in pair)]


@pytest.fixture
def train_step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module capture/train_step.py, whose tensors count for the roll although they lie on the CPU."""

    def take(models: Any, optimizers: Any, **given: Any) -> Any:
        return take_roll(models, optimizers, **given, device_type="cpu")

    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "capture"), *sys.path])
    monkeypatch.setattr(session_module, "take_roll", take)
    return importlib.import_module("train_step")


def tell(train_step: Any, torch: Any, out: Path, *words: str) -> dict[str, Any]:
    args = train_step.make_parser().parse_args([*TINY, *words])
    return train_step.tell(args, torch, Recorder(out, **train_step.recorder_options(args)))


def test_the_run_folder_tells_the_whole_story(train_step: Any, torch: Any, gpu: StandIn, out: Path) -> None:
    gpu.initialize()
    report = tell(train_step, torch, out, "--accumulate", "2")
    assert [line["after"] for line in report["lines"]] == [
        "warmup",
        "load_model",
        "optimizer",
        *(
            f"{step}.{name}"
            for step in (1, 2)
            for name in ["data", "forward", "backward", "data", "forward", "backward", "optimizer", "zero_grad", "end"]
        ),
    ]
    found = capture(out)
    assert found["step_count"] == 2
    assert found["facts"]["losses"] == report["losses"]
    assert found["facts"]["batch"] == 2
    assert found["facts"]["parameter_count"] == 8_272
    assert found["recorder"]["module_marks"] == "user_metadata"
    roll = rows(out / "tensors.parquet")
    count = len([row for row in roll if (row["step"], row["role"]) == (1, "parameter")])
    for role, times in (("gradient", 1), ("optimizer_state", 3)):  # two moments and a step counter
        assert len([row for row in roll if (row["step"], row["role"]) == (2, role)]) == times * count
    assert "snapshot.pickle" in names(out)


def test_running_out_of_memory_is_an_answer(
    train_step: Any, torch: Any, gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpt2 = importlib.import_module("gpt2")
    original = gpt2.GPT2.forward
    calls: list[int] = []

    def forward(self: Any, *given: Any) -> Any:
        calls.append(gpu.allocate(25 * KIB * KIB))  # the third one is too much
        return original(self, *given)

    monkeypatch.setattr(gpt2.GPT2, "forward", forward)
    report = tell(train_step, torch, out, "--steps", "3")
    assert report["fits"] is False
    assert report["out_of_memory"]["step"] == 3
    assert report["out_of_memory"]["phase"] == "forward"
    assert report["peak_allocated_bytes"] == 50 * KIB * KIB
    assert len(report["losses"]) == 2
    assert capture(out)["snapshot"].startswith("oom_step2_")
    assert load(out / "snapshot.pickle")["device_traces"][0][-1]["action"] == "oom"


def test_an_op_log_has_a_file_of_its_own(
    train_step: Any, torch: Any, gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class OnTheCpu(session_module.OpLog):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given, device_type="cpu")

    monkeypatch.setattr(session_module, "OpLog", OnTheCpu)
    gpu.initialize()
    tell(train_step, torch, out, "--ops", "--steps", "1")
    logged = rows(out / "ops.parquet")
    softmax = [row for row in logged if row["operator"] == "aten._softmax.default"]
    assert [(row["pass"], row["module"], row["phase"], row["step"]) for row in softmax] == [
        ("forward", f"transformer.h.{layer}.attn", "forward", 1) for layer in (0, 1)
    ]
    backward = [row for row in logged if row["operator"] == "aten._softmax_backward_data.default"]
    assert [row["module"] for row in backward] == ["transformer.h.1.attn", "transformer.h.0.attn"]
    assert softmax[0]["shape"] == [2, 2, 8, 8]
    assert gpu.label() == ""
