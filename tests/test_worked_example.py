"""The README's worked example: what the golden run's recording answers, number by number."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit import story
from tracekit.warehouse import Warehouse

MIB = 1 << 20
LOGITS = 8 * 1024 * 50257 * 4
EMBEDDING = 50257 * 768 * 4
BLOCK = 5
"""The block looked into; all twelve are alike."""


def told(sample: Warehouse, where: str) -> list[dict[str, Any]]:
    return sample.rows(f"from allocation_story where {where} order by birth_event_ix, allocation_id")


def test_four_tensors_of_the_vocabulary_and_their_births(sample: Warehouse) -> None:
    found = told(sample, f"requested_bytes = {LOGITS} and step = 2")
    assert [(row["birth_event_ix"], row["requested_by"], row["phase"]) for row in found] == [
        (3791, "mm", "forward"),
        (3793, "_log_softmax", "forward"),
        (3807, "NllLossBackward0", "backward"),
        (3815, "LogSoftmaxBackward0", "backward"),
    ]
    assert [row["user_frame"] for row in found[:2]] == [
        "/home/user/train/gpt2.py:92 forward",
        "/home/user/train/gpt2.py:95 forward",
    ]
    assert {row["bucket"] for row in found} == {"logits_and_loss"}


def test_the_workspaces_who_and_when(sample: Warehouse) -> None:
    found = told(sample, "bucket = 'library_workspace'")
    assert [(row["birth_event_ix"], row["requested_bytes"], row["phase"], row["requested_by"]) for row in found] == [
        (4, 8_519_680, "data", "mm"),  # the main thread's first matmul, the warm-up
        (206, 1_048_576, "forward", "addmm"),  # cublasLt's, at the first layer's bias
        (717, 8_519_680, "backward", "MmBackward0"),  # the autograd thread's own
    ]
    assert all(row["death_event_ix"] is None for row in found)


def test_the_tied_embeddings_gradient_is_three_tensors(sample: Warehouse) -> None:
    found = told(sample, f"requested_bytes = {EMBEDDING} and step = 2 and phase = 'backward'")
    assert [
        (row["birth_event_ix"], row["free_requested_event_ix"], row["requested_by"], row["bucket"]) for row in found
    ] == [
        (3820, 5392, "MmBackward0", "gradient_in_flight"),
        (5352, 5394, "EmbeddingBackward0", "gradient_in_flight"),
        (5391, 5844, "add_Tensor", "gradient"),
    ]
    assert [row["freed_by"] for row in found[:2]] == ["InputBuffer::add", "the autograd engine"]
    assert (found[2]["free_phase"], found[0]["rule_id"], found[1]["rule_id"]) == ("zero_grad", "accumulated", "summand")
    assert "torch::autograd::InputBuffer::add" in [
        frame["shown"] for frame in story.frames(sample, found[2]["stack_id"])
    ]


def test_the_spike_in_a_block_by_line(sample: Warehouse) -> None:
    """Score, its scaled copy, the masked copy and the softmax: never more than three of 384 MiB at once."""
    block = [row for row in told(sample, "step = 2 and phase = 'forward'") if row["layer_ix"] == BLOCK]
    scores = [row for row in block if row["requested_bytes"] == 384 * MIB]
    assert [
        (row["birth_event_ix"], row["free_requested_event_ix"], row["requested_by"], row["user_frame"].split("/")[-1])
        for row in scores
    ] == [
        (3534, 3536, "bmm", "gpt2.py:39 forward"),  # the scores
        (3535, 3549, "div_Tensor", "gpt2.py:39 forward"),  # scaled
        (3539, 3551, "masked_fill_Scalar", "gpt2.py:40 forward"),  # masked
        (3540, 4655, "_softmax", "gpt2.py:41 forward"),  # the probabilities, saved for backward
    ]
    alive = {
        row["event_ix"]: row["allocated_bytes"]
        for row in sample.rows("select event_ix, allocated_bytes from live_bytes where event_ix between 3527 and 3564")
    }
    highest = max(alive, key=lambda event_ix: (alive[event_ix], -event_ix))
    assert highest == 3544
    assert alive[3564] - alive[3527] == 806_486_016  # 769.125 MiB stay
    assert alive[highest] - alive[3564] == pytest.approx(623.94 * MIB, abs=0.01 * MIB)  # the spike above them
    above = [row for row in block if row["birth_event_ix"] <= 3544 and row["bucket"] == "forward_temporary"]
    held = [row["requested_bytes"] // MIB for row in above if row["free_requested_event_ix"] > 3544]
    assert held == [72, 384, 384, 24, 24]


def test_what_the_seed_calls_c_x_are_three_copies_of_24_mib(sample: Warehouse) -> None:
    block = [row for row in told(sample, "step = 2 and phase = 'forward'") if row["layer_ix"] == BLOCK]
    (c_x,) = [row for row in block if row["requested_bytes"] == 72 * MIB]
    assert (c_x["bucket"], c_x["free_phase"]) == ("forward_temporary", "forward")
    copies = [row for row in block if row["requested_by"] == "matmul"]
    assert [(row["requested_bytes"], row["bucket"], row["user_frame"][-18:]) for row in copies] == [
        (24 * MIB, "activation", "gpt2.py:39 forward"),
        (24 * MIB, "activation", "gpt2.py:39 forward"),
        (24 * MIB, "activation", "gpt2.py:41 forward"),
    ]


def test_slack_at_the_peak_block_by_block(sample: Warehouse) -> None:
    found = told(
        sample,
        "birth_event_ix <= 3815 and coalesce(free_requested_event_ix, 3816) > 3815 and slack_bytes > 0",
    )
    unsplit = [(row["bucket"], row["requested_bytes"], row["unsplit_bytes"]) for row in found if row["unsplit_bytes"]]
    assert sorted(unsplit) == [
        *[("buffer", 4_194_304, 786_432)] * 4,
        *[("parameter", 7_077_888, 262_144)] * 3,
        ("parameter", EMBEDDING, 799_744),
    ]
    assert sum(row["rounding_bytes"] for row in found) == 1_972
    assert sum(row["slack_bytes"] for row in found) == 4_733_876


def test_what_lies_before_the_first_block(sample: Warehouse) -> None:
    """24 MiB of token embeddings and 3 of positions are held to the forward's end by its variables, 24 are saved."""
    found = told(sample, "birth_event_ix between 3337 and 3342 and requested_bytes > 1000000")
    assert [(row["requested_bytes"] // MIB, row["bucket"], row["free_phase"]) for row in found] == [
        (24, "forward_temporary", "forward"),
        (3, "forward_temporary", "forward"),
        (24, "activation", "backward"),
    ]
    assert [row["free_requested_event_ix"] for row in found[:2]] == [3796, 3798]
