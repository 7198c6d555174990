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
    """An allocation: its rule and bucket, its phases, its frames; `born` None is older than the recording.

    With `roll`, the recorder found a tensor of that role in it, once everything here was born.
    """

    rule: str
    bucket: str
    born: str | None
    dropped: str | None = None
    stack: tuple[str, ...] = (EMPTY, USER)
    free_stack: tuple[str, ...] = (USER, USER)
    size: int = 4096
    beside: tuple[str, ...] = ()
    roll: str | None = None


CASES = [
    # what the recorder found goes before what a stack or a lifetime says
    Case("named_parameter", "parameter", "backward", stack=(EMPTY, NODE, ENGINE), roll="parameter"),
    Case("named_parameter", "parameter", None, stack=(), roll="parameter"),
    Case("named_buffer", "buffer", "forward", stack=(EMPTY, CALL), roll="buffer"),
    Case("named_optimizer_state", "optimizer_state", "load", roll="optimizer_state"),
    Case("named_gradient", "gradient", "forward", "zero_grad", stack=(EMPTY, CALL), roll="gradient"),
    Case(
        "cublas_workspace",
        "library_workspace",
        "forward",
        stack=("at::cuda::getNewWorkspace()", CALL),
        size=8519680,
    ),
    Case(
        "cublas_backward_workspace",
        "library_workspace",
        "backward",
        stack=("at::cuda::getNewWorkspace()", NODE, ENGINE),
        size=8519680,
    ),
    Case(
        "cublaslt_workspace",
        "library_workspace",
        "backward",
        stack=("at::cuda::getCUDABlasLtWorkspace()", NODE, ENGINE),
    ),
    Case(
        "cudnn_trial_workspace",
        "library_workspace",
        "forward",
        "forward",
        stack=("at::native::run_conv_plan(cudnnContext*)", CALL),
    ),
    Case(
        "cudnn_workspace",
        "library_workspace",
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
        "ddp_bucket",
        "communication",
        "load",
        stack=(EMPTY, "c10d::Reducer::initialize_buckets(std::vector<int>)"),
    ),
    Case(
        "fsdp_buffer",
        "communication",
        "forward",
        "backward",
        stack=(EMPTY, "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:931 alloc_storage", CALL),
    ),
    Case(
        "communication",
        "communication",
        "backward",
        "backward",
        stack=(EMPTY, "c10d::broadcast_coalesced(x)"),
    ),
    Case(
        "reduced_gradient",
        "gradient",
        "backward",
        "zero_grad",
        stack=(EMPTY, "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py:470 foreach_reduce", ENGINE),
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
        "module_shard",
        "parameter",
        "load",
        stack=(EMPTY, "torch/distributed/fsdp/_fully_shard/_fsdp_param.py:390 _init_sharded_param", USER),
    ),
    Case(
        "module_built",
        "parameter",
        "load",
        stack=(EMPTY, "at::_ops::empty_memory_format::call(long)", "torch/nn/modules/linear.py:106 __init__"),
    ),
    Case("module_copied", "parameter", "load", stack=(EMPTY, "/usr/lib/python3.11/copy.py:153 deepcopy", USER)),
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
        "foreach_temporary",
        "optimizer_temporary",
        "optimizer",
        "optimizer",
        stack=(EMPTY, "at::_ops::_foreach_sqrt::call(x)", "torch/optim/adam.py:700 adam"),
    ),
    Case(
        "optimizer_rest",
        "optimizer_temporary",
        "optimizer",
        "optimizer",
        stack=(EMPTY, "torch/optim/adam.py:450 _single_tensor_adam"),
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
        "missing_gradient",
        "gradient_in_flight",
        "backward",
        "backward",
        stack=(EMPTY, "torch::autograd::VariableInfo::zeros(x)", "torch::autograd::PyNode::apply(x)", ENGINE),
        free_stack=(ENGINE,),
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
    Case("unattributed", "unattributed", "zero_grad"),  # kept, so it is no temporary between two phases
    Case("before_recording", "before_recording", None, "optimizer", stack=()),
    Case("unattributed", "unattributed", "nowhere"),
]

