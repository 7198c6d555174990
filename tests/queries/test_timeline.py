"""The drawn timeline: whatever is left out, no height is lost, and what is kept adds up."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from hypothesis import given as given_any
from hypothesis import settings
from hypothesis import strategies as st

from tests.queries import rows
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]


def test_rows_are_kept_events_with_what_each_bucket_holds(given: Given) -> None:
    """Three allocations, of which the second waits for another stream and the first is older than the recording."""
    warehouse = given(
        device=[rows.device(6)],
        trace_event=rows.events(
            "segment_alloc 0x9000 4096",
            "alloc 0x9000 1000",
            "alloc 0x9400 500",
            "free_requested 0x9000 1000",
            "alloc 0x9600 10",
            "free_completed 0x9000 1000",
        ),
        placement=rows.placements(
            "0x1000 300 512 - - -",
            "0x9000 1000 1024 1 3 5",
            "0x9400 500 512 2 - -",
            "0x9600 10 512 4 - -",
        ),
        **rows.segment(0x1000, 2048, "512 300 active_allocated", "1536 0 inactive"),
    )
    found = warehouse.rows("from timeline(0, 100)")
    assert found[0]["buckets"] == ["before_recording", "unattributed", "block_slack", "pending_free", "cached"]
    # reserved falls below: the segment of 4,096 bytes is not in the final state, so the recording began with less
    assert [(row["event_ix"], row["allocated_bytes"], row["bucket_bytes"]) for row in found] == [
        (-1, 512, [300, 0, 212, 0, found[0]["reserved_bytes"] - 512]),
        (0, 512, [300, 0, 212, 0, found[1]["reserved_bytes"] - 512]),
        (1, 1536, [300, 1000, 236, 0, found[2]["reserved_bytes"] - 1536]),
        (2, 2048, [300, 1500, 248, 0, found[3]["reserved_bytes"] - 2048]),
        (3, 1024, [300, 500, 224, 1024, found[4]["reserved_bytes"] - 2048]),
        (4, 1536, [300, 510, 726, 1024, found[5]["reserved_bytes"] - 2560]),
        (5, 1536, [300, 510, 726, 0, found[6]["reserved_bytes"] - 1536]),
    ]
    assert [row["high_water_bytes"] for row in found] == [512, 512, 1536, 2048, 2048, 2048, 2048]
    assert [row["time_us"] for row in found] == [None, 0, 10, 20, 30, 40, 50]
    assert found[4]["event_bucket"] == found[6]["event_bucket"] == "unattributed"


@settings(max_examples=30)
@given_any(
    lives=st.lists(st.tuples(st.integers(1, 1 << 40), st.booleans()), min_size=1, max_size=40),
    bin_count=st.integers(1, 12),
)
def test_no_height_is_lost_however_few_events_are_kept(lives: list[tuple[int, bool]], bin_count: int) -> None:
    """Each allocation is freed before the next one, or never."""
    lines: list[str] = []
    placements: list[str] = []
    live = highest = 0
    heights: list[int] = []
    for index, (size, is_freed) in enumerate(lives):
        address = f"{(index + 1) << 41:#x}"
        born = len(lines)
        lines.append(f"alloc {address} {size}")
        placements.append(f"{address} {size} {size} {born} " + (f"{born + 1} {born + 1}" if is_freed else "- -"))
        heights.append(live + size)
        if is_freed:
            lines.append(f"free_requested {address} {size}")
            heights.append(live)
        else:
            live += size
    highest = max(heights)
    tables = {
        "device": [rows.device(len(lines))],
        "trace_event": rows.events(*lines),
        "placement": rows.placements(*placements),
    }
    sources = {name: pa.Table.from_pylist(tables.get(name, []), schema=spec.schema) for name, spec in TABLES.items()}
    with Warehouse(sources, only=["timeline_event"]) as warehouse:
        kept = warehouse.rows("from timeline_event(0, ?)", [bin_count])
    assert len(kept) <= 5 * bin_count
    assert max(row["allocated_bytes"] for row in kept) == highest
    assert kept[-1]["high_water_bytes"] == highest
    # the first event that reached it, as the peak of the summary is
    assert min(row["event_ix"] for row in kept if row["allocated_bytes"] == highest) == heights.index(highest)
    assert all(row["allocated_bytes"] == heights[row["event_ix"]] for row in kept if row["event_ix"] >= 0)
    assert (kept[0]["event_ix"], kept[-1]["event_ix"]) == (-1, len(lines) - 1)


def test_a_failed_request_is_kept_though_it_changes_nothing(given: Given) -> None:
    """Of thousands that a program survives, the first twelve."""
    lines = ["alloc 0x9000 1024", *["oom - 4096", "alloc 0x9000 512", "free_completed 0x9000 512"] * 20]
    warehouse = given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements("0x9000 1024 1024 0 - -"),
    )
    found = warehouse.rows("from timeline(0, 1)")
    assert [row["event_ix"] for row in found if row["action"] == "oom"] == list(range(1, 37, 3))
    assert {(row["allocated_bytes"], row["size_bytes"]) for row in found if row["action"] == "oom"} == {(1024, 4096)}


def test_phases_shorter_than_a_bin_are_drawn_as_several(given: Given) -> None:
    marks = [
        mark
        for begin, phase in enumerate(("forward", "backward", "forward", "backward"))
        for mark in (f"{1000 + 20 * begin} START {phase}", f"{1015 + 20 * begin} END {phase}")
    ]
    warehouse = given(
        device=[rows.device(8)],
        trace_event=rows.events(*["snapshot - 0"] * 8),
        annotation=rows.marks(*marks),
    )
    whole = warehouse.rows("from timeline_span(0, 100)")
    assert [(row["begin_event_ix"], row["end_event_ix"], row["phase"]) for row in whole] == [
        (0, 2, "forward"),
        (2, 4, "backward"),
        (4, 6, "forward"),
        (6, 8, "backward"),
    ]
    assert [(row["begin_us"], row["end_us"]) for row in whole] == [(0, 20), (20, 40), (40, 60), (60, 70)]
    merged = warehouse.rows("from timeline_span(0, 2)")
    assert [(row["begin_event_ix"], row["end_event_ix"], row["phase"], row["span_count"]) for row in merged] == [
        (0, 4, "several", 2),
        (4, 8, "several", 2),
    ]


def test_the_sample_is_kept_to_the_byte(sample: Warehouse) -> None:
    """Each kept event's lines are those of the account drawn up at that event, by another way."""
    found = sample.rows("from timeline(0, 6)")
    assert len(found) < 31
    for row in found:
        lines = sample.rows("from ledger_at(0, ?)", [row["event_ix"]])
        account = {line["bucket"]: line["entry_bytes"] for line in lines if line["entry_bytes"]}
        drawn = {bucket: size for bucket, size in zip(row["buckets"], row["bucket_bytes"], strict=True) if size}
        assert drawn == account


def test_the_most_a_bucket_held(sample: Warehouse) -> None:
    highest = {row["bucket"]: row for row in sample.rows("from bucket_highest where device = 0")}
    assert highest["parameter"]["highest_bytes"] == 497_759_232
    for row in highest.values():
        (held,) = [
            line["requested_bytes"]
            for line in sample.rows("from ledger_at(0, ?)", [row["highest_event_ix"]])
            if line["bucket"] == row["bucket"]
        ]
        assert held == row["highest_bytes"]
