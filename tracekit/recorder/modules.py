"""Module marks: every event of a forward and a backward pass says in which module it happened.

A mark is a text on the events or a named range; nothing here may allocate on the device or keep a tensor
alive.

The text is JSON, ["forward" | "recompute" | "backward", module path], with the operator's number as a third
element where operators are logged; "" outside of modules. Where torch has no user_metadata (before 2.10),
record_function ranges named `module:PATH` stand in, for the forward pass only.
"""

from __future__ import annotations

import bisect
import json
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

from tracekit.recorder.door import Door

LEAF_SEQUENCE = 1 << 63
"""Nodes that accumulate into a leaf have a sequence number above this; every other one counts from 0 in its thread."""


class _Place(threading.local):
    """Where one thread is: its open modules, and the labels for the graph that it builds."""

    def __init__(self) -> None:
        self.open: list[tuple[object, str]] = []
        self.outer = ""
        self.outer_label: tuple[str, str] | None = None
        self.label: tuple[str, str] | None = None
        self.ranges: list[Any] = []
        self.sequences: list[int] = []
        self.paths: list[str | None] = []
        self.backward_outer: dict[int, tuple[str, tuple[str, str] | None]] = {}


class ModuleMarks:
    """Hooks on modules that label events; one object a recording.

    Forward: hooks before and after each module set and restore the text. Backward: when the outermost module
        returns,
    the graph behind its output is walked once, and each node gets a hook that sets the text of the module
    whose forward made it. Which module that was follows from the node's sequence number. Modules compiled by
    torch.compile are labelled as a whole.

    Args:
        door: torch's calls.
        on_enter: called with an outermost module when its forward pass begins, outside of a backward pass.
        needs_backward: label the backward pass even where events cannot carry the text, for `here`.
    """

    def __init__(self, door: Door, on_enter: Callable[[Any], None], *, needs_backward: bool = False) -> None:
        torch = door.torch
        self._door = door
        self._torch = torch
        self._on_enter = on_enter
        self._place = _Place()
        self._handles: list[Any] = []
        # by module and not by id: a loss that is made anew at every step must neither be mistaken nor pile up
        self._hooked: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._texts: dict[tuple[str, str], str] = {}
        self._is_compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._graph_task: Callable[[], int] = getattr(torch._C, "_current_graph_task_id", lambda: -1)
        sequence: Callable[[], int] | None = getattr(torch._C._autograd, "_get_sequence_nr", None)
        self._sequence = sequence if door.has_labels or needs_backward else None
        self._is_on = True

    @property
    def kind(self) -> str:
        """How marks reach the recording: user_metadata or record_function."""
        return "user_metadata" if self._door.has_labels else "record_function"

    # Which modules

    def add(self, model: Any, prefix: str = "") -> None:
        """Mark a model and every module in it, once, by its path in it after `prefix`."""
        for path, module in _parts(self._torch, model):
            if module not in self._hooked:
                name = ".".join(part for part in (prefix, path) if part)
                self._hooked[module] = [
                    module.register_forward_pre_hook(partial(self._enter, name)),
                    module.register_forward_hook(self._leave, always_call=True),
                ]

    def add_as_they_come(self, found: Callable[[Any], None]) -> None:
        """Mark every model that is called from outside of any marked module, from its first call on.

        Args:
            found: told of each such model that has parameters.
        """
        seen_with_parameters: list[str] = []

        def look(module: Any, _inputs: object) -> None:
            if self._is_compiling() or module in self._hooked or self._place.open or not self._is_on:
                return
            kind = type(module).__name__
            has_parameters = next(module.parameters(), None) is not None
            # the first model's paths are its own; what comes beside it, a loss or a second model, says its class
            prefix = kind if seen_with_parameters or not has_parameters else ""
            if has_parameters:
                seen_with_parameters.append(kind)
                found(module)
            self.add(module, prefix)
            if module in self._hooked:
                self._enter(prefix, module, None)  # torch has already listed what it runs before this first call
            else:
                self._hooked[module] = []  # not one to be marked; known from now on

        self._handles.append(self._torch.nn.modules.module.register_module_forward_pre_hook(look))

    def remove(self) -> None:
        """Take every hook off; hooks on a graph that still lives do nothing from now on."""
        self._is_on = False
        for handle in (*self._handles, *(one for handles in self._hooked.values() for one in handles)):
            handle.remove()
        self._handles.clear()
        self._hooked.clear()

    # Where this thread is

    def here(self) -> tuple[str, str] | None:
        """Pass and module path of this thread, None outside of modules."""
        return self._place.label

    def text(self, label: tuple[str, str] | None) -> str:
        """The text that events carry for a label."""
        if label is None:
            return ""
        text = self._texts.get(label)
        if text is None:
            text = self._texts[label] = json.dumps(label)
        return text

    def _show(self, label: tuple[str, str] | None) -> None:
        self._place.label = label
        self._door.set_label(self.text(label))

    # Forward

    def _enter(self, path: str, module: Any, _inputs: object) -> None:
        if self._is_compiling() or not self._is_on:
            return
        place = self._place
        is_backward = self._graph_task() != -1
        if not place.open:
            place.outer = self._door.get_label()
            place.outer_label = place.label
            place.sequences.clear()
            place.paths.clear()
            if not is_backward:
                self._on_enter(module)
        place.open.append((module, path))
        if self._sequence is not None:
            place.sequences.append(self._sequence())
            place.paths.append(path)
        self._show(("recompute" if is_backward else "forward", path))
        if not self._door.has_labels:
            mark = self._torch.profiler.record_function(f"module:{path}")
            mark.__enter__()
            place.ranges.append(mark)

    def _leave(self, module: Any, _inputs: object, output: object) -> None:
        place = self._place
        if self._is_compiling() or not any(one is module for one, _ in place.open):
            return
        while place.open:  # modules that an exception took the way out of are left here too
            one, _ = place.open.pop()
            if place.ranges:
                place.ranges.pop().__exit__(None, None, None)
            if one is module:
                break
        parent = place.open[-1][1] if place.open else None
        if self._sequence is not None:
            place.sequences.append(self._sequence())
            place.paths.append(parent)
        if parent is not None:
            self._show((cast("tuple[str, str]", place.label)[0], parent))
            return
        place.label = place.outer_label
        self._door.set_label(place.outer)
        if self._sequence is not None and self._torch.is_grad_enabled() and self._is_on:
            self._label_graph(output)

    # Backward

    def _label_graph(self, output: object) -> None:
        """Let each node behind `output` that was made in this forward pass announce its module when it runs."""
        place = self._place
        first = place.sequences[0]
        waiting = [tensor.grad_fn for tensor in _tensors(self._torch, output)]
        seen: set[Any] = set()
        while waiting:
            node = waiting.pop()
            if node is None or node in seen:
                continue
            seen.add(node)
            sequence = node._sequence_nr()
            if sequence < first or sequence >= LEAF_SEQUENCE:
                continue
            path = place.paths[bisect.bisect_right(place.sequences, sequence) - 1]
            if path is not None:
                node.register_prehook(partial(self._run_node, ("backward", path)))
            waiting.extend(following for following, _ in node.next_functions)

    def _run_node(self, label: tuple[str, str], _gradients: object) -> None:
        if self._is_compiling() or not self._is_on:
            return
        place = self._place
        task = self._graph_task()
        if task not in place.backward_outer:
            place.backward_outer[task] = (self._door.get_label(), place.label)
            # or the next backward pass would begin, with the loss, under the last module of this one
            self._torch.autograd.Variable._execution_engine.queue_callback(partial(self._end_backward, task))
        self._show(label)

    def _end_backward(self, task: int) -> None:
        place = self._place  # of the thread that finished, nearly always the one that ran the nodes
        if task in place.backward_outer:
            text, place.label = place.backward_outer.pop(task)
            self._door.set_label(text)


def _parts(torch: Any, model: Any) -> Iterator[tuple[str, Any]]:
    """A model's modules with their paths, without what compiled code or TorchScript runs on its own."""
    stack: list[tuple[str, Any]] = [("", model)]
    seen: set[int] = set()
    while stack:
        path, module = stack.pop()
        if id(module) in seen or isinstance(module, torch.jit.ScriptModule):
            continue
        seen.add(id(module))
        if getattr(module, "_compiled_call_impl", None) is not None:
            continue
        yield path, module
        if hasattr(module, "_orig_mod"):  # torch.compile's wrapper
            continue
        for name, child in reversed(list(module.named_children())):
            stack.append((f"{path}.{name}" if path else name, child))


def _tensors(torch: Any, value: object, depth: int = 6) -> Iterator[Any]:
    """The tensors in what a module returned: a tensor, or containers of them."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for part in cast("Mapping[object, object]", value).values():
            yield from _tensors(torch, part, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        for part in cast("list[object]", value):
            yield from _tensors(torch, part, depth - 1)
    elif depth and hasattr(value, "__dict__"):
        for part in list(vars(value).values()):
            yield from _tensors(torch, part, depth - 1)
