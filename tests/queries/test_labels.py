"""Labels of frames, stacks, events and layers: given rows, expected rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.queries import rows
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

EMPTY = "at::detail::empty_cuda(c10::ArrayRef<long>)"
MAIN = "/train.py:5 main"
CALL = "torch/nn/modules/module.py:1779 _call_impl"
ENGINE = "torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)"


@pytest.mark.parametrize(
    ("file", "origin"),
    [
        ("/home/someone/train.py", "user"),
        (r"C:\Users\someone\project\train.py", "user"),
        ("train.py", "user"),
        ("/opt/env/lib/python3.12/site-packages/torch/nn/functional.py", "torch"),
        (r"C:\env\Lib\site-packages\torch\nn\functional.py", "torch"),
        ("/usr/lib/python3/dist-packages/transformers/trainer.py", "library"),
        ("/usr/lib/python3.12/contextlib.py", "standard_library"),
        (r"C:\Program Files\Python312\Lib\contextlib.py", "standard_library"),
        ("/var/torchinductor_me/kb/ckbf.py", "generated"),
        ("<eval_with_key>.3", "generated"),
        ("<string>", "generated"),
        ("<frozen importlib._bootstrap>", "standard_library"),
        ("<stdin>", "user"),
        ("<ipython-input-3-0123456789ab>", "user"),
    ],
)
def test_a_frame_is_the_users_own_or_says_whose_it_is(given: Given, file: str, origin: str) -> None:
    warehouse = given(frame=[{"frame_id": 0, "name": "f", "filename": file, "line": 3}])
    assert warehouse.rows("select origin from frame_label") == [{"origin": origin}]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        (
            [EMPTY, "at::_ops::addmm::call(long)", CALL, "/home/me/model.py:7 forward"],
            {"operator": "addmm", "user_frame": "/home/me/model.py:7 forward", "phase": "forward"},
        ),
        (
            [EMPTY, "at::_ops::mm::call(long)", "torch::autograd::generated::MmBackward0::apply(x)", ENGINE],
            {"autograd_node": "MmBackward0", "requested_by": "MmBackward0", "phase": "backward", "user_frame": None},
        ),
        (
            ["torch::autograd::PyNode::apply(x)", ENGINE],
            {"autograd_node": "PyNode", "phase": "backward"},
        ),
        (
            [EMPTY, CALL, "site-packages/torch/utils/checkpoint.py:1100 recompute_fn", ENGINE],
            {"is_recomputed": True, "phase": "backward"},
        ),
        ([EMPTY, CALL], {"is_recomputed": False, "library": None}),
        (["at::cuda::getNewWorkspace()", CALL], {"library": "cublas"}),
        (["at::cuda::getCUDABlasLtWorkspace()", CALL], {"library": "cublaslt"}),
        (["at::native::run_conv_plan(cudnnContext*)", CALL], {"library": "cudnn"}),
        ([EMPTY, "c10d::ProcessGroupNCCL::allgather(x)"], {"library": "nccl"}),
        ([EMPTY, "site-packages/triton/testing.py:1 do_bench"], {"library": "triton"}),
        ([EMPTY, "/var/torchinductor_me/kb/ckbf.py:12 call"], {"library": "inductor"}),
        ([EMPTY, "site-packages/torch/optim/adam.py:240 step"], {"phase": "optimizer"}),
        ([EMPTY, "site-packages/torch/optim/optimizer.py:1000 zero_grad"], {"phase": "zero_grad"}),
        ([EMPTY, "site-packages/torch/optim/sgd.py:240 step"], {"phase": "optimizer"}),
        ([EMPTY, "site-packages/torch/optim/sparse_adam.py:40 step"], {"phase": "optimizer"}),
        (
            [EMPTY, "lib/python3.11/copy.py:153 deepcopy", "site-packages/torch/optim/swa_utils.py:240 __init__", MAIN],
            {"phase": "unplaced", "roles": ["deepcopy", "tensor"]},
        ),
    ],
)  # fmt: skip
def test_a_stack_tells_who_asked_and_when(given: Given, stack: list[str], expected: dict[str, Any]) -> None:
    (row,) = given(**rows.stacks(stack)).rows("from stack_label")
    assert {name: row[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('["forward", "transformer.h.0"]', ("forward", "transformer.h.0", None, None)),
        ('["backward", "lm_head", 17]', ("backward", "lm_head", 17, None)),
        ("[null, null, 3]", (None, None, 3, None)),
        ("[not json", (None, None, None, None)),
        ("step=2", (None, None, None, 2)),
        ("anything else", (None, None, None, None)),
    ],
)
def test_what_the_program_wrote_on_events_is_read(given: Given, text: str, expected: tuple[Any, ...]) -> None:
    events = rows.events("alloc 0x1000 512")
    events[0]["user_metadata"] = text
    (row,) = given(device=[rows.device(1)], trace_event=events).rows("from event_mark")
    assert (row["pass"], row["module"], row["op_ix"], row["step"]) == expected


def test_an_allocation_is_made_in_the_module_that_its_event_or_the_innermost_range_names(given: Given) -> None:
    """Event 1 says its module itself; 0 and 2 lie in ranges: net from 0, net.fc from 2."""
    events = rows.events("alloc 0x1000 512", "alloc 0x2000 512", "alloc 0x3000 512", "alloc 0x4000 512")
    events[1]["user_metadata"] = '["backward", "net.head"]'
    warehouse = given(
        device=[rows.device(4)],
        trace_event=events,
        placement=rows.placements(
            "0x1000 512 512 0 - -", "0x2000 512 512 1 - -", "0x3000 512 512 2 - -", "0x4000 512 512 3 - -"
        ),
        annotation=rows.marks(
            "1000 START module:net", "1015 START module:net.fc", "1025 END module:net.fc", "1025 END module:net"
        ),
    )
    found = warehouse.rows("select allocation_id, module, pass, module_evidence from allocation_module order by 1")
    assert [tuple(row.values()) for row in found] == [
        (0, "net", "forward", "annotation"),
        (1, "net.head", "backward", "user_metadata"),
        (2, "net.fc", "forward", "annotation"),
    ]


def test_equal_stacks_of_a_pass_are_layers_in_order_and_backward_counts_down(given: Given) -> None:
    """Two layers. Stack 0 once a layer, stack 1 twice; stack 2 is the head, seen once; stack 3 is backward's.

    event    0  1  2  3  4  5  6  7  8
    stack    0  1  1  0  1  1  2  3  3
    layer    0  0  0  1  1  1  -  1  0
    """
    stacks = [0, 1, 1, 0, 1, 1, 2, 3, 3]
    lines = [f"alloc {0x1000 * (index + 1):#x} 512 {stack}" for index, stack in enumerate(stacks)]
    warehouse = given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements(
            *[f"{0x1000 * (index + 1):#x} 512 512 {index} - - {stack}" for index, stack in enumerate(stacks)]
        ),
        annotation=rows.marks(
            "1000 START forward", "1070 END forward", "1070 START backward", "1095 END backward"
        ),
        **rows.stacks([EMPTY, CALL], [EMPTY, EMPTY, CALL], [CALL], [EMPTY, ENGINE]),
    )  # fmt: skip
    found = warehouse.rows("select allocation_id, layer_ix, layer_count from allocation_layer order by 1")
    assert [tuple(row.values()) for row in found] == [
        (0, 0, 2), (1, 0, 2), (2, 0, 2), (3, 1, 2), (4, 1, 2), (5, 1, 2), (7, 1, 2), (8, 0, 2),
    ]  # fmt: skip


def test_a_step_that_the_program_wrote_on_its_events_holds_until_another_comes(given: Given) -> None:
    """step=2 is set before the second step, by the main thread only; what came before it is counted.

    event   0 forward   1 backward   2 optimizer   3 forward (step=2)   4 backward   5 optimizer   6 forward (step=7)
    """
    phases = [
        ["at::_ops::mm::call(x)", "torch/nn/modules/module.py:1 _call_impl"],
        ["torch::autograd::Engine::evaluate_function(x)"],
        ["torch/optim/adam.py:1 step"],
    ]
    events = rows.events(*(f"alloc {0x1000 * (index + 1):#x} 512 {index % 3}" for index in range(7)))
    events[3]["user_metadata"], events[5]["user_metadata"], events[6]["user_metadata"] = "step=2", "step=2", "step=7"
    warehouse = given(device=[rows.device(7)], trace_event=events, **rows.stacks(*phases))
    found = warehouse.rows("select begin_event_ix, step, step_evidence from span order by begin_event_ix")
    assert [tuple(row.values()) for row in found] == [
        (0, 1, "stack"),
        (1, 1, "stack"),
        (2, 1, "stack"),
        (3, 2, "user_metadata"),
        (4, 2, "user_metadata"),
        (5, 2, "user_metadata"),
        (6, 7, "user_metadata"),
    ]
    named = given(
        device=[rows.device(7)],
        trace_event=events,
        annotation=rows.marks("1000 START step 4", "1065 END step 4"),
        **rows.stacks(*phases),
    )
    assert named.rows("select distinct step, step_evidence from span where step is not null") == [
        {"step": 4, "step_evidence": "annotation"}
    ]


@pytest.mark.parametrize(("has_backward", "phase"), [(True, "data"), (False, "other")])
def test_the_programs_own_calls_are_data_only_in_a_recording_that_trains(
    given: Given, has_backward: bool, phase: str
) -> None:
    """A call outside of any module, then a forward, and perhaps a backward."""
    stacks = [
        ["/home/someone/train.py:10 main"],
        ["at::_ops::mm::call(x)", "torch/nn/modules/module.py:1 _call_impl"],
        ["torch::autograd::Engine::evaluate_function(x)"],
    ]
    lines = [f"alloc {0x1000 * (index + 1):#x} 512 {index}" for index in range(3 if has_backward else 2)]
    warehouse = given(device=[rows.device(len(lines))], trace_event=rows.events(*lines), **rows.stacks(*stacks))
    assert warehouse.rows("from span order by begin_event_ix")[0]["phase"] == phase
