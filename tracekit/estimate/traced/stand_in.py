"""What torch is told while it is traced, so that it chooses as it would on a GPU; all of it taken back afterwards."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, cast

from tracekit.estimate.traced.door import DispatchMode, aten, is_gpu, torch

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer


@contextlib.contextmanager
def gpu_defaults(tracer: Tracer) -> Generator[None]:
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
        _set(stack, torch.cuda, "is_bf16_supported", _true)
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
        _set(stack, torch.cuda, "empty_cache", tracer.empty_cache)
        for name in ("_lazy_init", "synchronize", "set_device"):
            _set(stack, torch.cuda, name, _do_nothing())
        _set(stack, torch, "tensor", _by_way_of_host(torch.tensor))
        _set(stack, torch.Tensor, "cuda", _to_gpu)
        _set(stack, torch.Tensor, "pin_memory", _itself)
        yield


def _true(*_: object, **__: object) -> bool:
    return True


def _do_nothing() -> Callable[..., None]:
    """A function of its own for each name: torch lists its functions, and takes no two names for one."""

    def do_nothing(*_: object, **__: object) -> None:
        pass

    return do_nothing


def _gpu_type(*_: object) -> str:
    return "cuda"


def _by_way_of_host(make: Callable[..., Any]) -> Callable[..., Any]:
    """A tensor from a program's own numbers: made on the host and moved, so that its values are known."""

    def tensor(data: Any, *, device: Any = None, requires_grad: bool = False, **options: Any) -> Any:
        if not is_gpu(device):
            return make(data, device=device, requires_grad=requires_grad, **options)
        return make(data, **options).to("meta").requires_grad_(requires_grad)

    return tensor


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
