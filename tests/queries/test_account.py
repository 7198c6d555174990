"""Live bytes, moments and the ledger: given rows, expected rows.

event       0   1   2   3   4   5   6
segment     ████████████████████████████   2 MiB from event 0
a 512/512       ████████████████████       asked at 1, dropped at 5, back at 6
b 100/512           ████████               asked at 2, dropped at 3, back at 4
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries import rows
from tracekit.warehouse import Warehouse

MIB = 1 << 20
Given = Callable[..., Warehouse]


@pytest.fixture
def small(given: Given) -> Warehouse:
    return given(
        device=[rows.device(7)],
        trace_event=rows.events(
            "segment_alloc 0x1000 2097152",
            "alloc 0x1000 512",
            "alloc 0x1200 100",
            "free_requested 0x1200 100",
            "free_completed 0x1200 100",
            "free_requested 0x1000 512",
            "free_completed 0x1000 512",
        ),
        placement=rows.placements("0x1000 512 512 1 5 6", "0x1200 100 512 2 3 4"),
        replay=[{"device": 0, "is_exact": True, "mismatch_count": 0}],
        **rows.segment(0x1000, 2 * MIB, "2097152 512 inactive"),
    )


def test_live_bytes_follow_every_event(small: Warehouse) -> None:
    assert [tuple(row.values()) for row in small.rows("from live_bytes order by event_ix")] == [
        # device, event, requested, allocated, active, reserved
        (0, 0, 0, 0, 0, 2 * MIB),
        (0, 1, 512, 512, 512, 2 * MIB),
        (0, 2, 612, 1024, 1024, 2 * MIB),
        (0, 3, 612, 512, 1024, 2 * MIB),
        (0, 4, 512, 512, 512, 2 * MIB),
        (0, 5, 512, 0, 512, 2 * MIB),
        (0, 6, 0, 0, 0, 2 * MIB),
    ]


def test_moments_are_the_start_the_peak_and_the_end(small: Warehouse) -> None:
    assert small.rows("select moment, moment_ix, event_ix, allocated_bytes from moment order by moment_ix") == [
        {"moment": "start", "moment_ix": 0, "event_ix": None, "allocated_bytes": 0},
        {"moment": "peak", "moment_ix": 1, "event_ix": 2, "allocated_bytes": 1024},
        {"moment": "end", "moment_ix": 2, "event_ix": 6, "allocated_bytes": 0},
    ]


def test_a_peak_that_is_reached_twice_is_the_first_one(given: Given) -> None:
    twice = given(
        device=[rows.device(4)],
        trace_event=rows.events(
            "alloc 0x1000 512", "free_requested 0x1000 512", "free_completed 0x1000 512", "alloc 0x1000 512"
        ),
        placement=rows.placements("0x1000 512 512 0 1 2", "0x1000 512 512 3 - -"),
        replay=[{"device": 0}],
    )
    assert twice.rows("select event_ix from moment where moment = 'peak'") == [{"event_ix": 0}]


def test_without_events_the_state_is_start_peak_and_end(given: Given) -> None:
    state = given(
        device=[rows.device(0)],
        placement=rows.placements("0x1000 700 1024 - - -"),
        replay=[{"device": 0}],
        **rows.segment(0x1000, 2048, "1024 700 active_allocated", "1024 0 inactive"),
    )
    assert state.rows("select moment, event_ix, allocated_bytes, reserved_bytes from moment order by moment_ix") == [
        {"moment": name, "event_ix": None, "allocated_bytes": 1024, "reserved_bytes": 2048}
        for name in ("start", "peak", "end")
    ]
    assert len(state.rows("from device_summary")) == 1


def test_ledger_lines_add_up_to_what_is_reserved(small: Warehouse) -> None:
    assert small.rows("select * exclude (device, moment) from ledger where moment = 'peak'") == [
        {
            "bucket": "unattributed",
            "requested_bytes": 612,
            "held_bytes": 1024,
            "allocation_count": 2,
            "entry_bytes": 612,
        },
        {
            "bucket": "block_slack",
            "requested_bytes": 0,
            "held_bytes": 412,
            "allocation_count": 0,
            "entry_bytes": 412,
        },
        {
            "bucket": "pending_free",
            "requested_bytes": 0,
            "held_bytes": 0,
            "allocation_count": 0,
            "entry_bytes": 0,
        },
        {
            "bucket": "cached",
            "requested_bytes": 0,
            "held_bytes": 2 * MIB - 1024,
            "allocation_count": 0,
            "entry_bytes": 2 * MIB - 1024,
        },
    ]


@pytest.mark.parametrize("event_ix", range(-1, 7))
def test_ledger_at_any_event_balances_with_live_bytes(small: Warehouse, event_ix: int) -> None:
    total = small.rows(
        "select sum(entry_bytes)::bigint as reserved, sum(requested_bytes)::bigint as requested,"
        " sum(held_bytes) filter (where bucket not in ('block_slack', 'pending_free', 'cached'))::bigint as allocated"
        " from ledger_at(0, ?)",
        [event_ix],
    )[0]
    live = small.rows(
        "select reserved_bytes, requested_bytes, allocated_bytes from live_bytes where event_ix = ?",
        [event_ix],
    ) or [{"reserved_bytes": 0, "requested_bytes": 0, "allocated_bytes": 0}]
    assert (total["reserved"], total["requested"], total["allocated"] or 0) == tuple(live[0].values())


def test_between_request_and_completion_a_block_is_pending(small: Warehouse) -> None:
    lines = {row["bucket"]: row for row in small.rows("from ledger_at(0, 3)")}
    assert lines["pending_free"]["held_bytes"] == 512
    assert lines["pending_free"]["requested_bytes"] == 100
    assert lines["unattributed"]["requested_bytes"] == 512


def test_what_is_older_than_the_recording_is_an_opening_line(given: Given) -> None:
    late = given(
        device=[rows.device(2)],
        trace_event=rows.events("free_requested 0x1000 700", "free_completed 0x1000 700"),
        placement=rows.placements("0x1000 700 1024 - 0 1", "0x1400 600 1024 - - -"),
        replay=[{"device": 0}],
        **rows.segment(0x1000, 2048, "1024 700 inactive", "1024 600 active_allocated"),
    )
    assert late.rows(
        "select bucket, requested_bytes, held_bytes from ledger where moment = 'start' and entry_bytes > 0"
    ) == [
        {"bucket": "before_recording", "requested_bytes": 1300, "held_bytes": 2048},
        {"bucket": "block_slack", "requested_bytes": 0, "held_bytes": 748},
    ]
    assert late.rows("from opening") == [
        {
            "device": 0,
            "requested_bytes": 1300,
            "allocated_bytes": 2048,
            "active_bytes": 2048,
            "reserved_bytes": 2048,
        }
    ]


def test_a_block_dropped_before_the_recording_waits_from_the_start(given: Given) -> None:
    waiting = rows.placements("0x1000 700 1024 - - 0")
    waiting[0]["is_pending_at_start"] = True
    late = given(
        device=[rows.device(1)],
        trace_event=rows.events("free_completed 0x1000 700"),
        placement=waiting,
        replay=[{"device": 0}],
        **rows.segment(0x1000, 1024, "1024 700 inactive"),
    )
    assert late.rows("select bucket, held_bytes from ledger where moment = 'start' and held_bytes > 0") == [
        {"bucket": "pending_free", "held_bytes": 1024}
    ]
    assert late.rows("select bucket, held_bytes from ledger where moment = 'end' and held_bytes > 0") == [
        {"bucket": "cached", "held_bytes": 1024}
    ]
    assert late.table("check_buckets").num_rows == 0


def test_a_completion_without_its_request_drops_and_returns_at_once(given: Given) -> None:
    cut = given(
        device=[rows.device(2)],
        trace_event=rows.events("alloc 0x1000 512", "free_completed 0x1000 512"),
        placement=rows.placements("0x1000 512 512 0 1 1"),
        replay=[{"device": 0}],
    )
    assert cut.rows("select allocated_bytes, active_bytes from live_bytes order by event_ix") == [
        {"allocated_bytes": 512, "active_bytes": 512},
        {"allocated_bytes": 0, "active_bytes": 0},
    ]
    assert cut.table("check_pairing").num_rows == 0


def test_each_device_has_its_own_account(given: Given) -> None:
    two = given(
        device=[rows.device(1), rows.device(1, ordinal=1)],
        trace_event=[*rows.events("alloc 0x1000 512"), *rows.events("alloc 0x1000 2048", ordinal=1)],
        placement=[
            *rows.placements("0x1000 512 512 0 - -"),
            *rows.placements("0x1000 2048 2048 0 - -", ordinal=1, begin=1),
        ],
        replay=[{"device": 0}, {"device": 1}],
    )
    assert two.rows("select device, allocated_bytes from moment where moment = 'peak' order by device") == [
        {"device": 0, "allocated_bytes": 512},
        {"device": 1, "allocated_bytes": 2048},
    ]
    assert two.rows(
        "select device, held_bytes from ledger where moment = 'end' and bucket = 'unattributed' order by device"
    ) == [
        {"device": 0, "held_bytes": 512},
        {"device": 1, "held_bytes": 2048},
    ]
