"""`tracekit fit` as a person meets it: what it takes, what it prints, and what it cannot do."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.fit.conftest import MIB, snapshot_of
from tests.fit.test_fit import step
from tests.snapshots import dumped
from tests.test_commands import run


@pytest.fixture
def words(tmp_path: Path) -> list[str]:
    """Two recordings, as a command line names them."""
    named: list[str] = []
    for batch in (2, 4):
        path = tmp_path / f"b{batch}.pickle"
        path.write_bytes(dumped(snapshot_of(step(batch))))
        named.append(f"{batch}={path}")
    return named


def test_a_line_a_value_and_the_largest(words: list[str]) -> None:
    done = run("fit", *words, "--limit", "300MiB", "--at", "6", "8")
    assert done.returncode == 0
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines[2:6]] == ["2", "4", "6", "8"]
    assert "the largest batch that fits 300.0 MiB: " in done.stdout
    assert "runs out of memory" in done.stdout
    assert "- operations, order and stacks are those of 4=b4.pickle; sizes follow batch" in done.stdout
    assert done.stderr == ""


def test_how_far_a_value_is_from_the_recordings_and_on_which_side(words: list[str]) -> None:
    done = run("fit", *words, "--at", "1", "3", "10")
    told = {line.split()[0]: line for line in done.stdout.splitlines()[2:7]}
    assert "predicted, 2 x below" in told["1"]
    assert "predicted   " in told["3"]
    assert "predicted, 2.5 x beyond" in told["10"]
    assert "- 1: below the recordings, where kernels may take other ways" in done.stdout


def test_csv_has_exact_bytes(words: list[str]) -> None:
    done = run("fit", *words, "--at", "10", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["value"], row["kind"]) for row in rows] == [("2", "measured"), ("4", "measured"), ("10", "predicted")]
    # a weight and its gradient, the two activations at batch 10, and the scratch has gone by then
    assert int(rows[-1]["allocated_bytes"]) == (40 + 40 + 30 + 50) * MIB


def test_the_picture_is_that_of_its_json(words: list[str], tmp_path: Path) -> None:
    """One road to the same picture: --chart, and `tracekit chart` of what --format json wrote."""
    done = run(
        "fit", *words, "--limit", "300MiB", "--at", "6", "--format", "json", "--chart", "one.json", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "one.json: 5 values. Allocated grows by " in done.stderr
    (tmp_path / "fit.json").write_text(done.stdout, encoding="utf-8")
    assert run("chart", "fit.json", "sweep", "-o", "other.json", folder=tmp_path).returncode == 0
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "other.json").read_bytes()
    drawn = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))["datasets"]
    assert {row["kind"] for row in drawn["sweep"]} == {"measured", "predicted"}
    assert {row["limit_bytes"] for row in drawn["sweep"]} == {300 * MIB}
    again = run("fit", *words, "--at", "6", "--chart", "one.json", folder=tmp_path)
    assert again.returncode == 1
    assert "one.json exists already" in again.stderr
    assert again.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--at", "6", "--chart", "peaks.pdf"], 1, "'peaks.pdf' does not say what to write"),
        (["--at", "many"], 2, "'many' in --at is no value"),
        (["--at", "0"], 2, "'0' in --at is no value"),
        (["--at", "8x512"], 2, "8x512 is no value of batch"),
        (["--at", "6", "--limit", "plenty"], 2, "is not a size"),
        (["--at", "6", "--set", "nonsense:1"], 1, "'nonsense' is not an allocator option"),
        (["--limit", "1GiB", "--margin", "2GiB"], 2, "leaves nothing"),
        (["--limit", "1GiB", "--length", "3"], 2, "two variables"),
        (["--at", "6", "--variable", "batch,sequence"], 2, "names 2 variables"),
        (["--at", "6", "--make-fit", "6"], 2, "needs a --limit"),
        (["--at", "6", "8", "-o", "out"], 2, "takes one --at"),
        (["--at", "6", "-o", "."], 1, "exists already"),
        (["--limit", "0"], 2, "nothing to reserve"),
        (["another.pickle", "--at", "6"], 2, "write it like 8=another.pickle"),
        (["6", "--limit", "1GiB"], 2, "does not say what value"),
        ([], 2, "give --limit to find the largest"),
    ],
)
def test_what_it_cannot_do(words: list[str], tmp_path: Path, arguments: list[str], code: int, problem: str) -> None:
    done = run("fit", *words, *arguments, folder=tmp_path)
    assert done.returncode == code, done.stderr
    assert problem in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("recordings", "problem"),
    [
        (["8="], "names no dataset"),
        (["x=there"], "is no value"),
        (["4=a", "8x512=b"], "the same variables"),
        (["12"], "at least one recording"),
    ],
)
def test_recordings_that_cannot_be_read(recordings: list[str], problem: str) -> None:
    done = run("fit", *recordings, "--at", "5")
    assert done.returncode == 2
    assert problem in done.stderr