TOLD_BY_OTHERS = {
    "summand",
    "built_parameter",
    "built_buffer",
    "weight_copy",
    "kept_beside_parameters",
    "given_to_forward",
    "given_and_kept",
}
"""Rules that rest on other allocations than the one they label; each has a test of its own below."""


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
        **_roll(case, sum(line.startswith("alloc") for line in lines)),
        **rows.stacks(*stacks),
    )
    found = warehouse.rows("select rule_id, bucket from allocation_bucket where address = 4096")
    assert found == [{"rule_id": case.rule, "bucket": case.bucket}]


def _roll(case: Case, count: int) -> dict[str, rows.Rows]:
    """The roll that holds the case's allocation and nothing else, taken after so many allocations."""
    if case.roll is None:
        return {}
    return {
        "mark": [rows.mark(0, "begin")],
        "tensor": [rows.tensor(0x1000, case.size, case.roll, "h.0.weight", count)],
    }


def _name(phase: str) -> str:
    return "model.cuda" if phase == "load" else phase


def test_every_rule_has_a_case(given: Given) -> None:
    with given() as warehouse:
        rules = {row["rule_id"] for row in warehouse.rows("from bucket_rule")}
    assert {case.rule for case in CASES} | TOLD_BY_OTHERS == rules


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


def test_the_second_of_two_gradients_that_the_engine_adds_up_is_in_flight(given: Given) -> None:
    """The tied embedding's road: two gradients of one weight, and their sum in a third tensor.

    backward           0   1   2   3   4   5   6   7
    first  (lm_head)   ████████████████
    inner                  ████                        a temporary of the same bytes, freed in its own node
    second (embedding)             ████████████
    sum                                ████████████
    """
    node, embedding = (
        "torch::autograd::generated::MmBackward0::apply(x)",
        "torch::autograd::generated::EmbeddingBackward0::apply(x)",
    )
    add = "torch::autograd::InputBuffer::add(unsigned long)"
    warehouse = given(
        device=[rows.device(9)],
        trace_event=rows.events(
            "alloc 0x1000 4096 0",
            "alloc 0x3000 4096 1",
            "free_requested 0x3000 4096 2",
            "alloc 0x3000 4096 1",
            "alloc 0x5000 4096 3",
            "free_requested 0x1000 4096 4",
            "free_requested 0x3000 4096 5",
            "snapshot - 0",
            "snapshot - 0",
        ),
        placement=rows.placements(
            "0x1000 4096 4096 0 5 5 0 4",
            "0x3000 4096 4096 1 2 2 1 2",
            "0x3000 4096 4096 3 6 6 1 5",
            "0x5000 4096 4096 4 - - 3",
        ),
        replay=[{"device": 0}],
        annotation=rows.marks("1000 START step 1", "1000 START backward", "1075 END backward", "1085 END step 1"),
        **rows.stacks(
            [EMPTY, node, ENGINE],
            [EMPTY, embedding, ENGINE],
            [embedding, ENGINE],
            [EMPTY, add, ENGINE],
            [add, ENGINE],
            [ENGINE],
        ),
    )
    assert [
        row["rule_id"] for row in warehouse.rows("select rule_id from allocation_bucket order by allocation_id")
    ] == [
        "accumulated",
        "backward_rest",
        "summand",
        "gradient",
    ]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        (
            ["1024", "1024", "512", "512"],
            "built_parameter built_buffer built_parameter",
        ),  # Adam: two for each parameter, in the order of parameters
        (["1024", "512"], "built_parameter built_buffer built_parameter"),  # momentum: one
        (
            ["512", "512", "1024", "1024"],
            "loaded loaded built_parameter",
        ),  # groups in another order: sizes alone cannot tell, and claim nothing
        ([], "loaded loaded built_parameter"),  # plain SGD
    ],
)
def test_without_stacks_a_buffer_is_what_gets_no_gradient_and_no_state(
    given: Given, states: list[str], expected: str
) -> None:
    """Loaded: a weight of 1,024 bytes, a buffer of 1,024 bytes, a bias of 512; two gradients.

    events   0-2 load   3-4 backward (gradients)   5-8 optimizer (states)   9-10 zero_grad
    """
    lines = ["alloc 0x1000 1024", "alloc 0x2000 1024", "alloc 0x3000 512", "alloc 0x4000 512", "alloc 0x5000 1024"]
    lines += [f"alloc {0x6000 + 0x1000 * index:#x} {size}" for index, size in enumerate(states)]
    lines += ["snapshot - 0"] * (9 - len(lines)) + ["free_requested 0x4000 512", "free_requested 0x5000 1024"]
    placements = [
        "0x1000 1024 1024 0 - -",
        "0x2000 1024 1024 1 - -",
        "0x3000 512 512 2 - -",
        "0x4000 512 512 3 9 9",
        "0x5000 1024 1024 4 10 10",
    ]
    placements += [f"{0x6000 + 0x1000 * index:#x} {size} {size} {5 + index} - -" for index, size in enumerate(states)]
    warehouse = given(
        device=[rows.device(11)],
        trace_event=rows.events(*lines),
        placement=rows.placements(*placements),
        replay=[{"device": 0}],
        annotation=rows.marks(
            "1000 START model.cuda",
            "1025 END model.cuda",
            "1025 START step 1",
            "1025 START backward",
            "1045 END backward",
            "1045 START optimizer",
            "1085 END optimizer",
            "1085 START zero_grad",
            "1105 END zero_grad",
            "1105 END step 1",
        ),
    )
    found = warehouse.rows("select rule_id from allocation_bucket where birth_event_ix < 3 order by birth_event_ix")
    assert " ".join(row["rule_id"] for row in found) == expected


