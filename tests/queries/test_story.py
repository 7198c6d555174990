"""One allocation's story: where its slack comes from, who freed it, and what shared its segment.

segment 0x1000   |a 512|  free  |b 1024 (300 asked) |c 512|
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries import rows
from tracekit import story
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

ENGINE = "torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)"
RELEASE = "torch::autograd::generated::AddmmBackward0::release_variables()"
ADD = "torch::autograd::InputBuffer::add(unsigned long)"


def one(given: Given, placement: str, **tables: rows.Rows) -> rows.Row:
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events("alloc 0x1000 1", "free_requested 0x1000 1", "free_completed 0x1000 1"),
        placement=rows.placements(placement),
        replay=[{"device": 0}],
        **tables,
    )
    return story.find(warehouse, "0")


@pytest.mark.parametrize(
    ("placement", "rounding", "unsplit", "told"),
    [
        ("0x1000 512 512 0 - -", 0, 0, "no slack"),
        ("0x1000 300 512 0 - -", 212, 0, "212 bytes of slack, 212 by rounding up to 512"),
        (
            "0x1000 300 1024 0 - -",
            212,
            512,
            "212 by rounding up to 512 and 512 left on the block because it was too little to split off",
        ),
        ("0x1000 512 1024 - - -", 0, 512, "512 bytes of slack, 512 of a block handed out before the recording began"),
    ],
)
def test_slack_is_rounding_or_what_was_left_unsplit(
    given: Given, placement: str, rounding: int, unsplit: int, told: str
) -> None:
    row = one(given, placement)
    assert (row["rounding_bytes"], row["unsplit_bytes"]) == (rounding, unsplit)
    assert row["slack_bytes"] == rounding + unsplit
    assert any(line.endswith(told) for line in story.sentences(row))


@pytest.mark.parametrize(("value", "expected"), [('{"256":0,"512":0}', False), ('{"256":0,"512":4}', True)])
def test_slack_may_be_rounding_where_a_setting_rounds_further(given: Given, value: str, expected: bool) -> None:
    settings: rows.Rows = [{"key": "roundup_power2_divisions", "value": value}]
    row = one(given, "0x1000 300 1024 0 - -", allocator_setting=settings)
    assert row["is_rounded_further"] is expected


@pytest.mark.parametrize(
    ("free_stack", "freed_by"),
    [
        ([RELEASE, ENGINE], "AddmmBackward0"),
        ([ADD, ENGINE], "InputBuffer::add"),
        ([ENGINE], "the autograd engine"),
        (["/home/me/train.py:9 main"], "/home/me/train.py:9 main"),
    ],
)
def test_who_freed_it(given: Given, free_stack: list[str], freed_by: str) -> None:
    row = one(given, "0x1000 512 512 0 1 2 0 1", **rows.stacks(["at::_ops::mm::call(x)"], free_stack))
    assert row["freed_by"] == freed_by


def test_a_free_that_carries_its_allocations_stack_names_nobody(given: Given) -> None:
    row = one(given, "0x1000 512 512 0 1 2 0 0", **rows.stacks(["/home/me/train.py:9 main"]))
    assert row["freed_by"] is None


def test_what_shared_the_segment_stands_with_its_distance(given: Given) -> None:
    lines = ["0x1000 512 512 0 - -", "0x1800 300 1024 2 - -", "0x1c00 512 512 1 - -", "0x1400 512 512 0 1 2"]
    placements = rows.placements(*lines, "0x9000 512 512 0 - -")
    for row in placements:
        row["segment_address"] = 0x9000 if row["address"] == 0x9000 else 0x1000
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events("alloc 0x1000 512", "alloc 0x1c00 512", "alloc 0x1800 300"),
        placement=placements,
        replay=[{"device": 0}],
    )
    found = story.sharers(warehouse, story.find(warehouse, "1"))
    assert [(row["allocation_id"], row["distance_bytes"], row["is_adjacent"]) for row in found] == [
        (0, -2048, False),
        (2, 1024, True),
    ]
    told = story.sharer_sentences(found)
    assert told[0].startswith("shared its segment with 2 allocations")
    assert told[1].startswith("  before it, with free bytes between: allocation 0")
    assert told[2].startswith("  behind it, touching it: allocation 2")
    assert story.sharer_sentences([]) == ["nothing else lay in its segment when it was born"]
