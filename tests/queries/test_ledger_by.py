"""The account by other columns than the bucket: given rows, expected rows.

event       0   1   2   3   4
a 400/512   ████████████████████   forward, stream 0
b 100/512       ████████████       forward, dropped at 4
c 300/512           ████████████   backward, stream 0
d 200/512   ████████████████████   older than the recording, no stack
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queries import rows
from tracekit import ledger
from tracekit.ledger import GROUPINGS, Moment
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

CALL = "torch/nn/modules/module.py:1779 _call_impl"
ENGINE = "torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)"
NODE = "torch::autograd::generated::MmBackward0::apply(x)"


@pytest.fixture
def small(given: Given) -> Warehouse:
    return given(
        device=[rows.device(5)],
        trace_event=rows.events(
            "alloc 0x1000 400 0",
            "alloc 0x1200 100 0",
            "alloc 0x1400 300 1",
            "snapshot - 0",
            "free_requested 0x1200 100",
        ),
        placement=rows.placements(
            "0x1600 200 512 - - -",
            "0x1000 400 512 0 - - 0",
            "0x1200 100 512 1 4 - 0",
            "0x1400 300 512 2 - - 1",
        ),
        replay=[{"device": 0}],
        **rows.stacks(["at::_ops::mm::call(x)", CALL, "/home/me/model.py:7 forward"], [NODE, ENGINE]),
    )


@pytest.mark.parametrize(
    ("by", "event_ix", "expected"),
    [
        ("phase", 3, [("forward", 500, 1024, 2), ("backward", 300, 512, 1), (None, 200, 512, 1)]),
        ("phase", 4, [("forward", 400, 512, 1), ("backward", 300, 512, 1), (None, 200, 512, 1)]),
        ("phase", -1, [(None, 200, 512, 1)]),
        ("node", 3, [(None, 700, 1536, 3), ("MmBackward0", 300, 512, 1)]),
        ("operator", 3, [("mm", 500, 1024, 2), (None, 500, 1024, 2)]),
        ("user_line", 3, [("/home/me/model.py:7 forward", 500, 1024, 2), (None, 500, 1024, 2)]),
        ("stack", 3, [("mm (stack 0)", 500, 1024, 2), ("MmBackward0 (stack 1)", 300, 512, 1), (None, 200, 512, 1)]),
        ("stream", 3, [("0", 1000, 2048, 4)]),
    ],
)
def test_lines_are_grouped_by_a_column(
    small: Warehouse, by: str, event_ix: int, expected: list[tuple[Any, ...]]
) -> None:
    found = small.rows(
        "select first_value, requested_bytes, held_bytes, allocation_count from ledger_by(0, ?, ?, null)",
        [event_ix, by],
    )
    assert [tuple(row.values()) for row in found] == expected


def test_two_columns_at_once_and_a_rest_that_keeps_the_sum(small: Warehouse) -> None:
    moment = Moment(0, "event:3", 3)
    assert ledger.lines_by(small, moment, ["phase", "user-line"], top=1) == [
        {
            "phase": "forward",
            "user_line": "/home/me/model.py:7 forward",
            "requested_bytes": 500,
            "held_bytes": 1024,
            "allocation_count": 2,
        },
        {
            "phase": "(2 more)",
            "user_line": None,
            "requested_bytes": 500,
            "held_bytes": 1024,
            "allocation_count": 2,
        },
    ]


@pytest.mark.parametrize("by", GROUPINGS)
def test_every_grouping_adds_up_to_the_account_by_bucket(small: Warehouse, by: str) -> None:
    moment = Moment(0, "event:3", 3)
    rows_by = ledger.lines_by(small, moment, [by])
    beside = ("block_slack", "pending_free", "cached")
    held = [line for line in ledger.lines(small, moment) if line["bucket"] not in beside]
    for count in ("requested_bytes", "held_bytes", "allocation_count"):
        assert sum(row[count] for row in rows_by) == sum(line[count] for line in held)


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        ("/home/me/torchinductor_me/ab/cab.py:9 call", 700),  # compiled with the model: nothing tells it apart
        ("torch/nn/functional.py:3494 cross_entropy", 0),  # not compiled: it has its own bucket
    ],
)
def test_bytes_in_which_compiled_code_may_hide_a_loss(given: Given, loss: str, expected: int) -> None:
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events("alloc 0x1000 400 0", "alloc 0x1200 300 1", "snapshot - 0"),
        placement=rows.placements("0x1000 400 512 0 - - 0", "0x1200 300 512 1 - - 1"),
        replay=[{"device": 0}],
        **rows.stacks(["/home/me/torchinductor_me/ab/cab.py:7 call", CALL], [loss, CALL]),
    )
    assert ledger.compiled_bytes(warehouse, Moment(0, "event:1", 1)) == expected
