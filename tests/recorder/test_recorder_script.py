"""Running somebody's script under the recorder, in this process, with the stand-in for a GPU's memory."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from reading import capture, load, names
from stand_in import StandIn

from tracekit.commands.capture import command as capture_command
from tracekit.recorder import RecordingError, door, probe
from tracekit.recorder.script import when_imported

Run = Callable[..., Result]

PREFIX = "import sys, torch\ngpu = torch.cuda.pretended\n"


@pytest.fixture
def run(torch: Any, gpu: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs `tracekit capture run train.py ...` in a folder of its own; a script reaches the device by torch."""
    monkeypatch.setattr(torch.cuda, "pretended", gpu, raising=False)
    monkeypatch.setattr("tracekit.recorder.require_recording", lambda: None)
    monkeypatch.chdir(tmp_path)

    def invoke(text: str, *words: str, options: tuple[str, ...] = ()) -> Result:
        (tmp_path / "train.py").write_text(PREFIX + text, encoding="utf-8")
        return CliRunner().invoke(capture_command, ["run", *options, "train.py", *words])

    return invoke


def test_a_script_is_run_as_python_would(run: Run, tmp_path: Path) -> None:
    (tmp_path / "neighbour.py").write_text("word = 'found'")
    done = run(
        "import neighbour, json\n"
        "print(json.dumps([__name__, sys.argv, neighbour.word, __file__, sys.modules['__main__'].__name__]))\n",
        "--lr",
        "3e-4",
        "-o",
        "model.pt",
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == [
        "__main__",
        ["train.py", "--lr", "3e-4", "-o", "model.pt"],
        "found",
        "train.py",
        "__main__",
    ]
    sys.modules.pop("neighbour")


def test_it_leaves_a_run_folder_named_after_it(run: Run, gpu: StandIn, tmp_path: Path) -> None:
    done = run("kept = gpu.allocate(512)\n", "--lr", "1")
    assert done.exit_code == 0
    assert "recorded in train.run; next: tracekit analyze train.run" in done.stderr
    folder = tmp_path / "train.run"
    assert names(folder) == sorted(["capture.json", "snapshot.pickle", f"end_step0_rank0_pid{os.getpid()}.pickle"])
    assert (capture(folder)["program"], capture(folder)["arguments"]) == ("train.py", ["--lr", "1"])
    assert [event["action"] for event in load(folder / "snapshot.pickle")["device_traces"][0]] == [
        "segment_alloc",
        "alloc",
    ]
    assert not gpu.is_recording


def test_models_and_optimizers_are_found_without_a_word(run: Run, tmp_path: Path) -> None:
    done = run(
        "model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "gpu.allocate()\n"
        "for _ in range(3):\n"
        "    model(torch.ones(1, 2)).sum().backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n",
        options=("--every", "2"),
    )
    assert done.exit_code == 0, done.output
    found = capture(tmp_path / "train.run")
    assert found["step_count"] == 3
    assert [one["reason"] for one in found["dumps"]] == ["step", "end"]
    assert [mark["label"] for mark in found["marks"]] == ["begin", "1.end", "2.end", "3.end", "end_of_recording"]


@pytest.mark.parametrize(
    ("text", "status"),
    [("sys.exit(3)", 3), ("sys.exit()", 0), ("sys.exit('no data')", 1), ("raise KeyboardInterrupt", 130)],
)
def test_its_exit_status_is_kept(run: Run, tmp_path: Path, text: str, status: int) -> None:
    done = run(f"gpu.allocate()\n{text}\n")
    assert done.exit_code == status
    assert "snapshot.pickle" in names(tmp_path / "train.run")
    assert ("no data" in done.stderr) == ("no data" in text)


def test_its_traceback_begins_in_its_own_file(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = run("gpu.allocate()\ndef forward():\n    raise ValueError('shapes differ')\nforward()\n")
    assert done.exit_code == 1
    said = done.stderr or capsys.readouterr().err
    lines = [line for line in said.splitlines() if line.startswith("  File")]
    assert [Path(line.split('"')[1]).name for line in lines] == ["train.py", "train.py"]
    assert "ValueError: shapes differ" in said
    assert capture(tmp_path / "train.run")["error"] == {"type": "ValueError", "message": "shapes differ"}


def test_out_of_memory_in_it_is_dumped_in_time(run: Run, tmp_path: Path) -> None:
    done = run("x = gpu.allocate(1000)\ngpu.allocate(1 << 40)\n")
    assert done.exit_code == 1
    assert capture(tmp_path / "train.run")["snapshot"].startswith("oom_step0_")


def test_tensors_of_the_script_are_alive_in_the_last_dump(run: Run, tmp_path: Path) -> None:
    done = run(
        "class Held:\n"
        "    def __init__(self): self.address = gpu.allocate(512)\n"
        "    def __del__(self): gpu.free(self.address)\n"
        "held = Held()\n"
    )
    assert done.exit_code == 0
    assert len(load(tmp_path / "train.run" / "snapshot.pickle")["segments"]) == 1


def test_a_cap_is_a_size_and_is_set(run: Run, gpu: StandIn) -> None:
    assert run("", options=("--cap", "a lot")).exit_code == 2
    assert run("gpu.allocate()\n", options=("--cap", "32MiB")).exit_code == 0
    assert int(gpu.fraction * gpu.total) == 32 << 20


def test_a_folder_that_is_taken_is_refused_before_the_script_runs(run: Run, tmp_path: Path) -> None:
    assert run("gpu.allocate()\n").exit_code == 0
    done = run("open('ran', 'w')\n")
    assert isinstance(done.exception, RecordingError)
    assert not (tmp_path / "ran").exists()
    assert run("gpu.allocate()\n", options=("--force",)).exit_code == 0


def test_there_must_be_something_to_run(run: Run, tmp_path: Path) -> None:
    for words in (["nowhere.py"], ["-m", "no.such.module"]):
        done = CliRunner().invoke(capture_command, ["run", *words])
        assert isinstance(done.exception, RecordingError)
        assert "there is no" in done.exception.problem
    assert names(tmp_path) == []
    del run


def test_a_module_is_run_by_its_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("")
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "loop.py").write_text(PREFIX + "gpu.allocate()\nprint(__name__, sys.argv[1:])\n")
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), *sys.path])
    done = CliRunner().invoke(capture_command, ["run", "-m", "package.loop", "--fast"])
    assert done.exit_code == 0, done.output
    assert done.stdout == "__main__ ['--fast']\n"
    assert "snapshot.pickle" in names(tmp_path / "package.loop.run")


