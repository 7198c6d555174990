"""The sweep: one process a size, a row for each whatever became of it, and the same command goes on."""

from __future__ import annotations

import csv
import importlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tracekit.commands.sweep import command as sweep_command
from tracekit.recorder import RecordingError

CAPTURE = Path(__file__).resolve().parents[2] / "capture"
Done = subprocess.CompletedProcess[str]
GIB = 2**30


def report(batch: int, *, fits: bool = True) -> str:
    """What train_step.py prints about a run on a GPU of some size."""
    end = {"step": 2, "phase": "forward", "missing_bytes": GIB, "file": "oom_step1_rank0_pid1.pickle"}
    return json.dumps(
        {
            "losses": [10.98],
            "fits": fits,
            "out_of_memory": None if fits else end,
            "peak_allocated_bytes": batch * GIB,
            "peak_reserved_bytes": batch * GIB + 1,
        }
    )


def runner(answers: dict[int, Done | BaseException], asked: list[int]) -> Callable[[list[str]], Done]:
    """Stands for the processes: gives each batch its answer, and a run folder."""

    def run(command: list[str]) -> Done:
        batch = int(command[command.index("--batch") + 1])
        asked.append(batch)
        Path(command[command.index("--out") + 1]).mkdir(exist_ok=True)
        answer = answers[batch]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return run


def done(text: str = "", status: int = 0, error: str = "") -> Done:
    return subprocess.CompletedProcess([], status, text, error)


def rows(folder: Path) -> list[dict[str, Any]]:
    parquet: Any = importlib.import_module("pyarrow.parquet")
    return parquet.ParquetFile(folder / "sweep.parquet").read().to_pylist()


@pytest.mark.parametrize(
    ("text", "sizes"),
    [("8", [8]), ("16,18,20-24", [16, 18, 20, 21, 22, 23, 24]), ("3, 1,2-3", [3, 1, 2])],
)
def test_batches_are_numbers_and_ranges(batch_sweep: Any, text: str, sizes: list[int]) -> None:
    assert batch_sweep.batches(text) == sizes


@pytest.mark.parametrize("words", [["--batches", "8-4"], ["--batches", "0"], ["--batches", "x"], [],
                                   ["--batches", "8", "--precision", "int4"], ["--batches", "8", "--batch", "9"],
                                   ["--batches", "8", "--colour", "red"]], ids=" ".join)  # fmt: skip
