"""The recorder's marks and rolls among the events: seated by counting, or said to be unknown; and what they witness."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queries import rows
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

EVENTS = (
    "segment_alloc 0x1000 2048",  # 0
    "alloc 0x1000 400",  # 1
    "alloc 0x1200 1024",  # 2
    "free_requested 0x1200 1024",  # 3
    "free_completed 0x1200 1024",  # 4
    "segment_map 0x9000 4096",  # 5
    "alloc 0x9000 4096",  # 6
)
PLACEMENTS = ("0x1000 400 512 1 - -", "0x1200 1024 1024 2 3 4", "0x9000 4096 4096 6 - -")


def recorded(given: Given, *marks: rows.Row, **tables: Any) -> Warehouse:
    defaults: dict[str, Any] = {
        "device": [{**rows.device(len(EVENTS)), "last_time_us": 1060}],
        "trace_event": rows.events(*EVENTS),
        "placement": rows.placements(*PLACEMENTS),
        "segment": [
            {"segment_id": 0, "device": 0, "address": 0x1000, "total_size_bytes": 2048},
            {"segment_id": 1, "device": 0, "address": 0x9000, "total_size_bytes": 4096},
        ],
        "mark": list(marks),
    }
    return given(**defaults | tables)


def seats(warehouse: Warehouse) -> list[int | None]:
    return [row["event_ix"] for row in warehouse.rows("from mark_seat order by mark_ix")]


def test_a_mark_lies_after_as_many_events_as_torch_had_counted(given: Given) -> None:
    """begin ─ alloc ─ load ─ alloc ─ free ─ done, counted from where begin stood."""
    warehouse = recorded(
        given,
        rows.mark(0, "begin", 70, 60),
        rows.mark(1, "load", 71, 60),
        rows.mark(2, "forward", 72, 60),
        rows.mark(3, "backward", 72, 61),
        rows.mark(4, "end", 73, 61),
    )
    # where nothing else was counted, the last event before the next allocation or free
    assert seats(warehouse) == [0, 1, 2, 5, 6]


@pytest.mark.parametrize(
    ("more", "event_ix"),
    [
        ({}, 5),
        ({"completed_count": 1}, 5),
        ({"completed_count": 0}, 3),  # the block waits for another stream
        ({"segment_alloc_count": 1}, 5),
        ({"device_alloc_count": 1}, 4),  # the pages are not mapped yet
        ({"device_alloc_count": 2}, 5),
        ({"device_alloc_count": 0}, 3),  # a counter that cannot be right does not move it beyond what was counted
    ],
)
def test_other_counters_say_where_between_two_allocations(given: Given, more: dict[str, int], event_ix: int) -> None:
    (_, found) = seats(recorded(given, rows.mark(0, "begin"), rows.mark(1, "backward", 2, 1, **more)))
    assert found == event_ix


def test_begin_is_before_the_first_event_where_segments_are_counted(given: Given) -> None:
    assert seats(recorded(given, rows.mark(0, "begin", segment_alloc_count=0))) == [-1]


def test_a_device_that_was_not_in_use_at_the_beginning_counts_from_zero(given: Given) -> None:
    warehouse = recorded(
        given,
        rows.mark(0, "begin", 5, 5),
        {**rows.mark(1, "1.end", 1, 0), "device": 1},
        device=[rows.device(len(EVENTS)), rows.device(2, ordinal=1)],
        trace_event=[*rows.events(*EVENTS), *rows.events("segment_alloc 0x1 9", "alloc 0x1 9", ordinal=1)],
    )
    assert seats(warehouse) == [0, 1]


DUMP = {"dump_ix": 0, "device": 0, "file": "a", "event_count": len(EVENTS), "is_ring_full": False, "is_snapshot": True}


@pytest.mark.parametrize(
    ("marks", "tables", "problem"),
    [
        ([rows.mark(0, "load", 1, 0)], {}, "no mark says what had been counted when the recording began"),
        (
            [rows.mark(0, "begin", 1, 0)],
            {"dump": [{**DUMP, "is_ring_full": True}]},
            "the ring lost the beginning of the recording, and no mark stands at its end to count back from",
        ),
        (
            [rows.mark(0, "begin", 1, 0)],
            {"dump": [{**DUMP, "event_count": 99}]},
            "the snapshot is not the dump that the recorder names",
        ),
        ([rows.mark(0, "begin"), rows.mark(1, "end", 9, 1)], {}, "it counts more than the recording has events"),
        ([rows.mark(0, "begin", 5, 5), rows.mark(1, "end", 4, 5)], {}, "it counts more than the recording has events"),
        ([rows.mark(0, "begin"), rows.mark(1, "odd", 3, 0)], {}, "its counts belong to no event"),
        ([rows.mark(0, "begin")], {"device": [rows.device(0)]}, "the recording has no events of its device"),
        ([{**rows.mark(0, "begin"), "device": 3}], {}, "the recording has no events of its device"),
    ],
)
def test_what_cannot_be_known_is_said(
    given: Given, marks: list[rows.Row], tables: dict[str, Any], problem: str
) -> None:
    row = recorded(given, *marks, **tables).rows("from mark_seat order by mark_ix")[-1]
    assert (row["event_ix"], row["problem"]) == (None, problem)


SEGMENTS = [
    {"segment_id": 0, "device": 0, "address": 0x1000, "total_size_bytes": 2048, "allocated_size_bytes": 512},
    {"segment_id": 1, "device": 0, "address": 0x9000, "total_size_bytes": 4096, "allocated_size_bytes": 4096},
]
AT_END = {"allocated_bytes": 4608, "reserved_bytes": 6144}


def test_where_the_ring_lost_the_beginning_marks_are_counted_back_from_the_end(given: Given) -> None:
    """begin ─ old ┄ lost ┄ edge ─ load ─ ... ─ end, where end read the bytes that the segments hold."""
    warehouse = recorded(
        given,
        rows.mark(0, "begin"),
        rows.mark(1, "old", 900, 898),
        rows.mark(2, "edge", 900, 900),
        rows.mark(3, "load", 902, 900),
        rows.mark(4, "end", 903, 901, **AT_END),
        dump=[{**DUMP, "is_ring_full": True}],
        segment=SEGMENTS,
    )
    assert seats(warehouse) == [None, None, 0, 2, 6]
    problems = [row["problem"] for row in warehouse.rows("from mark_seat order by mark_ix")]
    assert problems == ["the ring lost the events that it lies among"] * 2 + [None] * 3


@pytest.mark.parametrize("more", [{"allocated_bytes": 4096}, {"reserved_bytes": 2048}])
def test_nothing_is_counted_back_from_a_mark_that_is_not_at_the_end(given: Given, more: dict[str, int]) -> None:
    end = rows.mark(0, "end", 903, 901, **AT_END | more)
    assert seats(recorded(given, end, dump=[{**DUMP, "is_ring_full": True}], segment=SEGMENTS)) == [None]


def test_a_mark_after_the_dump_is_not_its_end(given: Given) -> None:
    marks = [rows.mark(0, "end", 903, 901, time_us=5, **AT_END), rows.mark(1, "later", 909, 907, time_us=9, **AT_END)]
    dump = {**DUMP, "is_ring_full": True, "time_us": 7}
    assert seats(recorded(given, *marks, dump=[dump], segment=SEGMENTS)) == [6, None]


def test_a_peak_whose_reset_the_ring_lost_is_not_compared(given: Given) -> None:
    end = rows.mark(0, "end", 903, 901, **AT_END, peak_allocated_bytes=9999, peak_reserved_bytes=9999)
    for since_us, faults in ((None, 0), (999, 0), (1055, 2)):
        marks = [{**end, "peak_since_us": since_us}]
        warehouse = recorded(given, *marks, dump=[{**DUMP, "is_ring_full": True}], segment=SEGMENTS)
        assert len(warehouse.rows("from check_marks where counter like 'peak%'")) == faults


def test_another_dump_of_the_run_is_not_the_snapshot(given: Given) -> None:
    other = {**DUMP, "dump_ix": 1, "is_ring_full": True, "is_snapshot": False}
    assert seats(recorded(given, rows.mark(0, "begin", 1, 0), dump=[DUMP, other])) == [0]


WITNESS = {
    "allocated_bytes": 512,
    "active_bytes": 512,
    "requested_bytes": 400,
    "reserved_bytes": 2048,
    "peak_allocated_bytes": 1536,
    "peak_reserved_bytes": 2048,
    "device_alloc_count": 1,
}


def witnessed(given: Given, **more: Any) -> list[str]:
    warehouse = recorded(
        given,
        rows.mark(0, "begin", peak_allocated_bytes=0, peak_reserved_bytes=0, device_alloc_count=0),
        rows.mark(1, "backward", 2, 1, **(WITNESS | more)),
    )
    return [row["counter"] for row in warehouse.rows("from check_marks order by mark_ix, counter")]


def test_an_account_that_is_torchs_own_has_no_row(given: Given) -> None:
    assert witnessed(given) == []


@pytest.mark.parametrize("counter", [name for name in WITNESS if name.endswith("_bytes")])
def test_check_marks_names_each_counter_that_is_not_reached(given: Given, counter: str) -> None:
    assert witnessed(given, **{counter: WITNESS[counter] + 512}) == [counter]


def test_what_a_reading_does_not_say_is_not_missed(given: Given) -> None:
    assert witnessed(given, active_bytes=None, requested_bytes=None) == []


def test_peaks_count_from_where_they_were_reset(given: Given) -> None:
    """Events 0 to 6 are at 1000, 1010 ...; reset after event 4, the larger block is forgotten."""
    assert witnessed(given, peak_since_us=1045) == ["peak_allocated_bytes"]
    assert witnessed(given, peak_since_us=1045, peak_allocated_bytes=512) == []


def test_a_peak_that_was_never_reset_may_be_older_than_the_recording(given: Given) -> None:
    warehouse = recorded(
        given,
        rows.mark(0, "begin", peak_allocated_bytes=9999, peak_reserved_bytes=2048, device_alloc_count=0),
        rows.mark(1, "backward", 2, 1, **(WITNESS | {"peak_allocated_bytes": 9999})),
    )
    assert warehouse.rows("from check_marks") == []


def test_check_marks_says_what_torch_counted(given: Given) -> None:
    warehouse = recorded(
        given, rows.mark(0, "begin"), rows.mark(1, "backward", 2, 1, **WITNESS | {"allocated_bytes": 700})
    )
    assert [row["fault"] for row in warehouse.rows("from check_marks")] == [
        "at the mark backward torch counted 700 in allocated_bytes, the account has 512"
    ]


def roll(given: Given, *tensors: rows.Row, **tables: Any) -> list[tuple[Any, ...]]:
    marks = tables.pop("mark", [rows.mark(0, "begin")])
    found = recorded(given, *marks, tensor=list(tensors), **tables).rows("from allocation_tensor")
    return [(row["allocation_id"], row["role"], row["name"], row["seat_evidence"]) for row in found]


def test_an_address_is_that_of_the_newest_allocation_counted_by_then(given: Given) -> None:
    """The same address twice: the second allocation is another tensor."""
    placements = rows.placements("0x1000 512 512 1 2 3", "0x1000 512 512 4 - -")
    lines = ["snapshot - 0", "alloc 0x1000 512", "free_requested 0x1000 512", "free_completed 0x1000 512"]
    tables = {
        "placement": placements,
        "trace_event": rows.events(*lines, "alloc 0x1000 512"),
        "device": [rows.device(5)],
    }
    early, late = (rows.tensor(0x1000, 512, "gradient", name, count) for name, count in (("a", 1), ("b", 2)))
    assert roll(given, early, **tables) == [(0, "gradient", "a", "count")]
    assert roll(given, late, **tables) == [(1, "gradient", "b", "count")]


def test_a_tensor_may_begin_inside_its_allocation_and_share_it(given: Given) -> None:
    first = rows.tensor(0x1000, 200, "parameter", "a.weight", 2)
    second = rows.tensor(0x1000 + 256, 100, "parameter", "a.bias", 2)
    warehouse = recorded(given, rows.mark(0, "begin"), tensor=[first, second])
    (row,) = warehouse.rows("select name, module, tensor_count from allocation_tensor")
    assert row == {"name": "a.weight", "module": "a", "tensor_count": 2}


def test_an_address_that_no_allocation_had_then_names_nothing(given: Given) -> None:
    assert roll(given, rows.tensor(0x9000, 4096, "gradient", "a", 2)) == []  # it comes with the third allocation
    assert roll(given, rows.tensor(0x9000, 4096, "gradient", "a", 3)) == [(2, "gradient", "a", "count")]
    assert roll(given, rows.tensor(0x9000, 4096, "gradient", "a", 9)) == []
    assert roll(given, rows.tensor(0x5000, 16, "gradient", "a", 3)) == []


def test_one_storage_in_two_roles_is_the_parameters(given: Given) -> None:
    tensors = [rows.tensor(0x1000, 400, role, "a.weight", 3) for role in ("gradient", "parameter")]
    assert roll(given, *tensors) == [(0, "parameter", "a.weight", "count")]


def test_where_counting_is_impossible_the_clock_tells_and_the_bytes_must_agree(given: Given) -> None:
    lost = {"dump": [{**DUMP, "is_ring_full": True, "time_us": 2000}]}
    right = rows.tensor(0x1000, 400, "parameter", "a.weight", 1234, time_us=1015)
    assert roll(given, right, **lost) == [(0, "parameter", "a.weight", "time")]
    assert roll(given, {**right, "storage_bytes": 404}, **lost) == []
    assert roll(given, {**right, "time_us": 900}, **lost) == []  # before the first event that is left
    assert roll(given, {**right, "time_us": 3000}, **lost) == []  # after the dump


@pytest.mark.parametrize(
    ("role", "name", "module"),
    [
        ("parameter", "h.0.attn.weight", "h.0.attn"),
        ("gradient", "h.0.attn.weight", "h.0.attn"),
        ("optimizer_state", "h.0.attn.weight.exp_avg", "h.0.attn"),
        ("parameter", "weight", None),
        ("optimizer_state", "weight.exp_avg", None),
        ("parameter", "group0.3", None),
        ("optimizer_state", "unknown.exp_avg", None),
    ],
)
def test_a_tensor_belongs_to_the_module_in_its_name(given: Given, role: str, name: str, module: str | None) -> None:
    warehouse = recorded(given, rows.mark(0, "begin"), tensor=[rows.tensor(0x1000, 400, role, name, 1)])
    assert [row["module"] for row in warehouse.rows("from allocation_tensor")] == [module]
    told = warehouse.rows("select module, module_evidence from allocation_module")
    assert told == ([] if module is None else [{"module": module, "module_evidence": "roll"}])


def test_an_op_is_told_by_its_number_on_the_event_or_by_the_clock(given: Given) -> None:
    """The first allocation carries the call's number, the third none: at its end the call's output had its address."""
    events = rows.events(*EVENTS)
    events[1]["user_metadata"] = '["forward", "h.0", 7]'
    events[2]["user_metadata"] = "[null, null, 7]"
    placements = rows.placements(*PLACEMENTS)
    placements[0]["birth_us"], placements[2]["birth_us"] = 1010, 1060
    call = {"device": 0, "dtype": "float32", "input_shapes": "[]", "begin_us": 1005}
    ops = [
        {**call, "op_row_ix": 0, "op_ix": 7, "operator": "aten.mm.default", "address": 0x1000, "storage_bytes": 400}
        | {"shape": "[10, 10]", "output_ix": 0, "end_us": 1012},
        {**call, "op_row_ix": 1, "op_ix": 8, "operator": "aten.add.Tensor", "address": 0x9000, "storage_bytes": 4096}
        | {"shape": "[1024]", "output_ix": 0, "end_us": 1070},
        {**call, "op_row_ix": 2, "op_ix": 9, "operator": "aten.mul.Tensor", "address": 0x9000, "storage_bytes": 64}
        | {"shape": "[16]", "output_ix": 0, "end_us": 1080},  # other bytes: not this allocation
    ]
    warehouse = recorded(given, trace_event=events, placement=placements, op=ops)
    found = warehouse.rows("select allocation_id, operator_name, shape, op_evidence from allocation_op")
    assert [tuple(row.values()) for row in found] == [
        (0, "mm", "[10, 10]", "user_metadata"),
        (1, "mm", None, "user_metadata"),  # made by the call, and not its output
        (2, "add_Tensor", "[1024]", "time"),
    ]


def test_marks_stand_at_the_end_of_phases(given: Given) -> None:
    """A mark of no phase's name (2.check) ends a stretch of which nothing is known."""
    names = {1: "load_model", 2: "1.forward", 3: "1.check", 4: "1.backward"}
    marks = [rows.mark(0, "begin"), *(rows.mark(ix, name, ix, 0) for ix, name in names.items())]
    for one in marks[2:]:
        one["step"] = 1
    events = [f"alloc {0x1000 * (index + 1):#x} 512" for index in range(6)]
    warehouse = given(device=[rows.device(6)], trace_event=rows.events(*events), mark=marks)
    found = warehouse.rows("select begin_event_ix, phase, phase_evidence, step, step_evidence from span order by 1")
    assert [tuple(row.values()) for row in found] == [
        (0, "load", "mark", None, None),
        (1, "forward", "mark", 1, "mark"),
        (2, None, None, 1, "mark"),
        (3, "backward", "mark", 1, "mark"),
        (4, None, None, None, None),
    ]
