"""The training step where it can run without a GPU, and what it says where it cannot."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

CAPTURE = Path(__file__).resolve().parents[2] / "capture"
TINY = [
    "--device",
    "cpu",
    "--batch",
    "2",
    "--sequence",
    "8",
    "--vocabulary",
    "97",
    "--context-length",
    "8",
    "--width",
    "16",
    "--heads",
    "2",
    "--layers",
    "2",
]
LINES = ["warmup", "load_model", "optimizer"] + [
    f"{step}.{phase}" for step in (1, 2) for phase in ("data", "forward", "backward", "optimizer", "zero_grad")
]


def report(train_step: Any, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert train_step.main([*TINY, *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.usefixtures("torch")
def test_without_a_gpu_it_shows_what_can_be_seen(train_step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_step.main(TINY) == 0
    out = capsys.readouterr().out
    table, said = out.split("\n\n")
    assert [line.split()[0] for line in table.splitlines()[1:]] == LINES
    assert "memory is unavailable" in said
    assert "8,272 parameters" in said
    assert "ln(vocabulary) = 4.57: as it should be" in said
    assert "autograd saves" in said


@pytest.mark.usefixtures("torch")
def test_csv_and_json_hold_the_same_lines(train_step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert train_step.main([*TINY, "--format", "csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["after"] for row in rows] == LINES
    assert rows[0]["allocated_bytes"] == ""
    found = report(train_step, capsys)
    assert found["parameter_count"] == 8_272
    assert (found["fits"], found["peak_allocated_bytes"], found["run"]) == (True, None, None)
    assert len(found["losses"]) == len(found["step_s"]) == 2


@pytest.mark.usefixtures("torch")
def test_what_is_saved_depends_on_the_options_as_it_should(train_step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    plain = report(train_step, capsys)["saved_bytes"]
    assert len(plain) == 2  # one a forward pass
    assert report(train_step, capsys, "--checkpoint")["saved_bytes"][0] < plain[0] / 2
    assert report(train_step, capsys, "--batch", "4")["saved_bytes"][0] == pytest.approx(2 * plain[0], rel=0.02)
    assert len(report(train_step, capsys, "--accumulate", "3")["saved_bytes"]) == 6
    assert report(train_step, capsys, "--precision", "bf16")["saved_bytes"][0] < plain[0]


@pytest.mark.parametrize("optimizer", ["adamw-loop", "adam", "sgd", "sgd-momentum", "rmsprop", "adagrad", "adafactor"])
@pytest.mark.usefixtures("torch")
def test_every_optimizer_steps(train_step: Any, capsys: pytest.CaptureFixture[str], optimizer: str) -> None:
    first, second = report(train_step, capsys, "--optimizer", optimizer)["losses"]
    assert first != second


@pytest.mark.usefixtures("torch")
def test_micro_batches_train_like_one_batch(train_step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    losses = report(train_step, capsys, "--accumulate", "2", "--precision", "autocast-bf16")["losses"]
    assert losses[0] == pytest.approx(4.57, abs=0.3)  # a mean over micro-batches, not a sum


@pytest.mark.usefixtures("torch")
def test_the_same_seed_gives_the_same_losses(train_step: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(train_step, capsys)["losses"] == report(train_step, capsys)["losses"]
    assert report(train_step, capsys)["losses"] != report(train_step, capsys, "--seed", "1")["losses"]


def test_without_a_gpu_it_says_so_and_leaves_nothing(
    torch: Any,
    train_step: Any,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert train_step.main(["--batch", "1"]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("tracekit: torch")
    assert "--device cpu" in said.err
    assert len(said.err.splitlines()) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [["--batch", "0"], ["--batch", "many"], ["--cap", "much"], ["--precision", "int4"], ["--steps", "-1"], ["x"]],
    ids=" ".join,
)
def test_wrong_usage_is_refused(train_step: Any, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        train_step.main(words)
    assert caught.value.code == 2
    assert "error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("losses", "words"), [([10.98], "as it should be"), ([3.2], "do not trust this loop"), ([], "no step")]
)
def test_the_loss_is_judged(train_step: Any, losses: list[float], words: str) -> None:
    assert words in train_step.judge_loss(losses, 10.82)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "gpt2_b8_t1024_fp32.run"),
        (["--batch", "16", "--precision", "bf16", "--attention", "sdpa"], "gpt2_b16_t1024_bf16_sdpa.run"),
        (
            ["--checkpoint", "--accumulate", "4", "--optimizer", "sgd"],
            "gpt2_b8_t1024_fp32_checkpoint_accumulate4_sgd.run",
        ),
        (["-o", "mine"], "mine"),
    ],
)
def test_the_folder_is_named_after_what_is_recorded(train_step: Any, words: list[str], name: str) -> None:
    assert train_step.out_folder(train_step.make_parser().parse_args(words)) == name


@pytest.mark.usefixtures("torch")
def test_it_runs_plainly_from_anywhere(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", str(CAPTURE / "train_step.py"), *TINY, "--steps", "1"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "8,272 parameters" in done.stdout
