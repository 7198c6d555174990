"""Runs a training step on the meta device and logs every storage born and freed.

Tensors have shapes and no data; what a GPU does differently is repaired here, in `routes`, `autocast` and `stand_in`.
What a kernel allocates besides its outputs belongs to `kernel`, and how the allocator answers is not known here.
"""

from __future__ import annotations

import contextlib
import inspect
import weakref
from collections.abc import Callable, Generator
from types import CodeType, FrameType
from typing import Any

from tracekit.errors import TracekitError
from tracekit.estimate.traced import autocast, kernel, recurrent, routes, stand_in
from tracekit.estimate.traced.cards import Card
from tracekit.estimate.traced.door import (
    DispatchMode,
    arguments_of,
    aten,
    is_gpu,
    leaves,
    on_meta,
    overload_of,
    shape_of,
    tensors,
    torch,
)
from tracekit.estimate.traced.kernel import Call, Drop, Out, Take, Workspace
from tracekit.estimate.traced.tape import Tape
from tracekit.estimate.traced.values import Values
from tracekit.recorder.modules import ModuleMarks

HOST_VALUES = 65_536
"""A tensor on the host of more floats than this has no values: a model's weights need not be there to be counted."""

WORKSPACE_FRAMES = {
    "cublas": "at::cuda::getNewWorkspace()",
    "cublaslt": "at::cuda::getCUDABlasLtWorkspace()",
}
_TENSOR = "at::detail::empty_cuda(...)"
_ENGINE = "torch::autograd::Engine::evaluate_function(...)"
_HIDDEN_FILES = (
    *("tracekit/recorder/modules.py", "torch/_ops.py", "torch/library.py"),
    *("torch/_library/utils.py", "torch/utils/_python_dispatch.py", "torch/_meta_registrations.py"),
    *("torch/_compile.py", "torch/_dynamo/eval_frame.py"),
)
"""Whose frames a recording would not have: they are there because there is no GPU."""

Step = Callable[[], object]


def trace(build: Callable[[Any], Any], card: Card, workspace: int, step_count: int = 3) -> Tape:
    """Build a model and run some training steps without a GPU.

    Args:
        build: given the device, returns the model, the optimizer and a function that does one training step.
        card: the GPU that is stood in for.
        workspace: bytes of a cuBLAS workspace.
        step_count: how many steps to run; the first one differs from the rest, as it makes the optimizer's state.

    Raises:
        TracekitError: where the step does what cannot be followed without data.
    """
    tape = Tape()
    tracer = Tracer(tape, card, workspace)
    with tracer.open():
        model, optimizer, step = _parts(tracer.call(build, torch.device("meta")))
        tracer.watch(model)
        for number in range(1, step_count + 1):
            tape.mark(f"step {number}", "START")
            tracer.call(step)
            tape.mark(f"step {number}", "END")
        tracer.close()
        if not tape.requested:
            raise TracekitError(
                "nothing was asked for on the device", "put the model and its data on the device that build is given"
            )
        del model, optimizer, step  # alive until here: whoever keeps only what the step needs still has all of it
    return tape


def _parts(built: Any) -> tuple[Any, Any, Step]:
    """The model, the optimizer and the step that build returned."""
    try:
        model, optimizer, step = built
    except (TypeError, ValueError):
        model, optimizer, step = None, None, None
    if not callable(step):
        raise TracekitError(
            f"build returned {type(built).__name__}, and no function that does a step",
            "return the model, the optimizer and a function that does one training step",
        )
    return model, optimizer, step