def test_a_weight_of_a_workspaces_size_is_a_weight(given: Given) -> None:
    """4,096 x 4,096 in bf16 has the bytes of Hopper's cuBLAS workspace: a size tells only where nothing else does."""
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events("alloc 0x10000000 33554432 0", "alloc 0x20000000 33554432 0", "snapshot - 0"),
        placement=rows.placements("0x10000000 33554432 33554432 0 - - 0", "0x20000000 33554432 33554432 1 - - 0"),
        replay=[{"device": 0}],
        **rows.stacks([CONVERT, PARAMETER_LINE, USER]),
    )
    assert warehouse.rows("select distinct bucket from allocation_bucket") == [{"bucket": "parameter"}]


@pytest.mark.parametrize(
    ("kept", "rule"),
    [
        (["512", "2048"], "kept_beside_parameters"),  # in whatever order
        (["2048"], "unattributed"),  # of one parameter alone nothing follows
        (["2048", "512", "512"], "unattributed"),
        (["2048", "1024"], "unattributed"),
    ],
)
def test_what_a_line_keeps_one_of_for_each_parameter_is_optimizer_state(
    given: Given, kept: list[str], rule: str
) -> None:
    """Moved to the device: parameters of 2,048 and 512 bytes, a buffer of 1,024; then one line keeps `kept`."""
    lines = ["alloc 0x1000 2048 0", "alloc 0x2000 512 0", "alloc 0x3000 1024 1"]
    lines += [f"alloc {0x4000 + 0x1000 * index:#x} {size} 2" for index, size in enumerate(kept)]
    warehouse = given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements(
            *(f"{line.split()[1]} {line.split()[2]} 2048 {index} - - {line[-1]}" for index, line in enumerate(lines))
        ),
        replay=[{"device": 0}],
        annotation=rows.marks(
            "1000 START model.cuda", "1025 END model.cuda", "1025 START zero_grad", "1095 END zero_grad"
        ),
        **rows.stacks(
            [CONVERT, PARAMETER_LINE, USER],
            [CONVERT, BUFFER_LINE, USER],
            ["/home/someone/adam_forward.py:267 update", USER],
        ),
    )
    found = warehouse.rows("select rule_id from allocation_bucket where birth_event_ix > 2")
    assert {row["rule_id"] for row in found} == {rule}


VIT = "/home/someone/vit.py:{} __init__"
LINEAR = "torch/nn/modules/linear.py:106 __init__"
ZEROS = "at::_ops::zeros::call(x)"
COPY = "/usr/lib/python3.11/copy.py:153 deepcopy"


