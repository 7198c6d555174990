"""What is held from step to step: given rows, expected verdicts.

Steps are marked, ten events each; the moments that compare are the beginnings of steps 2 to 6.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.queries import rows
from tracekit import growth
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]


def recording(
    given: Given, lives: list[tuple[int, int | None]], steps: int = 6, *, has_stack: bool = True
) -> Warehouse:
    """Allocations of one stack as (step of birth, step in which it is freed, None for never), each 400 bytes in 512."""
    lines = ["snapshot - 0"] * (10 * steps)
    placements: list[str] = []
    stack = "0" if has_stack else "-"
    for index, (born, freed) in enumerate(lives):
        address = f"{0x1000 * (index + 1):#x}"
        birth = 10 * (born - 1) + index % 4 + 1
        lines[birth] = f"alloc {address} 400"
        drop = None if freed is None else 10 * (freed - 1) + index % 4 + 5
        if drop is not None:
            lines[drop] = f"free_requested {address} 400"
        gone = "- -" if drop is None else f"{drop} {drop}"
        placements.append(f"{address} 400 512 {birth} {gone} {stack} {stack}")
    marks = [
        mark
        for step in range(1, steps + 1)
        for mark in (f"{1000 + 100 * (step - 1)} START step {step}", f"{1095 + 100 * (step - 1)} END step {step}")
    ]
    return given(
        device=[rows.device(10 * steps)],
        trace_event=rows.events(*lines),
        placement=rows.placements(*placements),
        replay=[{"device": 0}],
        annotation=rows.marks(*marks),
        **rows.stacks(["/home/me/train.py:9 main"]),
    )


@pytest.mark.parametrize(
    ("lives", "verdict", "growth_bytes", "last_bytes"),
    [
        ([(1, None)], "stays", 0, 512),
        ([(step, None) for step in range(1, 7)], "grows", 512, 2560),
        ([(1, None), (3, None), (5, None)], "grows", 256, 1536),  # every second step
        ([(1, None), (2, None)], "settles", 128, 1024),  # a warm-up of two steps
        ([(1, None), (1, 3)], "shrinks", -128, 512),
        ([(1, 4), (2, 4), (3, 4), (4, None), (5, None)], "bursts", 128, 1024),
        ([(1, 2), (2, 3), (3, 4), (4, 5), (5, 6)], "stays", 0, 512),  # the last step's loss, still held
        ([(1, 2), (3, 4), (5, None)], "varies", 0, 512),
    ],
)
def test_verdict(
    given: Given, lives: list[tuple[int, int | None]], verdict: str, growth_bytes: int, last_bytes: int
) -> None:
    (row,) = recording(given, lives).rows("from growth")
    assert (row["verdict"], row["growth_bytes"], row["last_bytes"]) == (verdict, growth_bytes, last_bytes)
    assert row["moment_count"] == 5
    assert row["user_frame"] == "/home/me/train.py:9 main"


def test_what_a_step_frees_itself_has_no_row(given: Given) -> None:
    assert recording(given, [(step, step) for step in range(1, 7)]).table("growth").num_rows == 0


def test_without_stacks_allocations_of_one_size_go_together(given: Given) -> None:
    (row,) = recording(given, [(step, None) for step in range(1, 7)], has_stack=False).rows("from growth")
    assert (row["verdict"], row["stack_id"], row["size_bytes"]) == ("grows", None, 400)


def test_the_sums_are_the_live_bytes_at_each_beginning(sample: Warehouse) -> None:
    """Every byte alive before a step's first event is some stack's."""
    found = sample.rows(
        "select step_begin.step, live_bytes.allocated_bytes, sum(held_at_step.held_bytes)::bigint as held_bytes"
        " from step_begin join live_bytes on live_bytes.device = step_begin.device"
        " and live_bytes.event_ix = step_begin.event_ix - 1"
        " join held_at_step on held_at_step.step = step_begin.step group by all"
    )
    assert [row["step"] for row in found] == [2]
    assert all(row["allocated_bytes"] == row["held_bytes"] for row in found)


@pytest.mark.parametrize("steps", [0, 1, 2, 3])
def test_with_fewer_than_three_beginnings_there_is_no_verdict(given: Given, steps: int) -> None:
    (told,) = growth.as_json(recording(given, [(1, None)] if steps else [], steps))
    assert (told["can_tell"], told["rows"]) == (False, [])
    (line,) = growth.sentences(told)
    assert line.startswith("device 0: the recording cannot tell: growth needs the beginnings of 3 steps")
    assert line.endswith(f" and it has {max(steps - 1, 0)}")


def test_what_is_said_of_growth(given: Given) -> None:
    (told,) = growth.as_json(recording(given, [(step, None) for step in range(1, 7)]))
    assert growth.sentences(told) == [
        "device 0: 5 moments compared, the beginnings of steps 2 to 6",
        "grows: 1 stack, 0.0 MiB (2,560 bytes) at the last of them, 512 bytes more each step",
    ]
    (told,) = growth.as_json(recording(given, [(1, None)]))
    assert growth.sentences(told)[-1] == "nothing grows from step to step"
