"""The golden run: every number against what torch measured beside the recording, or against its autograd roll."""

from __future__ import annotations

import csv
import json
import lzma
from collections import defaultdict
from typing import Any

import pytest

from tests.conftest import SAMPLE
from tracekit import ledger
from tracekit.warehouse import Warehouse

LOGITS = 8 * 1024 * 50257 * 4
"""Bytes of one vocabulary-sized tensor: batch x tokens x vocabulary x fp32."""


@pytest.fixture(scope="module")
def facts() -> dict[str, Any]:
    return json.loads(lzma.decompress((SAMPLE / "facts.json.xz").read_bytes()))


@pytest.fixture(scope="module")
def readings(facts: dict[str, Any]) -> dict[str, dict[str, int]]:
    """torch's own counters at each mark."""
    names = ("allocated", "reserved", "peak_allocated", "peak_reserved", "time_us")
    return {label: dict(zip(names, values, strict=True)) for label, *values in facts["readings"]}


def test_ledger_at_the_peak_is_the_one_a_person_can_read(sample: Warehouse) -> None:
    with (SAMPLE / "ledger.csv").open(encoding="utf-8", newline="") as file:
        expected = [
            {key: value if key == "bucket" else int(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]
    (peak,) = ledger.find_moments(sample, "peak")
    assert ledger.lines(sample, peak) == expected


def test_peak_is_torchs_own_to_the_byte(sample: Warehouse, facts: dict[str, Any]) -> None:
    (row,) = ledger.summaries(sample)
    witness = facts["step_stats"][1]
    assert row["peak_allocated_bytes"] == witness["allocated_bytes.all.peak"] == 17_882_019_840
    assert row["peak_requested_bytes"] == witness["requested_bytes.all.peak"] == 17_877_285_964
    assert row["highest_reserved_bytes"] == witness["reserved_bytes.all.peak"] == 19_224_592_384


def test_peak_is_where_and_by_whom_the_recording_says(sample: Warehouse) -> None:
    (row,) = ledger.summaries(sample)
    assert row["event_count"] == 7058
    assert row["step_count"] == 2
    assert (row["peak_event_ix"], row["peak_step"], row["peak_phase"]) == (3815, 2, "backward")
    assert (row["requested_by"], row["request_bytes"]) == ("LogSoftmaxBackward0", LOGITS)


def test_replay_agrees_with_every_address(sample: Warehouse) -> None:
    (row,) = ledger.summaries(sample)
    assert (row["is_exact"], row["mismatch_count"], row["unknown_held_count"]) == (True, 0, 0)


def test_account_agrees_with_torchs_counters_at_every_mark(
    sample: Warehouse, readings: dict[str, dict[str, int]]
) -> None:
    for label, reading in readings.items():
        (row,) = sample.rows(
            "select arg_max(allocated_bytes, event_ix) as allocated, arg_max(reserved_bytes, event_ix) as reserved"
            " from live_bytes join trace_event using (device, event_ix) where time_us <= ?",
            [reading["time_us"]],
        )
        assert (label, row["allocated"], row["reserved"]) == (label, reading["allocated"], reading["reserved"])


def test_step_peaks_are_torchs_own(sample: Warehouse, facts: dict[str, Any]) -> None:
    rows = sample.rows(
        "select moment, allocated_bytes, requested_bytes from moment where moment like 'step:%' order by moment"
    )
    assert [(row["allocated_bytes"], row["requested_bytes"]) for row in rows] == [
        (stats["allocated_bytes.all.peak"], stats["requested_bytes.all.peak"]) for stats in facts["step_stats"]
    ]


def test_each_tensor_of_the_model_has_its_bucket_and_nothing_else_does(
    sample: Warehouse, facts: dict[str, Any], readings: dict[str, dict[str, int]]
) -> None:
    """Parameters, buffers, gradients and optimizer state by stacks and lifetimes alone, against torch's own list."""
    bucket_of = {"parameter": "parameter", "buffer": "buffer", "gradient": "gradient", "optimizer": "optimizer_state"}
    truth: dict[str, dict[int, int]] = defaultdict(dict)
    for role, _, address, size, _, _ in facts["tensors"]:
        truth[bucket_of[role]][address] = size  # a tied weight is listed under each of its names
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for row in _alive(sample, readings["2.optimizer"]["time_us"]):
        if row["bucket"] in truth:
            found[row["bucket"]][row["address"]] = row["requested_bytes"]
    assert found == truth


def _alive(sample: Warehouse, now: int) -> list[dict[str, Any]]:
    return sample.rows(
        "select allocation_bucket.bucket, allocation.address, allocation.requested_bytes"
        " from allocation_bucket join allocation using (allocation_id)"
        " where birth_us <= $now and (free_requested_us is null or free_requested_us > $now)",
        {"now": now},
    )


def test_four_tensors_of_the_vocabulary_are_alive_at_the_peak(sample: Warehouse) -> None:
    rows = sample.rows(
        "select stack_label.requested_by, allocation_bucket.requested_bytes"
        " from allocation_bucket join allocation using (allocation_id) left join stack_label using (stack_id)"
        " where bucket = 'logits_and_loss' and allocation.birth_event_ix <= 3815"
        " and (allocation.free_requested_event_ix is null or allocation.free_requested_event_ix > 3815)"
        " and allocation.requested_bytes > 4 order by allocation.birth_event_ix"
    )
    assert [row["requested_by"] for row in rows] == ["mm", "_log_softmax", "NllLossBackward0", "LogSoftmaxBackward0"]
    assert {row["requested_bytes"] for row in rows} == {LOGITS}


def test_workspaces_are_one_a_thread_and_one_of_cublaslt(sample: Warehouse) -> None:
    rows = sample.rows(
        "select allocation.requested_bytes, library, autograd_node from allocation_bucket"
        " join allocation using (allocation_id) join stack_label using (stack_id)"
        " where bucket = 'library_workspace' order by allocation.birth_event_ix"
    )
    assert [tuple(row.values()) for row in rows] == [
        (8_519_680, "cublas", None),
        (1_048_576, "cublaslt", None),
        (8_519_680, "cublas", "MmBackward0"),
    ]


def test_saved_activations_are_769_mib_a_block(sample: Warehouse) -> None:
    """Twelve blocks of 769.125 MiB, and 48 MiB and a little for the embedding and the last LayerNorm."""
    (row,) = sample.rows("select requested_bytes from ledger where moment = 'peak' and bucket = 'activation'")
    assert row["requested_bytes"] == 9_728_237_568
    blocks = 12 * int(769.125 * (1 << 20))
    assert 48 << 20 <= row["requested_bytes"] - blocks < 49 << 20