@pytest.mark.parametrize(
    ("gradients", "expected"),
    [
        # made on the device, with an average of the weights beside it
        (
            [2048, 512, 1024],
            "module_built built_parameter built_buffer weight_copy weight_copy built_parameter built_buffer",
        ),
        # the copies are layers
        (
            [2048, 512, 1024, 2048, 512],
            "module_built built_parameter built_buffer built_parameter built_parameter built_parameter built_buffer",
        ),
        # nothing is trained: a constructor's buffers are what it fills, and what lies beside a model is given to it
        ([], "module_built built_buffer built_buffer module_copied module_copied given_and_kept given_and_kept"),
    ],
)
def test_what_gradients_account_for_is_a_parameter_whoever_made_it(
    given: Given, gradients: list[int], expected: str
) -> None:
    """Before the first forward: a weight, a token and a scale of constructors, copies of two, a file's tensors.

    events   0-6 made   7 forward   then gradients, kept until the end
    """
    made = [(2048, 0), (512, 1), (768, 2), (2048, 3), (512, 3), (1024, 4), (640, 4)]
    lines = [f"alloc {0x1000 * (index + 1):#x} {size} {stack}" for index, (size, stack) in enumerate(made)]
    lines += ["alloc 0x20000 256 5"]
    lines += [f"alloc {0x30000 + 0x1000 * index:#x} {size} 6" for index, size in enumerate(gradients)]
    warehouse = given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements(
            *(f"{line.split()[1]} {line.split()[2]} 2048 {index} - - {line[-1]}" for index, line in enumerate(lines))
        ),
        replay=[{"device": 0}],
        **rows.stacks(
            [EMPTY, LINEAR, VIT.format(10), USER],
            [EMPTY, ZEROS, VIT.format(11), USER],
            [EMPTY, ZEROS, VIT.format(12), USER],
            [EMPTY, "at::_ops::clone::call(x)", COPY, USER],
            [EMPTY, "/home/someone/train.py:20 load", USER],
            [EMPTY, CALL, USER],
            [EMPTY, NODE, ENGINE],
        ),
    )
    found = warehouse.rows("select rule_id from allocation_bucket where birth_event_ix < 7 order by birth_event_ix")
    assert " ".join(row["rule_id"] for row in found) == expected


@pytest.mark.parametrize(
    ("dropped_at", "rule"), [(4, "given_to_forward"), (6, "given_and_kept"), (None, "given_and_kept")]
)
def test_what_a_forward_without_a_backward_has_beside_its_model_was_given_to_it(
    given: Given, dropped_at: int | None, rule: str
) -> None:
    """A moved module's weight, what is told, and then a forward of two allocations, at 3 and 5."""
    lines = ["alloc 0x5000 512 2", "snapshot - 0", "alloc 0x1000 512 0", "alloc 0x2000 512 1", "snapshot - 0"]
    lines += ["alloc 0x3000 512 1", "snapshot - 0"]
    if dropped_at is not None:
        lines[dropped_at] = "free_requested 0x1000 512 1"
    dropped = "- - 0" if dropped_at is None else f"{dropped_at} {dropped_at} 0 1"
    warehouse = given(
        device=[rows.device(7)],
        trace_event=rows.events(*lines),
        placement=rows.placements(
            "0x5000 512 512 0 - - 2", f"0x1000 512 512 2 {dropped}", "0x2000 512 512 3 - - 1", "0x3000 512 512 5 - - 1"
        ),
        replay=[{"device": 0}],
        **rows.stacks([EMPTY, USER], [EMPTY, CALL, USER], [CONVERT, PARAMETER_LINE, USER]),
    )
    found = warehouse.rows("select bucket, rule_id from allocation_bucket where birth_event_ix = 2")
    assert found == [{"bucket": "input", "rule_id": rule}]


def test_what_is_kept_from_before_a_first_forward_is_the_model_where_nothing_else_is(given: Given) -> None:
    """A tensor assigned to a module that is only run; and one made after its forward, which nothing explains."""
    warehouse = given(
        device=[rows.device(3)],
        trace_event=rows.events("alloc 0x1000 512 0", "alloc 0x2000 512 1", "alloc 0x3000 512 0"),
        placement=rows.placements("0x1000 512 512 0 - - 0", "0x2000 512 512 1 - - 1", "0x3000 512 512 2 - - 0"),
        replay=[{"device": 0}],
        **rows.stacks([EMPTY, USER], [EMPTY, CALL, USER]),
    )
    found = warehouse.rows("select rule_id from allocation_bucket order by birth_event_ix")
    assert [row["rule_id"] for row in found] == ["built_parameter", "held_output", "unattributed"]
