"""Runs a training step on the meta device and logs every storage born and freed: the one file here that knows torch.

Tensors have shapes and no data; what a GPU does differently is repaired where torch shows it. What a kernel allocates
besides its outputs belongs to `kernel`, and how the allocator answers is not known here.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, cast

from tracekit.errors import TracekitError
from tracekit.estimate.traced import kernel
from tracekit.estimate.traced.cards import Card
from tracekit.estimate.traced.kernel import Call, Drop, Out, Shape, Take, Workspace
from tracekit.estimate.traced.tape import Tape
from tracekit.recorder.modules import ModuleMarks

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # which nothing here asks for
    torch: Any = importlib.import_module("torch")  # by name, as it is not there where this is checked
aten: Any = torch.ops.aten
_DispatchMode: Any = torch.utils._python_dispatch.TorchDispatchMode

HOST_VALUES = 65_536
"""A tensor on the host of more floats than this has no values: a model's weights need not be there to be counted."""

WORKSPACE_FRAMES = {
    "cublas": "at::cuda::getNewWorkspace()",
    "cublaslt": "at::cuda::getCUDABlasLtWorkspace()",
}
_TENSOR = "at::detail::empty_cuda(...)"
_ENGINE = "torch::autograd::Engine::evaluate_function(...)"
_HIDDEN_FILES = (
    *("estimate/traced/tracer.py", "recorder/modules.py", "torch/_ops.py", "torch/library.py"),
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


class Tracer(_DispatchMode):
    """Sees every operator below autograd, and writes down what a GPU's allocator would have been asked for."""

    def __init__(self, tape: Tape, card: Card, workspace: int) -> None:
        _DispatchMode.__init__(self)
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
            _route(library, self)
            _autocast(library, self)
            stack.enter_context(_gpu_defaults(self))
            stack.enter_context(torch._C._IncludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA))
            stack.enter_context(_numpy_known_missing())
            self.unshared = _use_counts()
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

    # Operators

    def __torch_dispatch__(
        self, operator: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        del types
        kwargs = kwargs or {}
        given = list(_tensors((args, kwargs)))
        if not any(tensor.is_meta for tensor in given):
            if not given:
                return self._make(operator, args, kwargs)
            if not _is_meta_device(kwargs.get("device")):
                return self._on_host(operator, args, kwargs)
        return self._on_device(operator, args, kwargs, given)

    def _make(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A tensor from nothing."""
        if _is_meta_device(kwargs.get("device")):
            return self._run(operator, args, kwargs)
        return self._on_host(operator, args, kwargs)

    def _on_host(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Work on the host costs a GPU nothing; what is large and made of floats has no values."""
        if "device" in kwargs and operator in _FACTORIES:
            planned = operator(*args, **kwargs | {"device": torch.device("meta")})
            if planned.dtype.is_floating_point and planned.numel() > HOST_VALUES:
                self._note_host(planned)
                return planned
        return operator(*args, **kwargs)

    def _on_device(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Any]) -> Any:
        if operator is aten._local_scalar_dense.default:
            return self._read(args[0])
        if any(not tensor.is_meta and tensor.dim() > 0 for tensor in given) and operator not in _COPIES:
            args, kwargs = _on_meta(args), _on_meta(kwargs)
        is_host = all(not tensor.is_meta or tensor.untyped_storage()._cdata in self.host for tensor in given)
        if is_host and not _is_meta_device(kwargs.get("device")):
            result = operator(*args, **kwargs | ({"device": torch.device("meta")} if "device" in kwargs else {}))
            for tensor in _tensors(result):
                if tensor.is_meta:
                    self._note_host(tensor)
            return result
        if "device" in kwargs and not _is_meta_device(kwargs["device"]) and kwargs["device"] is not None:
            return self._to_host(operator, args, kwargs)
        return self._run(operator, args, kwargs)

    def _to_host(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A copy from the device to the host: it has no values, but costs the device nothing."""
        result = operator(*args, **kwargs | {"device": torch.device("meta")})
        for tensor in _tensors(result):
            self._note_host(tensor)
        return result

    def _read(self, tensor: Any) -> object:
        """The program reads a number from the device: only a float can be made up, and that is said."""
        where = self._where()
        if tensor.dtype.is_floating_point:
            self.tape.assumed[f"a number read from the device at {where} was taken to be 1"] = None
            return 1.0
        raise TracekitError(
            f"the step reads a {str(tensor.dtype).removeprefix('torch.')} from the device at {where},"
            " and what it does with it cannot be known",
            "decide it on the host, or leave it out of what build returns",
        )

    def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        in_place = self._in_place(operator, args, kwargs)
        if in_place is not None:
            return in_place
        result = operator(*args, **kwargs)
        if not self.is_open:
            return result
        name = operator._schema.name.removeprefix("aten::")
        made = list(_tensors(result)) if not isinstance(result, torch.Tensor) else [result]
        is_new = [
            tensor.is_meta and tensor.untyped_storage()._cdata not in self.numbers and not self.is_host(tensor)
            for tensor in made
        ]
        self._judge(operator, name)
        if any(is_new) or name in kernel.RECIPES:
            self._write(operator, name, args, kwargs, result, made, is_new)
        return result

    def _judge(self, operator: Any, name: str) -> None:
        """Count an operator whose scratch memory is not known."""
        known = self.is_schema_known.get(operator)
        if known is None:
            known = self.is_schema_known[operator] = (
                kernel.is_known(name)
                or kernel.is_known(name.removesuffix("_"))
                or operator.namespace != "aten"
                or torch.Tag.pointwise in operator.tags
                or operator.is_view
            )
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
        flat = made if isinstance(result, torch.Tensor) else list(_leaves(result))
        if len(flat) != len(made):  # an output that is no tensor keeps its position
            news = iter(is_new)
            is_new = [isinstance(one, torch.Tensor) and next(news) for one in flat]
        call = Call(
            name,
            _arguments(operator, args, kwargs) if name in kernel.RECIPES else {},
            [_shape(one) if isinstance(one, torch.Tensor) else None for one in flat],
            is_new,
            self.card,
        )
        own = f"at::_ops::{name.removesuffix('_') if name.endswith('__') else _overload(operator)}::call(...)"
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
        self.finalizers.pop(address, None)
        if number is not None and self.is_open:
            self.tape.drop(number, self._stack(), self.label or None)

    def _note_host(self, tensor: Any) -> None:
        storage = tensor.untyped_storage()
        address = storage._cdata
        if address not in self.host and address not in self.numbers:
            self.host[address] = weakref.ref(storage, lambda _gone: self.host.pop(address, None) and None)

    def is_host(self, tensor: Any) -> bool:
        """Whether a tensor stands for memory of the host."""
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

        It does so where it holds the last reference to a tensor that is no view (input_buffer.cpp, accumulate).
        """
        if operator is not aten.add.Tensor or kwargs or len(args) != 2 or torch._C._current_graph_task_id() == -1:
            return None
        into, other = args
        if not (isinstance(into, torch.Tensor) and isinstance(other, torch.Tensor) and into.is_meta and other.is_meta):
            return None
        storage = into.untyped_storage()
        counts = (into._use_count(), torch._C._storage_Use_Count(storage._cdata))
        is_last = counts[0] <= self.unshared[0] and counts[1] <= self.unshared[1]
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
            found = self.hidden[filename] = plain.endswith(_HIDDEN_FILES)
        return found

    def _where(self) -> str:
        """The user's line that is being run, as file:line."""
        frame: FrameType | None = inspect.currentframe()
        while frame is not None:
            name = frame.f_code.co_filename.replace("\\", "/")
            if name != __file__.replace("\\", "/") and "/torch/" not in name and not name.startswith("<"):
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


# What a GPU would have chosen


def _route(library: Any, tracer: Tracer) -> None:
    """Give composite operators the way they take on a GPU; a meta tensor takes the CPU's."""

    def dropout(self: Any, p: float, train: bool) -> Any:
        if p in (0, 1) or not train or self.numel() == 0:
            return aten.dropout.default.decompose(self, p, train)
        return aten.native_dropout.default(self, p, train)[0]

    def to_dtype_layout(self: Any, **options: Any) -> Any:
        return _to(self, tracer, **options)

    def to_device(
        self: Any, device: Any, dtype: Any, non_blocking: bool = False, copy: bool = False, **rest: Any
    ) -> Any:
        return _to(self, tracer, device=device, dtype=dtype, non_blocking=non_blocking, copy=copy, **rest)

    def softmax(self: Any, dim: int, dtype: Any = None) -> Any:
        is_widened = dtype is torch.float32 and self.dtype in (torch.float16, torch.bfloat16)
        return aten._softmax.default(self if is_widened or dtype is None else self.to(dtype), dim, is_widened)

    def log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
        is_widened = dtype is torch.float32 and self.dtype in (torch.float16, torch.bfloat16)
        return aten._log_softmax.default(self if is_widened or dtype is None else self.to(dtype), dim, is_widened)

    def linear(self: Any, weight: Any, bias: Any = None) -> Any:
        if bias is None or self.dim() < 3 or (self.dim() == 3 and self.is_contiguous()):
            return aten.linear.default.decompose(self, weight, bias)
        return aten.matmul.default(self, aten.t.default(weight)).add_(bias)  # under a mode torch adds out of place

    def attention(
        query: Any,
        key: Any,
        value: Any,
        mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        return _attention(tracer, query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)

    library.impl("dropout", dropout, "AutogradMeta")
    library.impl("softmax.int", softmax, "AutogradMeta")
    library.impl("log_softmax.int", log_softmax, "AutogradMeta")
    library.impl("linear", linear, "AutogradMeta")
    library.impl("scaled_dot_product_attention", attention, "AutogradMeta")
    library.impl("to.dtype_layout", to_dtype_layout, "AutogradMeta")
    library.impl("to.device", to_device, "AutogradMeta")


_AUTOCAST: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def _autocast(library: Any, tracer: Tracer) -> None:
    """Cast as on a GPU where autocast is on; the lists are autocast_mode.h's.

    The key of a GPU's autocast is included while tracing, and excluded by torch itself unless autocast is on.
    """
    rows = Path(__file__).with_name("autocast.csv").read_text(encoding="utf-8").split()[1:]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        for name, policy in (row.split(",") for row in rows):
            for overload in getattr(aten, name).overloads():
                operator = getattr(getattr(aten, name), overload)
                if "out" not in overload and "names" not in overload:
                    full = name if overload == "default" else f"{name}.{overload}"
                    library.impl(full, _casting(operator, policy, tracer), "AutocastCUDA")


def _casting(operator: Any, policy: str, tracer: Tracer) -> Callable[..., Any]:
    has_dtype = any(argument.name == "dtype" for argument in operator._schema.arguments)

    def call(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            if policy == "result":
                first = next(_tensors(args), None)
                is_open = first is not None and first.is_meta and first.dtype.is_floating_point
                if has_dtype and is_open and kwargs.get("dtype") is None and not _has_dtype(args):
                    kwargs = kwargs | {"dtype": torch.float32}
                return operator(*args, **kwargs)
            dtype = _target(policy, args, kwargs)

            def change(value: Any) -> Any:
                if isinstance(value, torch.Tensor):
                    return tracer.cast(value, dtype, is_kept=policy == "lower")
                if isinstance(value, (list, tuple)):
                    return [change(one) for one in cast("list[Any]", value)]
                return value

            named = {name: change(value) for name, value in reversed(kwargs.items())}
            last_first = [change(value) for value in reversed(args)]  # as the compiler evaluates a call's arguments
            return operator(*reversed(last_first), **named)

    return call


def _has_dtype(args: Any) -> bool:
    return any(isinstance(value, torch.dtype) for value in args)


def _target(policy: str, args: Any, kwargs: Any) -> Any:
    if policy == "lower":
        return torch.get_autocast_dtype("cuda")
    if policy == "float":
        return torch.float32
    floats = [one.dtype for one in _tensors((args, kwargs)) if one.dtype.is_floating_point]
    return max(floats, key=lambda dtype: dtype.itemsize, default=torch.float32)


def _attention(
    tracer: Tracer,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    """The kernel that a GPU chooses (sdp_utils.cpp): cuDNN's, flash, memory-efficient attention, or plain products."""
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    needs_sums = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    is_half = query.dtype in (torch.float16, torch.bfloat16)
    is_four = query.dim() == key.dim() == value.dim() == 4
    width = query.shape[-1]
    is_dense = all(one.stride(-1) == 1 for one in (query, key, value, *([] if mask is None else [mask])))
    if not is_four or not is_dense or width % 4:
        return _plain_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
    if is_half and tracer.card.major in (9, 10) and width % 8 == 0 and width <= 128:
        return aten._scaled_dot_product_cudnn_attention.default(
            query, key, value, mask, needs_sums, dropout_p, is_causal, False, scale=scale
        )[0]
    if is_half and tracer.card.major >= 8 and mask is None and width <= 256 and width % 8 == 0:
        return aten._scaled_dot_product_flash_attention.default(
            query, key, value, dropout_p, is_causal, False, scale=scale
        )[0]
    if enable_gqa and key.shape[1] != query.shape[1]:
        return _plain_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)
    return aten._scaled_dot_product_efficient_attention.default(
        query, key, value, mask, needs_sums, dropout_p, is_causal, scale=scale
    )[0]


def _plain_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    return aten._scaled_dot_product_attention_math.default(
        query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
    )[0]


def _to(tensor: Any, tracer: Tracer, **options: Any) -> Any:
    """A copy to another place or dtype; the host's storages are meta tensors too, and moving one is a copy."""
    device, dtype = options.get("device"), options.get("dtype")
    moves = device is not None and _is_meta_device(device) == tracer.is_host(tensor)
    if not moves and not options.get("copy") and dtype in (None, tensor.dtype):
        return tensor
    return aten._to_copy.default(tensor, dtype=dtype, device=device, memory_format=options.get("memory_format"))


@contextlib.contextmanager
def _gpu_defaults(tracer: Tracer) -> Generator[None]:
    """Optimizers work on all tensors at once, as they choose to on a GPU; autocast and its scaler are a GPU's."""
    _foreach_utils = importlib.import_module("torch.utils._foreach_utils")
    names = ("_get_foreach_kernels_supported_devices", "_get_fused_kernels_supported_devices")
    kept = {name: getattr(_foreach_utils, name) for name in names}
    modules = [module for module in sys.modules.values() if getattr(module, "__name__", "").startswith("torch.")]
    holders = [(module, name) for module in modules for name in names if vars(module).get(name) is kept[name]]
    with contextlib.ExitStack() as stack:
        for holder, name in holders:
            _set(stack, holder, name, lambda kept=kept[name]: [*kept(), "meta"])
        _set(stack, torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        _set(stack, torch.cuda, "is_bf16_supported", lambda *_, **__: True)
        for module in (torch.amp.autocast_mode, torch.amp.grad_scaler):
            if hasattr(module, "amp_definitely_not_available"):
                _set(stack, module, "amp_definitely_not_available", lambda: False)
        begin, clear = torch.autocast.__init__, torch.clear_autocast_cache

        def on_gpu(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
            begin(self, "cuda" if device_type == "meta" else device_type, *args, **kwargs)

        def forget() -> None:
            tracer.casts.clear()
            clear()

        _set(stack, torch.autocast, "__init__", on_gpu)
        _set(stack, torch, "clear_autocast_cache", forget)
        checkpoint = importlib.import_module("torch.utils.checkpoint")
        _set(stack, checkpoint, "_infer_device_type", lambda *_: "cuda")
        yield


def _set(stack: contextlib.ExitStack, holder: Any, name: str, value: Any) -> None:
    """Put something in a module's place until the stack is left."""
    stack.callback(setattr, holder, name, getattr(holder, name))
    setattr(holder, name, value)


@contextlib.contextmanager
def _numpy_known_missing() -> Generator[None]:
    """Where there is no NumPy, let Python remember that: torch asks for it at every operator."""
    is_missing = "numpy" not in sys.modules and importlib.util.find_spec("numpy") is None
    if is_missing:
        sys.modules["numpy"] = cast("Any", None)  # importing it fails at once
    try:
        yield
    finally:
        if is_missing:
            del sys.modules["numpy"]


def _use_counts() -> tuple[int, int]:
    """References to a tensor and its storage, as a mode sees them, when the engine holds the only other ones."""
    seen: list[tuple[int, int]] = []

    class _Look(_DispatchMode):
        def __torch_dispatch__(self, operator: Any, types: object, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if operator is aten.add.Tensor and torch._C._current_graph_task_id() != -1:
                seen.append((args[0]._use_count(), torch._C._storage_Use_Count(args[0].untyped_storage()._cdata)))
            return operator(*args, **(kwargs or {}))

    leaf = torch.ones(2, device="meta", requires_grad=True)
    with _Look():
        x = leaf * 2
        (x * 3 + x * 4).sum().backward()
    return seen[0]


# Small things


_COPIES = frozenset([aten.copy_.default, aten._to_copy.default])


_FACTORIES = frozenset(
    getattr(getattr(aten, name), overload)
    for name in (
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "eye",
        "linspace",
        "arange",
        "empty_strided",
        "normal",
    )
    for overload in getattr(aten, name).overloads()
    if not overload.endswith("out") and "names" not in overload
)


def _is_meta_device(device: object) -> bool:
    return device is not None and torch.device(device).type == "meta"  # pyright: ignore[reportArgumentType]


def _leaves(value: object) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for one in cast("list[object]", value):
            yield from _leaves(one)
    else:
        yield value


def _tensors(value: object) -> Iterator[Any]:
    """The tensors among arguments or results, containers looked into."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in cast("list[object]", value):
            yield from _tensors(one)
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from _tensors(one)


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value if value.is_meta or value.dim() == 0 else value.to("meta")
    if isinstance(value, (list, tuple)):
        return [_on_meta(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: _on_meta(one) for key, one in cast("dict[str, object]", value).items()}
    return value


def _shape(tensor: Any) -> Shape:
    return Shape(
        tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size(), str(tensor.dtype).removeprefix("torch.")
    )


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return _shape(value)
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in cast("list[object]", value)]
    return value


def _arguments(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a call was given, by the names of its schema."""
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return {name: _described(value) for name, value in given.items()}


def _overload(operator: Any) -> str:
    """An operator's name as its C++ class has it: add_Tensor, mm."""
    name = operator._schema.name.removeprefix("aten::")
    overload = operator._overloadname
    return name if overload in ("", "default") else f"{name}_{overload}"
