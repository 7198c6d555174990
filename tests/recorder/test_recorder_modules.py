"""Module marks on a CPU: labels are read back where a GPU's allocator would read them, at every operator."""

from __future__ import annotations

import importlib
import json
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stand_in import StandIn

from tracekit.recorder.door import Door
from tracekit.recorder.modules import ModuleMarks

Label = tuple[str, str] | None
Pretend = Callable[[tuple[int, int]], StandIn]


@pytest.fixture(autouse=True)
def _begun(gpu: StandIn) -> None:  # pyright: ignore[reportUnusedFunction]
    """The program has touched the device already."""
    gpu.initialize()


@pytest.fixture
def gpt2(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module capture/gpt2.py."""
    del torch
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "capture"), *sys.path])
    return importlib.import_module("gpt2")


def small(gpt2: Any, **options: Any) -> Any:
    return gpt2.GPT2(gpt2.Config(vocabulary=61, context=16, width=8, heads=2, layers=2, **options))


def marks_for(torch: Any, model: Any) -> ModuleMarks:
    marks = ModuleMarks(Door(torch), lambda _model: None)
    marks.add(model)
    return marks


class Listener:
    """Notes which label an allocation would carry at each operator that makes a tensor."""

    def __init__(self, torch: Any, gpu: StandIn) -> None:
        self.heard: list[tuple[str, Label]] = []
        listener = self

        def dispatch(_mode: Any, operator: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
            text = gpu.label()
            listener.heard.append((str(operator).split(".")[1], tuple(json.loads(text)) if text else None))
            return operator(*args, **(kwargs or {}))

        base = torch.utils._python_dispatch.TorchDispatchMode
        self.mode = type("Listening", (base,), {"__torch_dispatch__": dispatch})()

    def labels(self, operator: str) -> list[Label]:
        return [label for name, label in self.heard if name == operator]


def step(torch: Any, model: Any) -> None:
    tokens = torch.randint(61, (2, 17))
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    model.zero_grad()


def test_events_say_their_module_in_forward_and_backward(torch: Any, gpu: StandIn, gpt2: Any) -> None:
    model = small(gpt2)
    marks_for(torch, model)
    for _ in range(2):  # the second step begins after a backward pass, and must not inherit its last label
        listener = Listener(torch, gpu)
        with listener.mode:
            step(torch, model)
        blocks = ("transformer.h.0", "transformer.h.1")
        assert listener.labels("_softmax") == [("forward", f"{block}.attn") for block in blocks]
        assert listener.labels("gelu") == [("forward", f"{block}.mlp.gelu") for block in blocks]
        assert listener.labels("_softmax_backward_data") == [("backward", f"{block}.attn") for block in blocks[::-1]]
        assert listener.labels("gelu_backward") == [("backward", f"{block}.mlp.gelu") for block in blocks[::-1]]
        assert listener.labels("_log_softmax") == [("forward", "")]
        assert listener.labels("_log_softmax_backward_data") == [("backward", "")]
        assert listener.labels("embedding_dense_backward") == [
            ("backward", "transformer.wpe"),
            ("backward", "transformer.wte"),
        ]
        assert listener.labels("randint") == [None]
        assert gpu.label() == ""


def test_a_loss_outside_of_the_model_carries_no_module(torch: Any, gpu: StandIn, gpt2: Any) -> None:
    model = small(gpt2)
    marks_for(torch, model)
    for _ in range(2):
        listener = Listener(torch, gpu)
        tokens = torch.randint(61, (2, 16))
        with listener.mode:
            logits, _ = model(tokens)
            torch.nn.functional.cross_entropy(logits.view(-1, 61), tokens.view(-1)).backward()
        assert listener.labels("_log_softmax") == [None]
        assert listener.labels("_log_softmax_backward_data") == [None]
        assert listener.labels("_softmax_backward_data")[0] == ("backward", "transformer.h.1.attn")


def test_recomputation_under_checkpointing_says_so(torch: Any, gpu: StandIn, gpt2: Any) -> None:
    model = small(gpt2, checkpoint=True)
    marks_for(torch, model)
    for _ in range(2):
        listener = Listener(torch, gpu)
        with listener.mode:
            step(torch, model)
        assert listener.labels("_softmax") == [
            ("forward", "transformer.h.0.attn"),
            ("forward", "transformer.h.1.attn"),
            ("recompute", "transformer.h.1.attn"),
            ("recompute", "transformer.h.0.attn"),
        ]
        assert listener.labels("_softmax_backward_data") == [
            ("backward", "transformer.h.1.attn"),
            ("backward", "transformer.h.0.attn"),
        ]
        assert gpu.label() == ""


def test_no_label_is_set_before_there_is_an_allocator(
    torch: Any, gpu: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise AssertionError("the real call would end the process")

    gpu.is_initialized = False
    monkeypatch.setattr(torch.cuda.memory, "_set_memory_metadata", crash)
    monkeypatch.setattr(torch.cuda.memory, "_get_memory_metadata", crash)
    model = torch.nn.Linear(4, 4)
    marks_for(torch, model)
    model(torch.ones(1, 4)).sum().backward()


def test_an_exception_in_forward_leaves_no_label_behind(torch: Any, gpu: StandIn) -> None:
    class Fragile(torch.nn.Module):
        fails = True

        def forward(self, x: Any) -> Any:
            if self.fails:
                raise RuntimeError("too large; try with less")
            return x * 2

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Fragile())
    marks_for(torch, model)
    with pytest.raises(RuntimeError, match="too large"):
        model(torch.ones(1, 4))
    assert gpu.label() == ""
    model[1].fails = False
    listener = Listener(torch, gpu)
    with listener.mode:
        model(torch.ones(1, 4)).sum().backward()
    assert listener.labels("mul") == [("forward", "1"), ("backward", "1")]
    assert gpu.label() == ""


def test_the_programs_own_label_comes_back(torch: Any, gpu: StandIn) -> None:
    model = torch.nn.Linear(4, 4)
    marks_for(torch, model)
    torch.cuda.memory._set_memory_metadata("step=2")
    model(torch.ones(1, 4)).sum().backward()
    assert gpu.label() == "step=2"


def test_a_model_that_returns_a_mapping_is_labelled_too(torch: Any, gpu: StandIn) -> None:
    class Wrapped(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return {"loss": model.inner(x).pow(2).sum(), "extra": [None, "text"]}

    model: Any = Wrapped()
    model.inner = torch.nn.Linear(4, 4)
    marks_for(torch, model)
    listener = Listener(torch, gpu)
    with listener.mode:
        model(torch.ones(1, 4))["loss"].backward()
    assert ("backward", "inner") in listener.labels("mm")


def test_taking_the_marks_off_takes_them_off(torch: Any, gpu: StandIn, gpt2: Any) -> None:
    model = small(gpt2)
    marks = marks_for(torch, model)
    tokens = torch.randint(61, (2, 17))
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    marks.remove()
    listener = Listener(torch, gpu)
    with listener.mode:
        loss.backward()  # its graph still has hooks
        step(torch, model)
    assert {label for _, label in listener.heard} == {None}


def test_models_are_found_as_they_are_called(torch: Any, gpu: StandIn) -> None:
    marks = ModuleMarks(Door(torch), lambda _model: None)
    found: list[Any] = []
    marks.add_as_they_come(found.append)
    first = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    second = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh())
    loss = torch.nn.MSELoss()
    listener = Listener(torch, gpu)
    with listener.mode:
        loss(second(first(torch.ones(1, 4))), torch.zeros(1, 4)).backward()
    marks.remove()
    assert found == [first, second]
    assert listener.labels("relu") == [("forward", "1")]
    assert listener.labels("tanh") == [("forward", "Sequential.1")]
    assert listener.labels("mse_loss") == [("forward", "MSELoss")]
    assert listener.labels("tanh_backward") == [("backward", "Sequential.1")]
    assert listener.labels("threshold_backward") == [("backward", "1")]


def test_before_torch_2_10_ranges_stand_in(pretend: Pretend, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend((2, 9)).initialize()
    ranges: list[str] = []

    class Range:
        def __init__(self, name: str) -> None:
            ranges.append(name)

        def __enter__(self) -> None:
            ranges.append("(")

        def __exit__(self, *_: object) -> None:
            ranges.append(")")

    monkeypatch.setattr(torch.profiler, "record_function", Range)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    marks = marks_for(torch, model)
    model(torch.ones(1, 4)).sum().backward()
    assert marks.kind == "record_function"
    assert " ".join(ranges) == "module: ( module:0 ( ) module:1 ( ) )"


# What must not change


def allocations(torch: Any, act: Callable[[], None]) -> list[int]:
    """Bytes of every allocation and free on the CPU, in order: what torch.cuda's trace would be on a GPU."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        act()
    found: list[tuple[int, int]] = []

    def walk(events: Any) -> None:
        for event in events:
            if event.tag.name == "Allocation":
                found.append((event.start_time_ns, event.extra_fields.alloc_size))
            walk(event.children)

    walk(profile.profiler.kineto_results.experimental_event_tree())
    return [size for _, size in sorted(found, key=lambda one: one[0])]


@pytest.mark.parametrize("options", [{}, {"checkpoint": True}, {"attention": "sdpa"}], ids=str)
def test_marks_change_no_allocation(torch: Any, gpu: StandIn, gpt2: Any, options: dict[str, Any]) -> None:
    del gpu

    def run(*, marked: bool) -> list[int]:
        torch.manual_seed(0)
        model = small(gpt2, **options)
        optimizer = torch.optim.AdamW(model.parameters())
        marks = marks_for(torch, model) if marked else None

        def act() -> None:
            for _ in range(2):
                for _ in range(2):  # the second micro-batch adds to gradients that are there
                    tokens = torch.randint(61, (2, 17))
                    logits, loss = model(tokens[:, :-1], tokens[:, 1:])
                    loss.backward()
                    del logits, loss
                optimizer.step()
                optimizer.zero_grad()

        act()  # what is made once, is made here
        found = allocations(torch, act)
        if marks is not None:
            marks.remove()
        return found

    plain, marked = run(marked=False), run(marked=True)
    assert len(plain) > 500
    assert marked == plain


def test_marks_keep_no_tensor_and_no_graph_alive(torch: Any, gpu: StandIn, gpt2: Any) -> None:
    del gpu
    model = small(gpt2)
    marks_for(torch, model)
    seen: list[weakref.ref[Any]] = []

    def see(_module: object, _given: object, x: Any) -> None:
        seen.append(weakref.ref(x))

    model.transformer["h"][0].register_forward_hook(see)
    tokens = torch.randint(61, (2, 17))
    logits, loss = model(tokens[:, :-1], tokens[:, 1:])
    assert seen[0]() is not None  # the graph holds it
    del logits, loss
    assert seen[0]() is None


def test_inplace_operators_after_a_module_still_work(torch: Any, gpu: StandIn) -> None:
    del gpu
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(4, 4))
    marks_for(torch, model)
    x = torch.ones(1, 4, requires_grad=True)
    y = model(x)
    y += 1  # full backward hooks would refuse this
    y.sum().backward()
    assert x.grad is not None


def test_compiled_code_is_not_broken_up(torch: Any, gpu: StandIn, gpt2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    del gpu
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # the compiler believes it, and asks on
    model = small(gpt2)
    marks_for(torch, model)

    def run(tokens: Any) -> Any:
        return model(tokens)[0].sum()

    compiled = torch.compile(run, backend="eager", fullgraph=True)  # an interruption would be an error
    tokens = torch.randint(61, (2, 16))
    assert torch.allclose(compiled(tokens), run(tokens), rtol=1e-4)


def test_a_compiled_model_is_marked_as_a_whole(
    torch: Any, gpu: StandIn, gpt2: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model = torch.compile(small(gpt2), backend="eager", fullgraph=True)
    marks_for(torch, model)
    tokens = torch.randint(61, (2, 17))
    _, loss = model(tokens[:, :-1], tokens[:, 1:])
    loss.backward()
    assert gpu.label() == ""
    assert not model._orig_mod._forward_hooks
