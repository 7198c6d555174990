"""What torch is told while it is traced, so that it chooses as it would on a GPU; all of it taken back afterwards."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from tracekit.estimate.traced import cuda, recurrent
from tracekit.estimate.traced.door import DispatchMode, aten, is_gpu, torch

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer


@contextlib.contextmanager
def gpu_defaults(tracer: Tracer) -> Generator[None]:
    """Optimizers work on all tensors at once, as they choose to on a GPU; autocast and its scaler are a GPU's."""
    kept = {name: getattr(importlib.import_module(module), name) for module, name in _SUPPORTED_DEVICES}
    modules = [module for module in sys.modules.values() if getattr(module, "__name__", "").startswith("torch.")]
    holders = [(module, name) for module in modules for name in kept if vars(module).get(name) is kept[name]]
    with contextlib.ExitStack() as stack:
        for holder, name in holders:
            _set(stack, holder, name, _and_meta(kept[name]))
        _set(stack, torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        # whether a distribution's arguments are valid hangs on data
        _set(stack, torch.distributions.Distribution, "_validate_args", False)
        _weights_without_values(stack, tracer)
        cuda.pretend(stack, tracer, _set)
        recurrent.flatten_on_gpu(stack, tracer, _set)
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
        _set(stack, checkpoint, "_infer_device_type", _gpu_type)
        _set(stack, torch, "compile", tracer.leave_out_compile)
        _set(stack, torch, "tensor", _by_way_of_host(torch.tensor))
        _set(stack, torch.Tensor, "cuda", _to_gpu)
        _set(stack, torch.Tensor, "__format__", _told(torch.Tensor.__format__))
        _set(stack, torch.Tensor, "pin_memory", _itself)
        yield


def _and_meta(supported: Callable[..., list[str]]) -> Callable[..., list[str]]:
    def listed(*args: Any, **kwargs: Any) -> list[str]:
        return [*supported(*args, **kwargs), "meta"]

    return listed


_SUPPORTED_DEVICES = (
    ("torch.utils._foreach_utils", "_get_foreach_kernels_supported_devices"),
    ("torch.utils._foreach_utils", "_get_fused_kernels_supported_devices"),
    ("torch.optim.optimizer", "_get_capturable_supported_devices"),
)
"""Functions that list the devices on which an optimizer may choose a way to run."""


def _weights_without_values(stack: contextlib.ExitStack, tracer: Tracer) -> None:
    """Make a model's weights without values from the start, also on the host.

    Moving a module to a GPU gives its weights new data and keeps them; between real data and none torch would make new
    ones, of which neither a tied weight nor an optimizer would know, and a lazy module would not remain one.
    """
    parameter = torch.nn.Parameter
    make = parameter.__new__

    def new(kind: Any, data: Any = None, requires_grad: bool = True) -> Any:
        return make(kind, tracer.without_values(torch.empty(0) if data is None else data), requires_grad)

    stack.callback(setattr, parameter, "__new__", staticmethod(make))
    parameter.__new__ = staticmethod(new)
    lazy = importlib.import_module("torch.nn.parameter")
    for kind in (lazy.UninitializedParameter, lazy.UninitializedBuffer):
        stack.callback(setattr, kind, "__new__", staticmethod(kind.__new__))
        kind.__new__ = staticmethod(tracer.made_without_values(kind.__new__))
    materialize = lazy.UninitializedTensorMixin.materialize

    def where_it_is(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        stays = device is None and tracer.is_host(self.data)
        tracer.made_without_values(materialize)(self, shape, "cpu" if stays else device, dtype)

    _set(stack, lazy.UninitializedTensorMixin, "materialize", where_it_is)


def _gpu_type(*_: object) -> str:
    return "cuda"


def _by_way_of_host(make: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor from a program's own numbers: made on the host and moved, so that its values are known."""

    def tensor(data: Any, *, device: Any = None, requires_grad: bool = False, **options: Any) -> Any:
        if not is_gpu(device):
            return make(data, device=device, requires_grad=requires_grad, **options)
        return make(data, **options).to("meta").requires_grad_(requires_grad)

    return tensor


def _told(tell: Callable[..., str]) -> Callable[..., str]:
    """A tensor in a text: a single number is read from the device."""

    def format_number(self: Any, how: str) -> str:
        return self.item().__format__(how) if self.is_meta and self.dim() == 0 else tell(self, how)

    return format_number


def _itself(self: Any, *_: object, **__: object) -> Any:
    """A tensor's pin_memory(): it stays on the host."""
    return self


def _to_gpu(self: Any, *_: object, **__: object) -> Any:
    """A tensor's cuda()."""
    return self.to("meta")


def _set(stack: contextlib.ExitStack, holder: Any, name: str, value: Any) -> None:
    """Put something in a module's place until the stack is left."""
    stack.callback(setattr, holder, name, getattr(holder, name))
    setattr(holder, name, value)


@contextlib.contextmanager
def compiler_left_alone() -> Generator[None]:
    """Torch's compiler takes seconds to import, and torch imports it to tell it what not to compile."""
    name = "torch._dynamo"
    is_missing = name not in sys.modules
    if is_missing:
        sys.modules[name] = _Compiler(name)
    try:
        yield
    finally:
        if is_missing and isinstance(sys.modules.get(name), _Compiler):
            del sys.modules[name]


class _Compiler(types.ModuleType):
    """The compiler's module until somebody wants more of it than not to compile."""

    @staticmethod
    def disable(function: Any = None, *_: object, **__: object) -> Any:
        """The function as it is."""
        return _same if function is None else function

    @staticmethod
    def graph_break(*_: object, **__: object) -> None:
        """Nothing is compiled that could break."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


def _same(function: Any) -> Any:
    return function


@contextlib.contextmanager
def numpy_known_missing() -> Generator[None]:
    """Where there is no NumPy, let Python remember that: torch asks for it at every operator."""
    is_missing = "numpy" not in sys.modules and importlib.util.find_spec("numpy") is None
    if is_missing:
        sys.modules["numpy"] = cast("Any", None)  # importing it fails at once
    try:
        yield
    finally:
        if is_missing:
            del sys.modules["numpy"]


def use_counts() -> tuple[int, int]:
    """References to a tensor and its storage, as a mode sees them, when the engine holds the only other ones."""
    seen: list[tuple[int, int]] = []

    class _Look(DispatchMode):
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
