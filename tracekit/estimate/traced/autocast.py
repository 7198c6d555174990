"""Autocast as on a GPU: which operators cast which way. The copies themselves are the tracer's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from tracekit.estimate.traced.door import aten, tensors, torch

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer

KEYS: Any = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)


def register(library: Any, tracer: Tracer) -> None:
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
        with torch._C._ExcludeDispatchKeyGuard(KEYS):
            if policy == "result":
                first = next(tensors(args), None)
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
    floats = [one.dtype for one in tensors((args, kwargs)) if one.dtype.is_floating_point]
    return max(floats, key=lambda dtype: dtype.itemsize, default=torch.float32)
