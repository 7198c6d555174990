"""What autograd saves: in proportion to the batch, faster than the length, and less under checkpointing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SMALL = [
    "--batches",
    "2,4,8",
    "--sequence",
    "8",
    "--sequences",
    "8,16,32",
    "--batch",
    "2",
    "--accumulate",
    "1,2,4",
    "--width",
    "16",
    "--layers",
    "2",
]


@pytest.fixture
def measured(activation_scaling: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """The rows of a small measurement."""
    pytest.importorskip("altair", reason="altair is not installed: pip install altair vl-convert-python")
    assert activation_scaling.main([*SMALL, "--plot", str(tmp_path / "plot.svg"), "--format", "json"]) == 0
    assert (tmp_path / "plot.svg").read_text(encoding="utf-8").startswith("<svg")
    return json.loads(capsys.readouterr().out)


def saved(measured: dict[str, Any], series: str, *, checkpoint: bool = False) -> list[int]:
    return [
        row["saved_bytes"] for row in measured["rows"] if (row["series"], row["checkpoint"]) == (series, checkpoint)
    ]


def test_batch_length_accumulation_and_checkpointing(measured: dict[str, Any]) -> None:
    two, four, eight = saved(measured, "batch")
    assert (four / two, eight / two) == pytest.approx((2, 4), rel=0.02)
    short, longer, longest = saved(measured, "sequence")
    assert longer / short > 2.05
    assert longest / longer > longer / short  # what grows with the square comes to weigh more
    one, half, quarter = saved(measured, "accumulate")
    assert (one / half, one / quarter) == pytest.approx((2, 4), rel=0.02)
    for plain, kept in zip(saved(measured, "batch"), saved(measured, "batch", checkpoint=True), strict=True):
        assert kept < plain / 3
    assert measured["accumulation_difference"] < 1e-5
    assert all(row["summed_bytes"] > row["saved_bytes"] for row in measured["rows"])


def test_a_block_saves_what_the_formula_says(torch: Any, gpt2: Any, activation_scaling: Any) -> None:
    def count(layers: int) -> int:
        torch.manual_seed(0)
        model = gpt2.GPT2(gpt2.Config(vocabulary=61, context=16, width=24, heads=3, layers=layers))
        return activation_scaling.saved_bytes(model, 2, 16)[0]

    tokens, width, length, heads, batch = 2 * 16, 24, 16, 3, 2
    # LN1 in and out, q, k, v, attention out, LN2 in and out; MLP before and after GELU; probabilities; a mask of
    # bool; mean and deviation of each norm
    formula = 4 * (8 * tokens * width + 2 * tokens * 4 * width + batch * heads * length**2) + length**2 + 16 * tokens
    assert count(3) - count(2) == formula


def test_a_plot_is_not_overwritten(activation_scaling: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plot = tmp_path / "plot.svg"
    plot.write_text("mine")
    assert activation_scaling.main(["--plot", str(plot)]) == 1
    assert "--force" in capsys.readouterr().err
    assert plot.read_text() == "mine"