def test_wrong_usage_is_refused_before_the_first_run(
    batch_sweep: Any, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        batch_sweep.main(words)
    assert caught.value.code == 2
    assert list(tmp_path.iterdir()) == []


def test_every_size_leaves_its_row(batch_sweep: Any, tmp_path: Path) -> None:
    answers: dict[int, Done | BaseException] = {
        16: done(report(16)),
        21: done(report(21, fits=False)),
        22: done(status=1, error="warning: x\ntracekit: cannot write x\nchoose another folder\n"),
        23: done(status=-signal.SIGKILL),
        24: done(status=1, error="Traceback\nRuntimeError: CUDA error: unspecified launch failure"),
    }
    asked: list[int] = []
    sweep = batch_sweep.Sweep(tmp_path / "s", ["--cap", "45440MiB"], 45440 << 20, run=runner(answers, asked))
    for batch in answers:
        sweep.measure(batch)
    found = rows(tmp_path / "s")
    assert [(row["batch"], row["status"], row["fits"]) for row in found] == [
        (16, "fits", True),
        (21, "out_of_memory", False),
        (22, "failed", None),
        (23, "killed", None),
        (24, "failed", None),
    ]
    assert found[0] | {"wall_s": 0} == {
        "batch": 16,
        "status": "fits",
        "fits": True,
        "peak_allocated_bytes": 16 * GIB,
        "peak_reserved_bytes": 16 * GIB + 1,
        "limit_bytes": 45440 << 20,
        "out_of_memory_step": None,
        "out_of_memory_phase": None,
        "missing_bytes": None,
        "first_loss": 10.98,
        "wall_s": 0,
        "run": "batch_0016",
        "reason": None,
    }
    assert (found[1]["out_of_memory_step"], found[1]["out_of_memory_phase"]) == (2, "forward")
    assert [row["reason"] for row in found[2:]] == [
        "exit status 1: tracekit: cannot write x",
        "killed by SIGKILL",
        "exit status 1: RuntimeError: CUDA error: unspecified launch failure",
    ]
    with (tmp_path / "s" / "sweep.csv").open(encoding="utf-8") as file:
        assert [row["peak_reserved_bytes"] for row in csv.DictReader(file)][:2] == [
            str(16 * GIB + 1),
            str(21 * GIB + 1),
        ]
    assert not list(tmp_path.glob("s/.*"))


def test_it_goes_on_where_it_was(batch_sweep: Any, tmp_path: Path) -> None:
    folder, asked = tmp_path / "s", list[int]()
    first = batch_sweep.Sweep(folder, [], None, run=runner({8: done(report(8)), 9: done(status=-9)}, asked))
    first.measure(8)
    first.measure(9)
    again = batch_sweep.Sweep(folder, [], None, run=runner({9: done(report(9))}, asked))
    assert [row.batch for row in again.listed([8, 9]) if row.is_answer] == [8]
    again.measure(9)
    assert [row["status"] for row in rows(folder)] == ["fits", "fits"]
    assert asked == [8, 9, 9]


def test_a_sweep_with_other_options_is_not_mixed_in(batch_sweep: Any, tmp_path: Path) -> None:
    batch_sweep.Sweep(tmp_path / "s", ["--cap", "1GiB"], None, run=runner({8: done(report(8))}, [])).measure(8)
    with pytest.raises(RecordingError, match="other options: --cap 1GiB"):
        batch_sweep.Sweep(tmp_path / "s", [], None)
    assert batch_sweep.Sweep(tmp_path / "s", [], None, force=True).rows == {}


def test_only_a_sweep_is_ever_thrown_away(batch_sweep: Any, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(RecordingError, match="is not a sweep"):
        batch_sweep.Sweep(tmp_path, [], None, force=True)
    assert (tmp_path / "thesis.tex").exists()


def test_ctrl_c_leaves_what_was_measured(
    batch_sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: dict[int, Done | BaseException] = {8: done(report(8)), 9: KeyboardInterrupt(), 10: done(report(10))}
    asked: list[int] = []
    monkeypatch.setattr(batch_sweep, "run_command", runner(answers, asked))
    words = ["--batches", "8-10", "--device", "cpu", "-o", str(tmp_path / "s"), "--format", "csv"]
    assert batch_sweep.main(words) == 130
    said = capsys.readouterr()
    assert [row["batch"] for row in csv.DictReader(said.out.splitlines())] == ["8"]
    assert "what was measured is kept" in said.err
    answers[9] = done(report(9))
    assert batch_sweep.main(words) == 0
    assert asked == [8, 9, 9, 10]
    said = capsys.readouterr()
    assert [row["batch"] for row in csv.DictReader(said.out.splitlines())] == ["8", "9", "10"]
    assert f"tracekit fit 9={tmp_path}/s/batch_0009 10={tmp_path}/s/batch_0010\n" in said.err


def test_the_next_command_takes_the_largest_two_that_fit(batch_sweep: Any, tmp_path: Path) -> None:
    answers: dict[int, Done | BaseException] = {size: done(report(size, fits=size < 20)) for size in (4, 8, 16, 20)}
    sweep = batch_sweep.Sweep(tmp_path / "my sweep", [], 48 << 30, run=runner(answers, []))
    sweep.measure(16)
    assert batch_sweep.fit_command(sweep) is None
    for size in (20, 4, 8):
        sweep.measure(size)
    folder = f"{tmp_path}/my sweep"
    assert batch_sweep.fit_command(sweep) == (
        f"tracekit fit '8={folder}/batch_0008' '16={folder}/batch_0016' --limit {48 << 30}"
    )


def test_a_child_is_interrupted_with_its_parent(batch_sweep: Any, tmp_path: Path) -> None:
    program = (
        "import pathlib, sys, time\n"
        "try:\n"
        "    pathlib.Path(sys.argv[1], 'begun').touch(); time.sleep(30)\n"
        "except KeyboardInterrupt:\n"
        "    pathlib.Path(sys.argv[1], 'ended').touch()\n"
    )

    def interrupt() -> None:
        while not (tmp_path / "begun").exists():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    # a shell that runs the tests in the background has them, and so the child, ignore the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            batch_sweep.run_command([sys.executable, "-c", program, str(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, before)
    assert (tmp_path / "ended").exists()


def test_a_table_is_for_people(batch_sweep: Any, capsys: pytest.CaptureFixture[str]) -> None:
    fits = batch_sweep.read_report(20, json.loads(report(20)))
    not_fits = batch_sweep.read_report(21, json.loads(report(21, fits=False)))
    batch_sweep.show([fits, not_fits, batch_sweep.Row(22, "killed", reason="killed by SIGKILL")], "table")
    assert capsys.readouterr().out.splitlines()[1:] == [
        "    20       20,480.0       20,480.0  fits",
        "    21       21,504.0       21,504.0  out_of_memory  in step 2, forward: no 1,024.0 MiB more",
        "    22              -              -  killed         killed by SIGKILL",
    ]


@pytest.mark.usefixtures("torch")
def test_it_runs_plainly_without_a_gpu(tmp_path: Path) -> None:
    sizes = ["--vocabulary", "97", "--context-length", "8", "--width", "16", "--heads", "2", "--layers", "1"]
    words = ["--batches", "1-2", "--device", "cpu", "--sequence", "8", *sizes, "--steps", "1", "--format", "json"]
    command = [sys.executable, "-W", "ignore", str(CAPTURE / "batch_sweep.py"), *words, "-o", str(tmp_path / "s")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert [(row["batch"], row["status"], row["fits"]) for row in json.loads(ran.stdout)] == [
        (1, "ran", None),
        (2, "ran", None),
    ]


def test_the_verb_has_the_same_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    said = CliRunner().invoke(sweep_command, ["-h"])
    assert said.exit_code == 0
    assert said.stdout.startswith("Usage: tracekit sweep")
    assert CliRunner().invoke(sweep_command, ["--batches", "none"]).exit_code == 2


def test_without_a_gpu_the_verb_says_so_and_leaves_nothing(
    batch_sweep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse() -> None:
        raise RecordingError("torch 2.13.0 finds no GPU", "run it where there is one")

    monkeypatch.setattr("tracekit.recorder.require_recording", refuse)
    monkeypatch.chdir(tmp_path)
    assert batch_sweep.main(["--batches", "8"]) == 1
    assert capsys.readouterr().err == "tracekit: torch 2.13.0 finds no GPU\nrun it where there is one\n"
    assert list(tmp_path.iterdir()) == []
