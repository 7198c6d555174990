"""The labels scored against what was measured beside each shared recording: shares of bytes, asserted.

The measures are those of benchmarks/scores.py, which prints them as a table.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from benchmarks import scores
from tests.conftest import captures, recording_name

PUBLIC = captures("public-snapshots")
ALL = [recording_name(path) for path in captures()]
WITH_TENSORS = [name for name in ALL if name not in scores.CANNOT_TELL and scores.facts_of(name).get("tensors")]


@dataclass(frozen=True)
class Measured:
    """All that is asserted of a recording, so that it is read once."""

    model: scores.Score | None
    saved: scores.Score | None
    explained: scores.Score
    has_cpp: bool


@cache
def measured(name: str) -> Measured:
    facts = scores.facts_of(name)
    with scores.opened(scores.CAPTURES / f"{name}.pickle.xz") as warehouse:
        return Measured(
            scores.model_score(warehouse, facts) if facts.get("tensors") else None,
            scores.saved_score(warehouse, facts) if facts.get("saved") else None,
            scores.unattributed_at_peak(warehouse),
            any(row["has_cpp"] for row in warehouse.rows("select has_cpp from stack_label")),
        )


@pytest.mark.parametrize("name", WITH_TENSORS)
def test_every_byte_of_the_model_has_its_bucket_and_nothing_else_does(name: str) -> None:
    score = measured(name).model
    assert score is not None
    assert score.wrong == {}
    assert score.right_bytes == score.total_bytes > 0


@pytest.mark.parametrize("name", scores.CANNOT_TELL)
def test_what_a_recording_cannot_tell_is_called_older_than_it_and_nothing_is_guessed(shared: Path, name: str) -> None:
    assert shared
    score = measured(name).model
    assert score is not None
    told = {bucket for _, bucket, _ in score.wrong}
    assert told <= {"before_recording", "absent"}
    if name in ("small_ring", "small_late"):  # the last step's gradients were born within the recording
        assert told == {"before_recording"}
        assert {truth for truth, _, _ in score.wrong} == {"parameter", "buffer", "optimizer_state"}


def test_saved_activations_are_those_that_autograd_says_it_saved(shared: Path) -> None:
    assert shared
    score = measured("gpt2_b8_saved").saved
    assert score is not None
    assert score.total_bytes > 20_000_000_000
    assert score.share >= 0.999, score.wrong


@pytest.mark.parametrize("stacks", ["all", "python"])
@pytest.mark.parametrize("options", [(), ("--leak-every", "2"), ("--preexisting",), ("--ring",)], ids=" ".join)
def test_a_made_recording_is_labelled_as_it_was_made(
    shared: Path, tmp_path: Path, stacks: str, options: tuple[str, ...]
) -> None:
    assert shared
    path, truth = scores.made(tmp_path, "--stacks", stacks, *options)
    with scores.opened(path) as warehouse:
        score = scores.made_score(warehouse, truth)
    assert score.total_bytes > 100_000_000_000
    assert score.share >= 0.99, score.wrong


@pytest.mark.parametrize("name", ALL)
def test_nothing_is_unattributed_at_the_peak(name: str) -> None:
    found = measured(name)
    # without C++ frames the autograd thread's stacks are empty, and half a percent may stay open
    allowed = 0 if found.has_cpp else 0.005 * found.explained.total_bytes
    assert found.explained.total_bytes - found.explained.right_bytes <= allowed


@pytest.mark.parametrize("path", PUBLIC, ids=[recording_name(path) for path in PUBLIC])
def test_at_most_half_a_percent_of_a_public_snapshot_is_unattributed_at_its_peak(path: Path) -> None:
    with scores.opened(path) as warehouse:
        explained = scores.unattributed_at_peak(warehouse)
    assert explained.total_bytes - explained.right_bytes <= 0.005 * explained.total_bytes
