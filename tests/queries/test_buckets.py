"""Each bucket rule: one allocation given, the rule that must win it expected.

One step, ten events a phase, marked by annotations:

    event  0     10    20       30        40         50         60
           load  data  forward  backward  optimizer  zero_grad
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.queries import rows
from tracekit import shipped, sqlfile
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

PHASES = ("load", "data", "forward", "backward", "optimizer", "zero_grad")
BEGIN = {phase: 10 * index for index, phase in enumerate(PHASES)}

ENGINE = "torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)"
NODE = "torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)"
CALL = "torch/nn/modules/module.py:1779 _call_impl"
EMPTY = "at::detail::empty_cuda(c10::ArrayRef<long>)"
USER = "/home/someone/train.py:10 main"
CONVERT = "torch/nn/modules/module.py:1370 convert"
PARAMETER_LINE = "torch/nn/modules/module.py:965 _apply"
BUFFER_LINE = "torch/nn/modules/module.py:1035 _apply"
RELEASE = "torch::autograd::generated::AddmmBackward0::release_variables()"


@dataclass(frozen=True)
class Case:
    """An allocation: its rule and bucket, its phases, its frames; `born` None is older than the recording."""

    rule: str
    bucket: str
    born: str | None
    dropped: str | None = None
    stack: tuple[str, ...] = (EMPTY, USER)
    free_stack: tuple[str, ...] = (USER, USER)
    size: int = 4096
    beside: tuple[str, ...] = ()


CASES = [
    Case(
        "library_workspace",
        "library_workspace",
        "forward",
        stack=("at::cuda::getNewWorkspace()", CALL),
        size=8519680,
    ),
    Case(
        "library_workspace",
        "library_workspace",
        "backward",
        stack=("at::cuda::getCUDABlasLtWorkspace()", NODE, ENGINE),
    ),
    Case(
        "library_workspace",
        "library_workspace",
        "forward",
        "forward",
        stack=("at::native::run_conv_plan(cudnnContext*)", CALL),
    ),
    Case("workspace_size", "library_workspace", "backward", stack=(), size=33554432),
    Case(
        "autotune",
        "autotune",
        "forward",
        "forward",
        stack=(EMPTY, "site-packages/triton/testing.py:100 do_bench"),
    ),
    Case(
        "communication",
        "communication",
        "backward",
        stack=(EMPTY, "c10d::Reducer::initialize_buckets(std::vector<int>)"),
    ),
    Case(
        "autocast_cast",
        "autocast_cast",
        "forward",
        "forward",
        stack=(EMPTY, "at::autocast::cached_cast(c10::ScalarType)", CALL),
    ),
    Case(
        "kv_cache",
        "kv_cache",
        "forward",
        stack=(EMPTY, "site-packages/transformers/cache_utils.py:80 update", CALL),
    ),
    Case(
        "module_parameter",
        "parameter",
        "load",
        stack=(EMPTY, CONVERT, PARAMETER_LINE),
        beside=(EMPTY, CONVERT, BUFFER_LINE),
    ),
    Case(
        "module_buffer",
        "buffer",
        "load",
        stack=(EMPTY, CONVERT, BUFFER_LINE),
        beside=(EMPTY, CONVERT, PARAMETER_LINE),
    ),
    Case(
        "module_built",
        "parameter",
        "load",
        stack=(EMPTY, "at::_ops::empty_memory_format::call(long)", "torch/nn/modules/linear.py:106 __init__"),
    ),
    Case(
        "module_filled",
        "buffer",
        "load",
        stack=(EMPTY, "at::_ops::zeros::call(long)", "torch/nn/modules/batchnorm.py:50 __init__"),
    ),
    Case("optimizer_init", "optimizer_state", "optimizer", stack=(EMPTY, "torch/optim/adam.py:178 _init_group")),
    Case(
        "optimizer_kept",
        "optimizer_state",
        "optimizer",
        stack=(EMPTY, "torch/optim/sgd.py:300 _single_tensor_sgd"),
    ),
    Case(
        "optimizer_rest",
        "optimizer_temporary",
        "optimizer",
        "optimizer",
        stack=(EMPTY, "torch/optim/adam.py:791 _multi_tensor_adam"),
    ),
    Case(
        "loss",
        "logits_and_loss",
        "forward",
        "backward",
        stack=(EMPTY, "at::_ops::_log_softmax::call(at::Tensor)", CALL),
    ),
    Case(
        "loss",
        "logits_and_loss",
        "backward",
        "backward",
        stack=(EMPTY, "torch::autograd::generated::NllLossBackward0::apply(x)", ENGINE),
    ),
    Case(
        "logits",
        "logits_and_loss",
        "forward",
        stack=(EMPTY, "at::_ops::mm::call(at::Tensor)", CALL),
        beside=(EMPTY, "torch/nn/functional.py:3504 cross_entropy", CALL),
    ),
    Case(
        "logits_gradient",
        "logits_and_loss",
        "backward",
        "backward",
        stack=(EMPTY, NODE, ENGINE),
        beside=(EMPTY, "torch/nn/functional.py:3504 cross_entropy", CALL),
    ),
    Case(
        "recomputed",
        "activation",
        "backward",
        "backward",
        stack=(EMPTY, CALL, "torch/utils/checkpoint.py:1100 recompute_fn", ENGINE),
        free_stack=(RELEASE, ENGINE),
    ),
    Case("gradient", "gradient", "backward", "zero_grad", stack=(EMPTY, NODE, ENGINE)),
    Case("gradient", "gradient", "backward", stack=(EMPTY, NODE, ENGINE)),
    Case(
        "accumulated",
        "gradient_in_flight",
        "backward",
        "backward",
        stack=(EMPTY, NODE, ENGINE),
        free_stack=("torch::autograd::AccumulateGrad::apply(x)", ENGINE),
    ),
    Case(
        "summed_up",
        "gradient_in_flight",
        "backward",
        "backward",
        stack=(EMPTY, "torch::autograd::InputBuffer::add(unsigned long)", ENGINE),
        free_stack=(ENGINE,),
    ),
    Case(
        "backward_rest",
        "backward_temporary",
        "backward",
        "backward",
        stack=(EMPTY, NODE, ENGINE),
        free_stack=(NODE, ENGINE),
    ),
    Case("saved", "activation", "forward", "backward", stack=(EMPTY, CALL), free_stack=(RELEASE, ENGINE)),
    Case(
        "held_until_backward",
        "activation",
        "forward",
        "backward",
        stack=(EMPTY, CALL),
        free_stack=(NODE, ENGINE),
    ),
    Case("input", "input", "data", "zero_grad"),
    Case("held_output", "forward_temporary", "forward", "forward", stack=(EMPTY, CALL)),
    Case("loaded", "parameter", "load"),
    Case("between", "forward_temporary", "load", "load"),
    Case("before_recording", "before_recording", None, "optimizer", stack=()),
    Case("unattributed", "unattributed", "nowhere"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{case.rule}-{case.born}-{case.dropped}" for case in CASES])
def test_rule_wins_its_allocation(given: Given, case: Case) -> None:
    # "nowhere" is after the last marked phase; every device's last ten events are
    begin = {**BEGIN, "nowhere": 61}
    lines = ["snapshot - 0"] * 70
    stacks = [list(case.stack), list(case.free_stack), list(case.beside)]
    birth = None if case.born is None else begin[case.born] + 2
    drop = None if case.dropped is None else begin[case.dropped] + 4
    if birth is not None:
        lines[birth] = f"alloc 0x1000 {case.size}"
    if drop is not None:
        lines[drop : drop + 2] = [f"free_requested 0x1000 {case.size}", f"free_completed 0x1000 {case.size}"]
    stack = "0" if case.stack else "-"
    alive = f"{case.size} {case.size} {'-' if birth is None else birth}"
    dead = "- -" if drop is None else f"{drop} {drop + 1}"
    placements = [f"0x1000 {alive} {dead} {stack} 1"]
    if case.beside:
        other = begin["load" if case.born == "load" else "forward"] + 1
        lines[other] = f"alloc 0x9000 {case.size}"
        placements.append(f"0x9000 {case.size} {case.size} {other} - - 2 -")
    marks = [
        mark
        for phase in PHASES
        for mark in (
            f"{1000 + 10 * begin[phase]} START {_name(phase)}",
            f"{1000 + 10 * begin[phase] + 95} END {_name(phase)}",
        )
    ]
    warehouse = given(
        device=[rows.device(70)],
        trace_event=rows.events(*lines),
        placement=rows.placements(*placements),
        replay=[{"device": 0}],
        annotation=rows.marks(*marks, "1100 START step 1", "1595 END step 1"),
        **rows.stacks(*stacks),
    )
    found = warehouse.rows("select rule_id, bucket from allocation_bucket where address = 4096")
    assert found == [{"rule_id": case.rule, "bucket": case.bucket}]


def _name(phase: str) -> str:
    return "model.cuda" if phase == "load" else phase


def test_every_rule_has_a_case(given: Given) -> None:
    with given() as warehouse:
        rules = {row["rule_id"] for row in warehouse.rows("from bucket_rule")}
    assert {case.rule for case in CASES} == rules


def test_rules_speak_of_buckets_and_roles_that_exist(given: Given) -> None:
    with given() as warehouse:
        assert warehouse.rows("from bucket_rule anti join bucket using (bucket)") == []
        unknown = warehouse.rows(
            "select role from ("
            "select unnest(string_split(concat_ws('|', role, free_role), '|')) as role from bucket_rule"
            ") where role <> '' and role not in (select frame_role.role from frame_role)"
        )
    assert unknown == []


def test_priorities_are_distinct(given: Given) -> None:
    with given() as warehouse:
        assert warehouse.rows("select priority from bucket_rule group by priority having count(*) > 1") == []


def test_what_the_recording_cuts_off_is_told_by_its_twin_in_the_step_before(given: Given) -> None:
    """The same stack and size twice: in step 1 freed in backward, in step 2 alive when the recording ends.

    step 1: forward 0-1, backward 2-4     step 2: forward 5-6, then it ends
    """
    warehouse = given(
        device=[rows.device(7)],
        trace_event=rows.events(
            "alloc 0x1000 512 0",
            "snapshot - 0",
            "snapshot - 0",
            "free_requested 0x1000 512 1",
            "free_completed 0x1000 512 1",
            "alloc 0x1000 512 0",
            "snapshot - 0",
        ),
        placement=rows.placements("0x1000 512 512 0 3 4 0 1", "0x1000 512 512 5 - - 0"),
        replay=[{"device": 0}],
        annotation=rows.marks(
            "1000 START step 1", "1000 START forward", "1019 END forward",
            "1019 START backward", "1049 END backward", "1049 END step 1",
            "1049 START step 2", "1049 START forward", "1075 END forward",
        ),
        **rows.stacks([EMPTY, CALL], [RELEASE, ENGINE]),
    )  # fmt: skip
    assert warehouse.rows("select rule_id, evidence from allocation_bucket order by allocation_id") == [
        {"rule_id": "saved", "evidence": "stack"},
        {"rule_id": "held_until_backward", "evidence": "twin"},
    ]


def test_shipped_rules_are_the_ones_under_test() -> None:
    assert "bucket_rule" in sqlfile.load(shipped.folder("queries"))
