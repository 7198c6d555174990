"""The golden run, traced without a GPU: event by event what was recorded on one, and every right value measured."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.estimate.traced import AMPERE, MIB, conditions, opened, traced
from tracekit import ledger
from tracekit.allocator.program import ALLOCATE
from tracekit.estimate.traced import answer
from tracekit.warehouse import Warehouse

LIMIT = 45_440 * MIB

# measured on an A40, and again on an H200 with that card's workspaces: batch, allocated and reserved MiB
MEASURED = [(8, 17_053.6, 18_334), (16, 32_611.9, 36_072), (18, 36_489.8, 40_506), (20, 40_375.3, 44_948)]


def requests(warehouse: Warehouse) -> list[tuple[str, int]]:
    """What was asked for and given back, in order."""
    return [
        (row["action"], row["size_bytes"])
        for row in warehouse.rows(
            "select action, size_bytes from trace_event where action in ('alloc', 'free_requested') order by event_ix"
        )
    ]


def test_every_request_of_the_recording_is_made_in_its_order(sample: Warehouse) -> None:
    tape = traced("golden", conditions(workspace=AMPERE)).tape
    made = [
        ("alloc" if kind == ALLOCATE else "free_requested", tape.requested[number])
        for kind, number in zip(tape.kind, tape.number, strict=True)
    ]
    recorded = requests(sample)
    # the recording went on until its script ended, and let go of everything
    assert made == recorded[: len(made)]
    assert [action for action, _ in recorded[len(made) :]] == ["free_requested"] * (len(recorded) - len(made))


def test_its_account_is_the_recorded_one(sample: Warehouse) -> None:
    with opened(traced("golden", conditions(workspace=AMPERE))) as estimated:
        accounts = [
            {row["bucket"]: row["requested_bytes"] for row in ledger.lines(one, ledger.find_moments(one, "peak")[0])}
            for one in (sample, estimated)
        ]
        assert accounts[0].keys() == accounts[1].keys()
        for bucket, size in accounts[0].items():
            assert accounts[1][bucket] == pytest.approx(size, abs=8), bucket
        assert {name: rows for name, rows in ledger.failures(estimated).items() if rows} == {}


@pytest.mark.parametrize(("batch", "allocated", "reserved"), MEASURED)
@pytest.mark.parametrize("card", ["a40", "h200"])
def test_peaks_are_those_measured(card: str, batch: int, allocated: float, reserved: float) -> None:
    row = traced("train_step", conditions(card, AMPERE), batch=batch).as_row()
    assert row["peak_allocated_bytes"] / MIB == pytest.approx(allocated, abs=2)
    assert row["peak_reserved_bytes"] / MIB == pytest.approx(reserved, rel=0.002)
    assert row["lowest_reserved_bytes"] <= reserved * MIB <= row["highest_reserved_bytes"]


def test_a_hopper_has_larger_workspaces() -> None:
    row = traced("golden", batch=8).as_row()
    assert row["peak_allocated_bytes"] / MIB == pytest.approx(17_101.6, abs=2)
    assert row["peak_reserved_bytes"] == 18_366 * MIB


def test_the_largest_batch_on_an_a40_is_twenty() -> None:
    given = conditions("a40", AMPERE, LIMIT)
    traces = [traced("train_step", given, batch=batch) for batch in (8, 18)]
    best = answer.largest(traces, "batch", lambda batch: traced("train_step", given, batch=batch))
    assert best is not None
    assert best.arguments["batch"] == 20
    tried = {int(one.arguments["batch"] or 0): one.fits for one in traces}
    assert (tried[20], tried[21]) == (True, False)
    # the sum of tensors alone would have said 22


def test_the_story_line_by_line() -> None:
    """Bytes allocated after each line, against reference readings of the same script on an A40."""
    with opened(traced("train_step", conditions("a40", AMPERE))) as warehouse:
        lines = _lines(warehouse)
    assert lines["0 load"] - lines["0 data"] == pytest.approx(527.2, abs=1.5)
    assert lines["0 data"] == pytest.approx(8.1, abs=1.5)
    assert lines["1 optimizer"] - lines["1 backward"] == pytest.approx(950.7, abs=1.5)
    assert lines["1 zero_grad"] - lines["1 optimizer"] == pytest.approx(-475.6, abs=1.5)
    assert lines["1 zero_grad"] == pytest.approx(1_494, abs=1.5)
    assert lines["2 forward"] == pytest.approx(13_913, abs=1.5)
    assert lines["2 optimizer"] - lines["2 backward"] == pytest.approx(0, abs=0.01)
    assert lines["peak 2"] == pytest.approx(17_054, abs=1.5)
    assert lines["peak 2"] - lines["peak 1"] == pytest.approx(959, abs=1.5)


def _lines(warehouse: Warehouse) -> dict[str, float]:
    """MiB allocated at the end of each phase of each step, and the highest in each step."""
    rows: list[dict[str, Any]] = warehouse.rows(
        "select coalesce(span.step, 0) as step, span.phase, live_bytes.allocated_bytes"
        " from live_bytes asof join span"
        " on live_bytes.device = span.device and live_bytes.event_ix >= span.begin_event_ix"
        " order by live_bytes.event_ix"
    )
    found: dict[str, float] = {}
    for (step, phase), group in itertools.groupby(rows, lambda row: (row["step"], row["phase"])):
        sizes = [row["allocated_bytes"] / MIB for row in group]
        found[f"{step} {phase}"] = sizes[-1]
        found[f"peak {step}"] = (
            max(sizes, default=0) if f"peak {step}" not in found else max(found[f"peak {step}"], *sizes)
        )
    return found