class Tracer(DispatchMode):
    """Sees every operator below autograd, and writes down what a GPU's allocator would have been asked for."""

    def __init__(self, tape: Tape, card: Card, workspace: int) -> None:
        DispatchMode.__init__(self)
        self.tape = tape
        self.card = card
        self.workspaces = {"cublas": workspace, "cublaslt": 1_048_576}
        self.numbers: dict[int, int] = {}
        """The allocation of each storage on the device, by its address."""
        self.host: dict[int, weakref.ref[Any]] = {}
        """Storages that stand for memory of the host."""
        self.finalizers: dict[int, weakref.ref[Any]] = {}
        self.kept: set[tuple[str, bool]] = set()
        """Which workspaces are there: of which library, in the backward thread or not."""
        self.label = ""
        self.is_open = False
        self.marks: ModuleMarks | None = None
        self.frame_ids: dict[tuple[CodeType, int], int] = {}
        self.hidden: dict[str, bool] = {}
        self.unshared = (0, 0)
        self.is_schema_known: dict[Any, bool] = {}
        self.casts: dict[int, tuple[Any, Any]] = {}
        """What autocast has cast since it was entered: the weight and its copy, by the weight's id."""
        self.values = Values(self.assume)
        self.host_values = HOST_VALUES
        self.cause: tuple[int, ...] = ()
        """Frames between an operator and Python, which say why it runs."""

    # Opening and closing

    @contextlib.contextmanager
    def open(self) -> Generator[None]:
        """Watch, with what a GPU would have chosen in place."""
        self.marks = ModuleMarks(_Door(self), lambda _module: None, needs_backward=True)  # pyright: ignore[reportArgumentType]
        library = torch.library.Library("aten", "IMPL")
        with contextlib.ExitStack() as stack:
            stack.callback(library._destroy)
            routes.register(library, self)
            recurrent.register(library, self)
            autocast.register(library, self)
            stack.enter_context(stand_in.gpu_defaults(self))
            stack.enter_context(torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA))
            stack.enter_context(stand_in.numpy_known_missing())
            stack.enter_context(stand_in.compiler_left_alone())
            self.unshared = stand_in.use_counts()
            stack.callback(self.marks.remove)
            self.is_open = True
            stack.enter_context(self)
            yield

    def close(self) -> None:
        """Write down nothing more: what is alive at the end stays alive."""
        self.is_open = False

    def watch(self, model: object) -> None:
        """Label what happens in a model's modules."""
        if self.marks is not None and isinstance(model, torch.nn.Module):
            self.marks.add(model)

    def call(self, function: Callable[..., Any], *arguments: object) -> Any:
        """Call the user's code."""
        return function(*arguments)

    def assume(self, text: str) -> None:
        """Write down what was taken for granted."""
        self.tape.assumed[text] = None

    # Operators

    def __torch_dispatch__(
        self, operator: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        if is_gpu(kwargs.get("device")):
            kwargs = kwargs | {"device": torch.device("meta")}
        if kwargs.get("pin_memory"):
            kwargs = kwargs | {"pin_memory": False}  # which needs a GPU, and is memory of the host
        given = list(tensors((args, kwargs)))
        if not any(tensor.is_meta for tensor in given):
            if not given:
                return self._make(operator, args, kwargs)
            if not is_gpu(kwargs.get("device")):
                return self._on_host(operator, args, kwargs)
        return self._on_device(operator, args, kwargs, given)

    def _make(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor from nothing."""
        if is_gpu(kwargs.get("device")):
            return self._run(operator, args, kwargs)
        return self._on_host(operator, args, kwargs)

    def _on_host(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Work on the host costs a GPU nothing; what is large and made of floats has no values."""
        if "device" in kwargs and operator in _FACTORIES:
            planned = operator(*args, **kwargs | {"device": torch.device("meta")})
            if planned.dtype.is_floating_point and planned.numel() > self.host_values:
                self._note_host(planned)
                return planned
        return operator(*args, **kwargs)

    def _on_device(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Any]) -> Any:
        answer = _ANSWERS.get(operator)
        if answer is not None:
            return answer(self, *args)
        if operator is aten.copy_.default and not args[0].is_meta:
            return self._fill_host(*args[:2])
        if any(not tensor.is_meta and tensor.dim() > 0 for tensor in given) and operator not in _COPIES:
            args, kwargs = on_meta(args), on_meta(kwargs)
        on_host = [not tensor.is_meta or tensor.untyped_storage()._cdata in self.host for tensor in given]
        if not all(on_host):
            self._note_mixed(operator, given, on_host)
        elif not is_gpu(kwargs.get("device")):
            result = operator(*args, **kwargs | ({"device": torch.device("meta")} if "device" in kwargs else {}))
            for tensor in tensors(result):
                if tensor.is_meta:
                    self._note_host(tensor)
            return result
        if "device" in kwargs and not is_gpu(kwargs["device"]) and kwargs["device"] is not None:
            return self._to_host(operator, args, kwargs)
        return self._run(operator, args, kwargs)

    def _note_mixed(self, operator: Any, given: list[Any], on_host: list[bool]) -> None:
        """Whoever forgets to move something to the GPU is told: its bytes are not in the answer."""
        name = operator._schema.name
        mixes = any(is_host and tensor.dim() > 0 for tensor, is_host in zip(given, on_host, strict=True))
        if mixes and name.removeprefix("aten::").strip("_") not in _MIXING:
            self.assume(f"{name} was given tensors of the host at {self._where()}: a GPU refuses that")

    def _to_host(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A copy from the device to the host, which costs the device nothing; a few floats may be made up."""
        value = self.values.of(args[0])
        if value is not None:
            return operator(value, *args[1:], **kwargs)
        result = operator(*args, **kwargs | {"device": torch.device("meta")})
        is_weight = isinstance(args[0], torch.nn.Parameter)
        if result.dtype.is_floating_point and 0 < result.numel() <= MOST_MADE_UP and not is_weight:
            self.assume(f"numbers copied from the device at {self._where()} were taken to be 1")
            return torch.ones(result.shape, dtype=result.dtype)
        self._note_host(result)
        return result

    def _fill_host(self, into: Any, tensor: Any) -> Any:
        """A tensor of the host that has values is filled from the device: with what is known, or not at all."""
        value = self.values.of(tensor)
        if value is not None:
            return aten.copy_.default(into, value)
        self.assume(f"numbers copied from the device at {self._where()} are not known, and were left as they were")
        return into

    def read(self, tensor: Any) -> object:
        """The program reads a number from the device: only a float can be made up, and that is said."""
        value = self.values.of(tensor)
        if value is not None:
            return value.item()
        if tensor.dtype.is_floating_point:
            self.assume(f"a number read from the device at {self._where()} was taken to be 1")
            return 1.0
        raise self._unknown(f"reads a {str(tensor.dtype).removeprefix('torch.')} from the device")

    def are_equal(self, one: Any, other: Any) -> bool:
        """The program asks whether two tensors are the same."""
        values = [self.values.of(tensor) for tensor in (one, other)]
        if one is not other and any(value is None for value in values):
            raise self._unknown("compares tensors on the device")
        return one is other or torch.equal(*values)

    def unscale(self, first: Any, *_: Any) -> Any:
        """A gradient scaler looks for infinities and changes its scale, in place."""
        self.assume("no gradient overflowed: a scaler skips the first steps otherwise, and optimizer state comes later")
        return first if isinstance(first, torch.Tensor) else None

    def _unknown(self, what: str) -> TracekitError:
        return TracekitError(
            f"the step {what} at {self._where()}, and what it does with the answer cannot be known",
            "decide it on the host, or leave it out of what build returns",
        )

    def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result: Any = self._in_place(operator, args, kwargs)
        if result is None:
            result = self._carry_out(operator, args, kwargs)
            self.values.follow(operator, args, kwargs, result)
        if not self.is_open:
            return result
        name = operator._schema.name.removeprefix("aten::")
        made = list(tensors(result)) if not isinstance(result, torch.Tensor) else [result]
        is_new = [
            tensor.is_meta and tensor.untyped_storage()._cdata not in self.numbers and not self.is_host(tensor)
            for tensor in made
        ]
        self._judge(operator, name)
        if any(is_new) or name in kernel.RECIPES:
            self._write(operator, name, args, kwargs, result, made, is_new)
        return result

    def _carry_out(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator without data: what returns nothing only writes into what it is given, and need not be."""
        if not operator._schema.returns:
            return None
        try:
            return operator(*args, **kwargs)
        except NotImplementedError as error:
            raise TracekitError(
                f"the step calls {operator._schema.name} at {self._where()}, which cannot be run without data",
                "decide on the host what hangs on data, or leave it out of what build returns",
            ) from error

    def _judge(self, operator: Any, name: str) -> None:
        """Count an operator whose scratch memory is not known."""
        known = self.is_schema_known.get(operator)
        if known is None:
            is_told = kernel.is_known(name) or kernel.is_known(name.removesuffix("_"))
            has_none = torch.Tag.pointwise in operator.tags or operator.is_view
            known = self.is_schema_known[operator] = operator.namespace == "aten" and (is_told or has_none)
        if not known:
            self.tape.unknown[str(operator)] += 1
        elif name in kernel.APPROXIMATE:
            self.tape.approximate[str(operator)] += 1

    def _write(
        self,
        operator: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        made: list[Any],
        is_new: list[bool],
    ) -> None:
        """Write down what the call asked for, in the order of its recipe."""
        flat = made if isinstance(result, torch.Tensor) else list(leaves(result))
        if len(flat) != len(made):  # an output that is no tensor keeps its position
            news = iter(is_new)
            is_new = [isinstance(one, torch.Tensor) and next(news) for one in flat]
        call = Call(
            name,
            arguments_of(operator, args, kwargs) if name in kernel.RECIPES else {},
            [shape_of(one) if isinstance(one, torch.Tensor) else None for one in flat],
            is_new,
            self.card,
        )
        own = f"at::_ops::{name.removesuffix('_') if name.endswith('__') else overload_of(operator)}::call(...)"
        scratch: dict[str, int] = {}
        base = self._stack(self.tape.frame(own), *self.cause)
        for step in kernel.steps(call):
            if isinstance(step, Out):
                self._bear(flat[step.index], (self.tape.frame(_TENSOR), *base), step.byte_count)
            elif isinstance(step, Take):
                stack = base if step.frame is None else (self.tape.frame(step.frame), *base)
                scratch[step.key] = self.tape.allocate(step.byte_count, stack, self.label or None)
            elif isinstance(step, Drop):
                self.tape.drop(scratch.pop(step.key), base, self.label or None)
            else:
                self._need_workspace(step, base)

    def _need_workspace(self, step: Workspace, stack: tuple[int, ...]) -> None:
        """Libraries take their workspaces once a thread; the backward pass has a thread of its own."""
        key = (step.library, torch._C._current_graph_task_id() != -1)
        if key not in self.kept and self.workspaces[step.library]:
            self.kept.add(key)
            frame = self.tape.frame(WORKSPACE_FRAMES[step.library])
            self.tape.allocate(self.workspaces[step.library], (frame, *stack), self.label or None)

    # Storages

    def _bear(self, tensor: Any, stack: tuple[int, ...], more: int | None = None) -> None:
        """A storage is born; nothing is allocated for one without bytes."""
        storage = tensor.untyped_storage()
        address, byte_count = storage._cdata, more or storage.nbytes()
        if address in self.numbers or byte_count == 0:
            return
        self.numbers[address] = self.tape.allocate(byte_count, stack, self.label or None)
        self.finalizers[address] = weakref.ref(storage, lambda _gone: self._die(address))

    def _die(self, address: int) -> None:
        """A storage is gone."""
        number = self.numbers.pop(address, None)
        self.values.forget(address)
        self.finalizers.pop(address, None)
        if number is not None and self.is_open:
            self.tape.drop(number, self._stack(), self.label or None)

    def without_values(self, tensor: Any) -> Any:
        """A tensor of floats on the host as one that only stands for it."""
        if not isinstance(tensor, torch.Tensor) or tensor.is_meta or not tensor.dtype.is_floating_point:
            return tensor
        with torch.utils._python_dispatch._disable_current_modes():
            planned = torch.empty_like(tensor, device="meta")
        self._note_host(planned)
        return planned

    def made_without_values(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose tensors on the host have no values, however small."""

        def call(*args: Any, **kwargs: Any) -> Any:
            kept, self.host_values = self.host_values, -1
            try:
                return make(*args, **kwargs)
            finally:
                self.host_values = kept

        return call

    def _note_host(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.host and address not in self.numbers:
            self.host[address] = weakref.ref(storage, lambda _gone: self.host.pop(address, None) and None)

    def empty_cache(self) -> None:
        """The program asks the allocator to give back what is idle."""
        if self.is_open:
            self.tape.empty_cache(self._stack())

    def leave_out_compile(self, model: Any = None, **_: object) -> Any:
        """torch.compile, which changes what is kept and made: the model as it is stands in for it."""
        self.tape.assumed["torch.compile was left out: this is the memory of the model run eagerly"] = None
        return self.leave_out_compile if model is None else model

    def is_host(self, tensor: Any) -> bool:
        """Whether a tensor stands for memory of the host."""
        with torch._C.DisableTorchFunctionSubclass():  # a weight not yet made refuses to show its storage
            return tensor.untyped_storage()._cdata in self.host

    # Autocast

    def cast(self, tensor: Any, dtype: Any, *, is_kept: bool) -> Any:
        """A tensor as autocast hands it on: a copy in another dtype, kept while it is a weight's."""
        is_eligible = tensor.is_meta and tensor.dtype.is_floating_point and tensor.dtype is not torch.float64
        if not is_eligible or tensor.dtype is dtype or self.is_host(tensor):
            return tensor
        is_kept = is_kept and tensor.requires_grad and tensor.is_leaf and torch.is_autocast_cache_enabled()
        if is_kept and id(tensor) in self.casts:
            return self.casts[id(tensor)][1]
        self.cause = (self.tape.frame("at::autocast::cached_cast(...)"),)
        try:
            copy = tensor.to(dtype)
        finally:
            self.cause = ()
        if is_kept:
            self.casts[id(tensor)] = (tensor, copy)
        return copy

    # What a dispatch mode makes torch do differently

    def _in_place(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Under a dispatch mode the engine adds gradients into new tensors, where it adds in place without one.

        It does so where it holds the last reference to a tensor that is no view (input_buffer.cpp, accumulate), and so
        do nodes that fill a tensor of zeros (FunctionsManual.cpp).
        """
        if operator not in _TWINS or kwargs or torch._C._current_graph_task_id() == -1:
            return None
        into = args[0]
        other = args[1] if operator is aten.add.Tensor and len(args) == 2 else into
        if not (isinstance(other, torch.Tensor) and into.is_meta and other.is_meta):
            return None
        storage = into.untyped_storage()
        counts = (into._use_count(), torch._C._storage_Use_Count(storage._cdata))
        spare = 1 if operator is aten.index_put.default else 0  # index_backward holds the zeros once more
        is_last = counts[0] <= self.unshared[0] + spare and counts[1] <= self.unshared[1]
        if not is_last or into.shape != other.shape or into.dtype != other.dtype or torch.is_grad_enabled():
            return None
        if storage._cdata not in self.numbers or into.numel() * into.element_size() != storage.nbytes():
            return None
        return into

    # Stacks

    def _stack(self, *innermost: int) -> tuple[int, ...]:
        """The frames of this moment, innermost first: the given ones, then autograd's, then Python's."""
        frames = list(innermost)
        is_backward = torch._C._current_graph_task_id() != -1
        frame: FrameType | None = inspect.currentframe()
        python: list[int] = []
        while frame is not None:
            code = frame.f_code
            if code is _CALL or (is_backward and code.co_name == "_engine_run_backward"):
                break
            if not self._is_hidden(code.co_filename):
                python.append(self._frame(frame, code))
            frame = frame.f_back
        if not is_backward:
            return (*frames, *python)
        frames += python
        node = torch._C._current_autograd_node()
        if node is not None and innermost:
            frames.append(self.tape.frame(_node_frame(node)))
        return (*frames, self.tape.frame(_ENGINE))

    def _frame(self, frame: FrameType, code: CodeType) -> int:
        key = (code, frame.f_lasti)
        found = self.frame_ids.get(key)
        if found is None:
            found = self.frame_ids[key] = self.tape.frame(code.co_name, code.co_filename, frame.f_lineno)
        return found

    def _is_hidden(self, filename: str) -> bool:
        found = self.hidden.get(filename)
        if found is None:
            plain = filename.replace("\\", "/")
            found = self.hidden[filename] = plain.endswith(_HIDDEN_FILES) or "/tracekit/estimate/traced/" in plain
        return found

    def _where(self) -> str:
        """The user's line that is being run, as file:line."""
        frame: FrameType | None = inspect.currentframe()
        while frame is not None:
            name = frame.f_code.co_filename.replace("\\", "/")
            if "/tracekit/estimate/traced/" not in name and "/torch/" not in name and not name.startswith("<"):
                return f"{name}:{frame.f_lineno}"
            frame = frame.f_back
        return "an unknown place"


_CALL: CodeType = Tracer.call.__code__
"""Beyond it lie the frames of the command, which are not the user's."""


def _node_frame(node: Any) -> str:
    name = node.name()
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        return "torch::autograd::PyNode::apply(...)"
    if "::" in name:
        return f"{name}::apply(...)"
    return f"torch::autograd::generated::{name}::apply(...)"


class _Door:
    """What module marks need of a recorder: where to put their text."""

    has_labels = True

    def __init__(self, tracer: Tracer) -> None:
        self.torch = torch
        self._tracer = tracer

    def set_label(self, text: str) -> None:
        self._tracer.label = text

    def get_label(self) -> str:
        return self._tracer.label


_TWINS = frozenset(
    [aten.add.Tensor, aten.index_put.default, aten.put.default, aten.scatter_add.default, aten.index_add.default]
)
_ANSWERS: dict[Any, Callable[..., Any]] = {
    aten._local_scalar_dense.default: Tracer.read,
    aten.equal.default: Tracer.are_equal,
    aten._amp_foreach_non_finite_check_and_unscale_.default: Tracer.unscale,
    aten._amp_update_scale_.default: Tracer.unscale,
}
"""Operators whose answer hangs on data, and what gives it."""
_COPIES = frozenset([aten.copy_.default, aten._to_copy.default, aten._pack_padded_sequence.default])
_MIXING = frozenset(
    ["copy", "to_copy", "foreach_copy", "index", "index_put", "index_put_impl", "set", "pack_padded_sequence"]
)
"""Operators that take tensors of the host beside those of a GPU."""
MOST_MADE_UP = 16
"""Elements of a tensor of floats that the program may look at on the host, though nobody knows them."""


_FACTORIES = frozenset(
    getattr(getattr(aten, name), overload)
    for name in [
        "empty",
        "empty_strided",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "normal",
        "eye",
        "linspace",
        "arange",
    ]
    for overload in getattr(aten, name).overloads()
    if not overload.endswith("out") and "names" not in overload
)
