"""A request that failed: given rows, expected verdict, outcome and twins.

One segment of 20 MiB holds a live block of 12 MiB; the rest of it is free.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries import rows
from tracekit import oom
from tracekit.warehouse import Warehouse

MIB = 1 << 20
Given = Callable[..., Warehouse]

EMPTY = "at::detail::empty_cuda(c10::ArrayRef<long>)"


def recording(given: Given, *after: str, asked: int = 16 * MIB, before: tuple[str, ...] = ()) -> Warehouse:
    lines = [
        *before,
        f"segment_alloc 0x10000000 {20 * MIB} 0",
        f"alloc 0x10000000 {12 * MIB} 0",
        f"oom - {asked} 1",
        *after,
    ]
    first = len(before)
    last = len(lines) - 1
    placements = [f"0x10000000 {12 * MIB} {12 * MIB} {first + 1} - - 0"]
    if after:
        _, address, size, stack = after[-1].split()
        placements.append(f"{address} {size} {size} {last} - - {stack}")
    tables = rows.segment(0x10000000, 20 * MIB, f"{12 * MIB} {12 * MIB} active_allocated", f"{8 * MIB} 0 inactive")
    return given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements(*placements),
        replay=[{"device": 0}],
        **tables,
        **rows.stacks(
            ["at::_ops::mm::call(x)", "/home/me/model.py:7 forward"],
            ["at::native::run_conv_plan(x)", "/home/me/model.py:9 forward"],
        ),
    )


@pytest.mark.parametrize(
    ("asked", "before", "verdict"),
    [
        # 12 live and 16 asked are 28 MiB: more than the 20 ever reserved, less than the 36 refused
        (16 * MIB, (), "between"),
        # 44 MiB had been reserved before, and given back
        (16 * MIB, (f"segment_alloc 0x90000000 {24 * MIB}", f"segment_alloc 0xb0000000 {20 * MIB}",
                    f"segment_free 0x90000000 {24 * MIB}", f"segment_free 0xb0000000 {20 * MIB}"), "fragmented"),
        # 6 MiB fit into the 8 that are free, so they were of another stream or in pieces
        (6 * MIB, (), "fragmented"),
    ],
)  # fmt: skip
def test_verdict(given: Given, asked: int, before: tuple[str, ...], verdict: str) -> None:
    (row,) = recording(given, asked=asked, before=before).rows("from oom")
    assert row["verdict"] == verdict
    assert row["needed_bytes"] == 12 * MIB + asked
    assert row["cached_bytes"] == 8 * MIB
    assert row["limit_below_bytes"] == 20 * MIB + row["segment_bytes"]


def test_with_no_byte_free_it_is_full(given: Given) -> None:
    lines = [f"segment_alloc 0x10000000 {20 * MIB}", f"alloc 0x10000000 {20 * MIB}", f"oom - {2 * MIB}"]
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events(*lines, f"oom - {20 * MIB}"),
        placement=rows.placements(f"0x10000000 {20 * MIB} {20 * MIB} 1 - -"),
        replay=[{"device": 0}],
        **rows.segment(0x10000000, 20 * MIB, f"{20 * MIB} {20 * MIB} active_allocated"),
    )
    # 2 MiB are asked for in a segment of 20, which may have been too much where 2 were not
    assert [row["verdict"] for row in warehouse.rows("select verdict from oom")] == ["between", "full"]


@pytest.mark.parametrize(
    ("asked", "segment"),
    [(512, 2 * MIB), (MIB, 2 * MIB), (MIB + 512, 20 * MIB), (10 * MIB, 10 * MIB), (11 * MIB + 512, 12 * MIB)],
)
def test_the_segment_that_was_refused(given: Given, asked: int, segment: int) -> None:
    (row,) = recording(given, asked=asked).rows("from oom")
    assert row["segment_bytes"] == segment


@pytest.mark.parametrize(
    ("after", "outcome"),
    [
        ((), "fatal"),
        ((f"alloc 0x90000000 {4 * MIB} 1",), "recovered"),  # the convolution takes less workspace
        ((f"alloc 0x90000000 {16 * MIB} 1",), "survived"),  # the same again: no smaller success
        ((f"alloc 0x90000000 {4 * MIB} 0",), "survived"),  # another asker
    ],
)
def test_outcome(given: Given, after: tuple[str, ...], outcome: str) -> None:
    (row,) = recording(given, *after).rows("from oom")
    assert row["outcome"] == outcome


def test_one_recovered_and_one_fatal(given: Given) -> None:
    warehouse = recording(given, f"alloc 0x90000000 {4 * MIB} 1")
    assert [row["outcome"] for row in warehouse.rows("from oom")] == ["recovered"]
    twice = given(
        device=[rows.device(4)],
        trace_event=rows.events(
            f"oom - {16 * MIB} 0", f"alloc 0x90000000 {4 * MIB} 0", "snapshot - 0", f"oom - {16 * MIB} 0"
        ),
        placement=rows.placements(f"0x90000000 {4 * MIB} {4 * MIB} 1 - - 0"),
        replay=[{"device": 0}],
        **rows.stacks([EMPTY]),
    )
    assert [(row["moment"], row["outcome"]) for row in twice.rows("select moment, outcome from oom")] == [
        ("oom", "recovered"),
        ("oom:2", "fatal"),
    ]


def test_twins_are_live_and_of_the_same_rounded_bytes(given: Given) -> None:
    warehouse = given(
        device=[rows.device(5)],
        trace_event=rows.events(
            "alloc 0x1000 1000", "alloc 0x2000 1024", "alloc 0x3000 1500", "alloc 0x4000 1000", "oom - 1024"
        ),
        placement=rows.placements(
            "0x1000 1000 1024 0 - -", "0x2000 1024 1024 1 - -", "0x3000 1500 1536 2 - -", "0x4000 1000 1024 3 4 4"
        ),
        replay=[{"device": 0}],
    )
    found = warehouse.rows("select allocation_id from twin_at(0, 4, 1024)")
    assert [row["allocation_id"] for row in found] == [0, 1]


def test_what_is_said(given: Given) -> None:
    (row,) = oom.as_json(recording(given, f"alloc 0x90000000 {4 * MIB} 1"), 0, 1)
    told = oom.sentences(row)
    assert told[0] == (
        "out of memory at event 2, data: 16.0 MiB (16,777,216 bytes) requested by run_conv_plan: recovered,"
        " it then got 4.0 MiB (4,194,304 bytes)"
    ).replace(", data", f", {row['phase']}" if row["phase"] else "").replace("run_conv_plan", row["requested_by"])
    assert told[3].startswith("full or fragmented, the file cannot tell: live and asked together are 28.0 MiB")
    assert told[-1] == "no live block has its bytes; it is 57.1 % of what would have been live"


def test_a_recording_without_a_failure_is_not_asked(given: Given) -> None:
    assert oom.as_json(given(device=[rows.device(0)]), 0, 0) == []


def test_a_recording_too_long_to_be_tried_unasked_says_so(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oom, "MOST_REPLAYED", 2)
    (row,) = oom.as_json(recording(given), 0, 1)
    assert row["settings"] is None
    assert oom.sentences(row)[-1] == (
        "no other settings were tried, as the recording has over 2 events;"
        f" to try: tracekit replay DATASET --suggest --limit {20 * MIB}"
    )
