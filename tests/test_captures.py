"""Every shared recording: the replay agrees, the account balances, the peaks are torch's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import captures, facts_of, recording_name
from tracekit import ledger
from tracekit.analysis import build
from tracekit.warehouse import Warehouse

CAPTURES = captures()
PUBLIC = captures("public-snapshots")

INCONSISTENT = "synthetic_inconsistent"
PARTIAL = {"small_ring", "small_late", "small_state", "small_nohistory", "mempool", "small_streams"}
"""Recordings that did not see all that torch's counters saw: the peak of the program is not in them."""


def opened(path: Path) -> Warehouse:
    return Warehouse(build(path)[1])


def witness(facts: dict[str, Any], counter: str, column: int) -> int:
    """The largest value that torch's counter had at a reading or a step's end."""
    stats = [*facts.get("step_stats", []), facts.get("stats", {})]
    return max([*(step.get(f"{counter}.all.peak", 0) for step in stats), *(row[column] for row in facts["readings"])])


@pytest.mark.parametrize("path", CAPTURES, ids=[recording_name(path) for path in CAPTURES])
def test_capture_balances_and_replays_exactly(path: Path) -> None:
    facts = facts_of(path)
    with opened(path) as warehouse:
        assert {name: rows for name, rows in ledger.failures(warehouse).items() if rows} == {}
        for row in ledger.summaries(warehouse):
            assert (row["is_exact"], row["mismatch_count"]) in [(True, 0), (None, 0)], row["verdict"]
            if recording_name(path) not in PARTIAL:
                assert row["peak_allocated_bytes"] == witness(facts, "allocated_bytes", 3)
                assert row["highest_reserved_bytes"] == witness(facts, "reserved_bytes", 4)


@pytest.mark.parametrize("path", PUBLIC, ids=[recording_name(path) for path in PUBLIC])
def test_public_snapshot_balances_or_names_its_faults(path: Path) -> None:
    with opened(path) as warehouse:
        failed = {name: rows for name, rows in ledger.failures(warehouse).items() if rows}
    if recording_name(path) == INCONSISTENT:
        assert len(failed["check_tiling"]) == 5
        assert all(row["fault"].startswith("its blocks add up to ") for row in failed["check_tiling"])
    else:
        assert failed == {}


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("five_events", "peak_requested_bytes", 13_293_440),
        ("five_events", "peak_event_ix", 2),
        ("five_events", "opening_allocation_count", 75),
        ("growing_buffer", "peak_requested_bytes", 16_285_882_240),
        ("growing_buffer", "highest_reserved_bytes", 24_410_849_280),
        ("windows_paths", "peak_requested_bytes", 1_783_664_516),
        ("windows_paths", "peak_event_ix", 11_205),
        ("late_recording_ctx128", "peak_requested_bytes", 7_013_335_044),
        ("late_recording_ctx128", "peak_event_ix", 9_966),
        ("late_recording_ctx128", "highest_reserved_bytes", 7_235_174_400),
        ("late_recording_ctx512", "peak_requested_bytes", 12_426_629_128),
        ("late_recording_ctx512", "peak_event_ix", 3_485),
        ("late_recording_ctx512", "highest_reserved_bytes", 12_660_506_624),
    ],
)
def test_public_snapshot_has_its_known_value(shared: Path, name: str, column: str, expected: int) -> None:
    with opened(shared / "public-snapshots" / f"{name}.pickle.xz") as warehouse:
        (row,) = ledger.summaries(warehouse)
    assert row[column] == expected


def test_allocations_of_the_past_are_neither_unknown_nor_a_leak(shared: Path) -> None:
    with opened(shared / "public-snapshots" / "five_events.pickle.xz") as warehouse:
        rows = warehouse.rows(
            "select requested_bytes, allocation_count from ledger where moment = 'start' and allocation_count > 0"
        )
        end = warehouse.rows("select requested_bytes, allocated_bytes, reserved_bytes from moment where moment = 'end'")
    assert sum(row["requested_bytes"] for row in rows) == 186_240
    assert sum(row["allocation_count"] for row in rows) == 75
    assert end == [{"requested_bytes": 6_739_840, "allocated_bytes": 6_760_960, "reserved_bytes": 23_068_672}]


def test_backward_without_frames_stays_in_every_sum(shared: Path) -> None:
    with opened(shared / "public-snapshots" / "half_without_stacks.pickle.xz") as warehouse:
        (row,) = warehouse.rows(
            "select count(*) as allocations from trace_event left join stack using (stack_id)"
            " where action = 'alloc' and coalesce(depth_count, 0) = 0"
        )
    assert row["allocations"] == 1_066


def test_code_of_torch_on_windows_is_not_the_users(shared: Path) -> None:
    with opened(shared / "public-snapshots" / "windows_paths.pickle.xz") as warehouse:
        rows = warehouse.rows(
            "select distinct origin from frame_label where file ilike '%/site-packages/torch/nn/modules/module.py'"
        )
        (weights,) = warehouse.rows(
            "select sum(requested_size_bytes)::bigint as bytes, count(*) as blocks"
            " from block join stack_line using (stack_id)"
            " where state = 'active_allocated' and shown like '%/torch/nn/modules/module.py:% convert'"
        )
    assert rows == [{"origin": "torch"}]
    assert weights["blocks"] == 196
    assert round(weights["bytes"] / 2**20, 1) == 477.8


def test_pending_blocks_of_private_pools_are_told(shared: Path) -> None:
    with opened(shared / "public-snapshots" / "private_pools_no_trace.pickle.xz") as warehouse:
        pools = warehouse.rows(
            "select pool, count(*) as segments, sum(total_size_bytes)::bigint as reserved,"
            " sum(allocated_size_bytes)::bigint as allocated, sum(active_size_bytes)::bigint as active"
            " from segment group by pool order by pool"
        )
        (pending,) = warehouse.rows("select held_bytes from ledger where moment = 'end' and bucket = 'pending_free'")
    assert [tuple(row.values()) for row in pools] == [
        ("(0,0)", 59, 3_810_525_184, 2_623_884_288, 3_221_261_312),
        ("(0,1)", 44, 585_105_408, 498_546_688, 498_546_688),
        ("(0,2)", 24, 21_793_603_584, 21_793_603_584, 21_793_603_584),
    ]
    assert pending["held_bytes"] == 597_377_024


def test_snapshot_event_is_not_an_allocation(shared: Path) -> None:
    with opened(shared / "public-snapshots" / "torch20_format.pickle.xz") as warehouse:
        events = warehouse.rows("select action, address, size_bytes from trace_event")
        (end,) = warehouse.rows("select allocated_bytes from moment where moment = 'end'")
    assert events == [{"action": "snapshot", "address": None, "size_bytes": 11_840_159_744}]
    assert end["allocated_bytes"] == 11_840_159_744
