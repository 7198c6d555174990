"""What the reserved bytes are doing: free pieces, who pins them, and the account by pool; given rows, expected rows.

0x1000          segment of 4,096 bytes on stream 0
a 1024 │ free 1024 │ b 512 │ free 1536
0x9000          segment of 2,048 bytes on stream 7, empty
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.queries import rows
from tracekit.analysis import build
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]


def reserved(
    number: int, address: int, size: int, birth: int | None, death: int | None = None, **more: Any
) -> rows.Row:
    return {
        "reserved_range_id": number,
        "device": 0,
        "address": address,
        "size_bytes": size,
        "stream": 0,
        "pool": "(0,0)",
        "is_small": False,
        "is_expandable": False,
        "birth_event_ix": birth,
        "death_event_ix": death,
        **more,
    }


@pytest.fixture
def two_segments(given: Given) -> Warehouse:
    return given(
        device=[rows.device(6)],
        trace_event=rows.events(*["snapshot - 0"] * 6),
        placement=rows.placements("0x1000 1000 1024 1 - -", "0x1400 1024 1024 2 4 5", "0x1800 512 512 3 - -"),
        reserved_range=[reserved(0, 0x1000, 4096, 0), reserved(1, 0x9000, 2048, None, stream=7)],
        replay=[{"device": 0}],
    )


def test_free_pieces_lie_between_blocks_and_name_who_pins_them(two_segments: Warehouse) -> None:
    found = two_segments.rows(
        "select address, size_bytes, is_whole_segment, below_allocation_id, above_allocation_id"
        " from free_piece_at(0, 5)"
    )
    assert [tuple(row.values()) for row in found] == [
        (0x1400, 1024, False, 0, 2),
        (0x1A00, 1536, False, 2, None),
        (0x9000, 2048, True, None, None),
    ]


def test_before_the_first_event_only_what_is_older_is_there(two_segments: Warehouse) -> None:
    assert [row["address"] for row in two_segments.rows("from free_piece_at(0, -1)")] == [0x9000]


def test_a_block_that_waits_is_neither_allocated_nor_free(two_segments: Warehouse) -> None:
    found = two_segments.rows("select stream, line, held_bytes, piece_count, largest_bytes from pool_at(0, 4)")
    assert [tuple(row.values()) for row in found] == [
        (0, "allocated", 1536, 2, 1024),
        (0, "free_piece", 1536, 1, 1536),
        (0, "pending_free", 1024, 1, 1024),
        (7, "idle_segment", 2048, 1, 2048),
    ]


def test_pages_mapped_side_by_side_are_one_segment_and_segments_are_not(given: Given) -> None:
    for is_expandable, expected in ((True, [4096]), (False, [2048, 2048])):
        warehouse = given(
            reserved_range=[
                reserved(0, 0x1000, 2048, None, is_expandable=is_expandable),
                reserved(1, 0x1800, 2048, None, is_expandable=is_expandable),
            ]
        )
        assert [row["size_bytes"] for row in warehouse.rows("from free_piece_at(0, -1)")] == expected


def test_the_account_is_all_that_is_reserved_at_every_moment(sample: Warehouse) -> None:
    for event_ix in (0, 189, 700, 3815, 5391, 7057):
        (total,) = sample.rows("select sum(held_bytes)::bigint as held from pool_at(0, ?)", [event_ix])
        (live,) = sample.rows("select reserved_bytes from live_bytes where event_ix = ?", [event_ix])
        assert total["held"] == live["reserved_bytes"]


def test_free_pieces_at_the_end_are_the_snapshots_inactive_blocks(sample: Warehouse) -> None:
    pieces = sample.rows("select address, size_bytes from free_piece_at(0, 7057) order by address")
    assert pieces == sample.rows("select address, size_bytes from block where state = 'inactive' order by address")


@pytest.mark.parametrize(
    "name",
    ["gpt2_b8_expandable", "sweep_21_ws8_expandable", "small_cudagraph", "small_streams", "mempool", "gc_threshold"],
)
def test_free_pieces_of_every_kind_of_segment_are_the_snapshots(shared: Path, name: str) -> None:
    with Warehouse(build(shared / "captures" / f"{name}.pickle.xz")[1]) as warehouse:
        (last,) = warehouse.rows("select event_count - 1 as event_ix from device")
        pieces = warehouse.rows(
            "select address, size_bytes, stream, pool from free_piece_at(0, ?) order by address", [last["event_ix"]]
        )
        blocks = warehouse.rows(
            "select block.address, size_bytes, stream, pool from block join segment using (segment_id)"
            " where state = 'inactive' order by block.address"
        )
    assert pieces == blocks


def test_what_empty_cache_would_return_of_a_growing_buffer(shared: Path) -> None:
    with Warehouse(build(shared / "public-snapshots" / "growing_buffer.pickle.xz")[1]) as warehouse:
        lines = {
            row["line"]: row["held_bytes"]
            for row in warehouse.rows(
                "select line, sum(held_bytes)::bigint as held_bytes from pool_at(0, 242) group by line"
            )
        }
    assert lines["idle_segment"] == 16_265_510_912
    assert lines["free_piece"] == 1_889_792


@pytest.mark.parametrize(
    ("pool", "kind"),
    [("(0,0)", "default"), ("(1,0)", "graph"), ("(12,0)", "graph"), ("(0,1)", "program"), (None, None)],
)
def test_whose_a_pool_is_stands_in_its_id(given: Given, pool: str | None, kind: str | None) -> None:
    found = given(reserved_range=[reserved(0, 0x1000, 4096, 0, pool=pool)]).rows("from pool_label")
    assert [(row["pool"], row["pool_kind"]) for row in found] == ([] if kind is None else [(pool, kind)])


@pytest.mark.parametrize(("name", "told"), [("small_cudagraph", "(1,0) graph"), ("mempool", "(0,1) program")])
def test_a_graphs_pool_and_a_programs_are_named(shared: Path, name: str, told: str) -> None:
    with Warehouse(build(shared / "captures" / f"{name}.pickle.xz")[1]) as warehouse:
        (last,) = warehouse.rows("select event_count - 1 as event_ix from device")
        by_pool = warehouse.rows("from ledger_by(0, ?, 'pool', null)", [last["event_ix"]])
        kinds = warehouse.rows("select distinct pool_kind from pool_at(0, ?)", [last["event_ix"]])
        story = warehouse.rows("select allocation_id from allocation_story where pool_kind <> 'default'")
    assert {row["first_value"] for row in by_pool} == {"(0,0)", told}
    assert {row["pool_kind"] for row in kinds} == {"default", told.split()[1]}
    assert story
