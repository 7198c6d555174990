"""Each check view: silent on rows that balance, and naming the fault in rows that do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queries import rows
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

CHECKS = [
    "check_blocks",
    "check_buckets",
    "check_counters",
    "check_marks",
    "check_pairing",
    "check_replay",
    "check_reserved",
    "check_tiling",
]


def balanced() -> dict[str, Any]:
    """One segment of 2,048 bytes; a block of 512 alive, one of 1,024 freed again."""
    return {
        "device": [rows.device(5)],
        "trace_event": rows.events(
            "segment_alloc 0x1000 2048",
            "alloc 0x1000 400",
            "alloc 0x1200 1024",
            "free_requested 0x1200 1024",
            "free_completed 0x1200 1024",
        ),
        "placement": rows.placements("0x1000 400 512 1 - -", "0x1200 1024 1024 2 3 4"),
        "replay": [
            {
                "device": 0,
                "is_exact": True,
                "mismatch_count": 0,
                "peak_allocated_bytes": 1536,
                "peak_active_bytes": 1536,
                "peak_requested_bytes": 1424,
                "peak_reserved_bytes": 2048,
            }
        ],
        **rows.segment(0x1000, 2048, "512 400 active_allocated", "1536 1024 inactive"),
    }


@pytest.mark.parametrize("check", CHECKS)
def test_a_balanced_account_has_no_row(given: Given, check: str) -> None:
    assert given(**balanced()).table(check).to_pylist() == []


def test_every_check_view_is_tested_here(given: Given) -> None:
    with given() as warehouse:
        assert sorted(view.name for view in warehouse.views.values() if view.layer == "check") == CHECKS


@pytest.mark.parametrize(
    ("blocks", "fault"),
    [
        (["512 400 active_allocated", "1024 0 inactive"], "its blocks add up to 1536 bytes, not 2048"),
        ([], "its blocks add up to 0 bytes, not 2048"),
    ],
)
def test_tiling_names_blocks_that_do_not_fill_their_segment(given: Given, blocks: list[str], fault: str) -> None:
    found = given(**rows.segment(0x1000, 2048, *blocks)).rows("from check_tiling")
    assert [row["fault"] for row in found] == [fault]


def test_tiling_names_a_gap_and_an_overlap(given: Given) -> None:
    tables = rows.segment(0x1000, 2048, "512 1 active_allocated", "1024 1 active_allocated", "512 1 inactive")
    tables["block"][1]["address"] += 64
    found = given(**tables).rows("from check_tiling")
    assert [row["fault"] for row in found] == ["there is a gap between its blocks; its blocks overlap"]


def test_counters_names_the_counter(given: Given) -> None:
    tables = balanced()
    tables["segment"][0]["active_size_bytes"] = 1000
    found = given(**tables).rows("from check_counters")
    assert [row["fault"] for row in found] == ["active_size is 1000, its blocks say 512"]


def test_counters_that_the_file_does_not_have_are_not_missed(given: Given) -> None:
    tables = balanced()
    tables["segment"][0]["requested_size_bytes"] = None
    assert given(**tables).table("check_counters").num_rows == 0


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"death_event_ix": 4, "free_requested_event_ix": 3},
            "the snapshot holds a block that the events do not leave alive",
        ),
        ({"address": 0x1400}, "the events leave an allocation alive that the snapshot does not have"),
        ({"requested_bytes": 401}, "the snapshot says 400 bytes were requested, the events say 401"),
        ({"held_bytes": 1024}, "the snapshot says the block has 512 bytes, the replay says 1024"),
        (
            {"free_requested_event_ix": 3},
            "the snapshot says active_allocated, the events say active_pending_free",
        ),
    ],
)
def test_blocks_names_what_the_closing_balance_lacks(given: Given, change: dict[str, int], fault: str) -> None:
    tables = balanced()
    tables["placement"][0] |= change
    assert fault in [row["fault"] for row in given(**tables).rows("from check_blocks")]


def test_pairing_names_an_allocation_freed_elsewhere(given: Given) -> None:
    tables = balanced()
    tables["placement"][1]["death_event_ix"] = None
    found = given(**tables).rows("from check_pairing")
    assert [(row["event_ix"], row["fault"]) for row in found] == [
        (2, "the allocation is dropped or dies at another event than its address says")
    ]


def test_pairing_names_an_event_without_an_allocation(given: Given) -> None:
    tables = balanced()
    del tables["placement"][0]
    found = given(**tables).rows("from check_pairing")
    assert [(row["event_ix"], row["fault"]) for row in found] == [(1, "the alloc event has no allocation")]


def test_reserved_names_the_line_that_is_off(given: Given) -> None:
    tables = balanced()
    tables["placement"][0]["held_bytes"] = 1024
    found = given(**tables).rows("select line, ledger_bytes, segment_bytes from check_reserved")
    assert found == [
        {"line": "block_slack", "ledger_bytes": 624, "segment_bytes": 112},
        {"line": "cached", "ledger_bytes": 1024, "segment_bytes": 1536},
    ]


def test_replay_names_each_mismatch_and_a_peak_that_two_methods_disagree_on(given: Given) -> None:
    tables = balanced()
    tables["mismatch"] = [{"device": 0, "mismatch_ix": 0, "event_ix": 2, "kind": "address", "reason": "another thread"}]
    tables["replay"][0]["peak_allocated_bytes"] = 1
    faults = [row["fault"] for row in given(**tables).rows("from check_replay order by event_ix nulls last")]
    assert faults[0] == "another thread"
    assert faults[1].startswith("the peaks of the replay are not those of the events: allocated 1 and 1536")


def test_buckets_names_a_moment_whose_lines_are_not_its_live_bytes(given: Given) -> None:
    # one event that ends two allocations: the lines count both, the running account cannot
    tables = balanced()
    tables["placement"][0] |= {"free_requested_event_ix": 3, "death_event_ix": 4}
    faults = [row["fault"] for row in given(**tables).rows("from check_buckets where moment = 'end'")]
    assert faults
    assert all(fault.startswith("its lines ") for fault in faults)
