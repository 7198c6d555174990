"""What an interactive page is given: every tensor of every choice, as products of sizes; here without a browser."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from math import prod
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimate.test_physics import runs
from tracekit.cli import main
from tracekit.estimate.answer import answer
from tracekit.estimate.ledger import BUCKETS, estimate
from tracekit.estimate.rows import presets
from tracekit.estimate.run import Run
from tracekit.estimate.templates import choices
from tracekit.report.estimate import html, payload

FIXED = Run(code="huggingface", logits="step", rank=3, has_dropout=True)
MODELS = list(presets().values())
GIVEN = payload(answer(MODELS[0], FIXED))


def totals(model: int, run: Run) -> dict[str, int]:
    """Bytes of every place, multiplied and added as the page does."""
    templates, row = GIVEN["templates"], GIVEN["models"][model]
    word = {name: getattr(getattr(run, name), "name", getattr(run, name)) for name in choices()}
    word["accumulate"] = min(run.accumulate, 2)
    bundles: list[Any] = []
    for part in templates["parts"]:
        index = part["families"][model]
        for name, count in part["depends"]:
            index = index * count + GIVEN["choices"][name].index(word[name])
        bundles.append(templates["bundles"][part["table"][index]])
    sizes = row["sizes"][run.adapted] | {"B": run.batch, "T": run.sequence, "W": run.workspace_bytes}
    sizes["M"] = min(run.batch * run.sequence, GIVEN["chunk_rows"])
    held: dict[str, int] = {}
    for place, (before, after) in zip(GIVEN["places"], row["around"], strict=True):
        here = sizes | {"before": before, "after": after}
        lines = [line for bundle in bundles for line in templates["lists"][bundle[place["kind"]]]]
        held[place["name"]] = sum(
            -(-each * prod(here[symbol] for symbol in templates["products"][product]) // (run.ranks if shared else 1))
            for _, each, product, *shared in lines
        )
    return held


@given(st.integers(0, len(MODELS) - 1), runs)
@settings(max_examples=50)
def test_it_adds_up_to_what_python_says(model: int, run: Run) -> None:
    kept = {name: getattr(FIXED, name) for name in ("code", "logits", "rank", "has_dropout")}
    run = replace(run, **kept)
    made = estimate(MODELS[model], run)
    held = totals(model, run)
    assert {account.place: held[account.place] for account in made.accounts} == {
        account.place: account.requested_bytes for account in made.accounts
    }
    assert max(held.values()) == made.peak_bytes


def test_the_page_asks_for_nothing_and_is_small() -> None:
    page = html(answer(MODELS[0], Run()))
    assert re.findall(r"https?://|\burl\(|@import|<link|src=", page) == []
    assert "default-src 'none'; script-src 'sha256-" in unescape(page)
    assert len(page) < 300_000
    assert page == html(answer(MODELS[0], Run()))
    assert [bucket["name"] for bucket in json.loads(json.dumps(GIVEN))["buckets"]] == list(BUCKETS)


def left(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as status:
        main(["estimate", "gpt2", *arguments])
    out, err = capsys.readouterr()
    return int(status.value.code or 0), out, err


@pytest.mark.parametrize("suffix", [".svg", ".png", ".html", ".json"])
def test_the_moments_as_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"moments{suffix}"
    status, out, err = left(capsys, "--attention", "eager", "--limit", "45440MiB", "--chart", str(path))
    assert (status, out) == (0, "")
    assert "Highest at loss, 17,049.1 MiB (17,877,285,964 bytes)" in err
    assert "the limit is 45,440.0 MiB" in err
    if suffix == ".svg":
        told = path.read_text(encoding="utf-8")
        assert all(text in told for text in ("17,049.1 MiB", "forward 1", "optimizer", "logits_and_loss"))
    elif suffix == ".json":
        rows = json.loads(path.read_text(encoding="utf-8"))["datasets"]["moments"]
        assert sum(row["requested_bytes"] for row in rows if row["moment"] == "loss") == 17_877_285_964
    else:
        assert path.stat().st_size > 10_000


def test_a_page_is_written_whole_and_never_over_another(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert left(capsys, "--page", str(path), "--quiet") == (0, "", "")
    first = path.read_bytes()
    status, _, err = left(capsys, "--page", str(path))
    assert (status, "exists already" in err, path.read_bytes()) == (1, True, first)
    assert left(capsys, "--page", str(path), "--batch", "2", "--force", "-q")[0] == 0
    assert path.read_bytes() != first
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--chart", "x.gif"), 1, "does not say what to write"),
        (("--page", "nowhere/x.html"), 1, "there is no folder nowhere"),
        (("--inference", "--page", "x.html"), 2, "leave out --inference"),
    ],
)
def test_what_cannot_be_written(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    found, _, err = left(capsys, *arguments)
    assert (found, told in err) == (status, True)
    assert list(tmp_path.iterdir()) == []