# What is missing


def test_torch_is_watched_for_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lonely_module.py").write_text("state = 'ready'")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    seen: list[str] = []

    def act() -> None:
        seen.append(sys.modules["lonely_module"].state)

    undo = when_imported("lonely_module", act)
    assert seen == []
    module = importlib.import_module("lonely_module")
    importlib.import_module("lonely_module")
    assert seen == ["ready"]
    assert type(module.__spec__.loader).__module__.startswith("_frozen_importlib") if module.__spec__ else False
    when_imported("lonely_module", act)
    assert seen == ["ready", "ready"]
    undo()
    sys.modules.pop("lonely_module")
    before = list(sys.meta_path)
    when_imported("lonely_module", act)()
    assert sys.meta_path == before


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (
            {"version": "2.13.0+cpu", "is_built_for_gpu": False, "is_available": False},
            "torch 2.13.0+cpu was built without",
        ),
        (
            {"version": "2.13.0+cu130", "is_built_for_gpu": True, "is_available": False},
            "torch 2.13.0+cu130 finds no GPU",
        ),
        (None, "torch cannot be imported"),
    ],
    ids=["cpu build", "no gpu", "broken"],
)
def test_one_sentence_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any] | None, words: str
) -> None:
    def look(*_: object, **__: object) -> subprocess.CompletedProcess[str]:
        out = f"a warning\n{json.dumps(answer)}\n" if answer else ""
        return subprocess.CompletedProcess([], 0 if answer else 1, out, "ImportError: libcudart.so")

    def find(_name: str) -> object:
        return object()

    monkeypatch.setattr(probe.subprocess, "run", look)
    monkeypatch.setattr(probe.importlib.util, "find_spec", find)
    with pytest.raises(RecordingError, match=re.escape(words)) as caught:
        probe.require_recording()
    assert caught.value.remedy


def test_without_torch_the_command_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit('ran')")

    def find_nothing(_name: str) -> None:
        return None

    monkeypatch.setattr(probe.importlib.util, "find_spec", find_nothing)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(capture_command, ["run", "train.py"])
    assert isinstance(done.exception, RecordingError)
    assert done.exception.problem == door.missing_torch().problem
    assert "pip install" in done.exception.remedy
    assert names(tmp_path) == ["train.py"]


def test_a_script_that_never_imports_torch_runs_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import sys; print('torch' in sys.modules)")
    program = (
        "import tracekit.recorder as r; r.require_recording = lambda: None;"
        "from tracekit.commands.capture import command; command(['run', 'train.py'])"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stdout) == (0, "False\n")
    assert "never imported torch" in done.stderr
