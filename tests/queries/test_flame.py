"""The tree of stacks: given stacks and sizes, where each frame stands and how wide it is."""

from __future__ import annotations

from collections.abc import Callable

from tests.queries import rows
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]


def test_frames_are_as_wide_as_their_bytes_and_the_largest_stands_first(given: Given) -> None:
    """main calls small (100 and 50 bytes, of one operator) and big (400); what has no stack stands apart."""
    main, big, small = "/x/train.py:1 main", "/x/train.py:2 big", "/x/train.py:3 small"
    call, asks = "/y/site-packages/torch/nn/modules/module.py:9 _call_impl", "at::_ops::addmm::call(at::Tensor const&)"
    warehouse = given(
        device=[rows.device(5)],
        trace_event=rows.events(
            "alloc 0x1000 100 0", "alloc 0x2000 400 1", "alloc 0x3000 50 0", "alloc 0x4000 7", "alloc 0x5000 9 0"
        ),
        placement=rows.placements(
            "0x1000 100 512 0 - - 0",
            "0x2000 400 512 1 - - 1",
            "0x3000 50 512 2 - - 0",
            "0x4000 7 512 3 - -",
            "0x5000 9 512 4 - - 0",  # after the moment
        ),
        **rows.stacks([asks, small, call, main], [big, call, main]),
    )
    found = warehouse.rows("from flame_at(0, 3)")
    assert [
        (row["depth_ix"], row["label"], row["origin"], row["from_bytes"], row["to_bytes"], row["allocation_count"])
        for row in found
    ] == [
        (0, "all that is held", "none", 0, 557, 4),
        (1, "train.py:1 main", "user", 0, 550, 3),
        (1, "no stack recorded", "none", 550, 557, 1),
        (2, "train.py:2 big", "user", 0, 400, 1),
        (2, "train.py:3 small", "user", 400, 550, 2),
        (3, "addmm", "operator", 400, 550, 2),
    ]


def test_a_long_or_hostile_name_is_cut_and_cleaned(given: Given) -> None:
    name = "\0<script>" + "x" * 1_000_000
    warehouse = given(
        device=[rows.device(1)],
        trace_event=rows.events("alloc 0x1000 100 0"),
        placement=rows.placements("0x1000 100 512 0 - - 0"),
        stack=[{"stack_id": 0, "depth_count": 1}],
        stack_frame=[{"stack_id": 0, "depth_ix": 0, "frame_id": 0}],
        frame=[{"frame_id": 0, "name": name, "filename": "/x/a.py", "line": 1}],
    )
    frames = [row["frame"] for row in warehouse.rows("from flame_at(0, 0)")]
    assert max(len(frame) for frame in frames) <= 120
    (shown,) = warehouse.rows("from stack_shown")
    assert len(shown["user_frame"]) <= 80
    assert "\0" not in shown["requested_by"] + "".join(frames)
