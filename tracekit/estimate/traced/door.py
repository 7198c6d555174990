"""The one door to torch: what the tracer and those beside it need of it, and tensors told in plain words.

No operator is judged and nothing is written down here.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, cast

from tracekit.estimate.traced.kernel import Shape

with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "Failed to initialize NumPy")  # which nothing here asks for
    torch: Any = importlib.import_module("torch")  # by name, as it is not there where this is checked
aten: Any = torch.ops.aten
DispatchMode: Any = torch.utils._python_dispatch.TorchDispatchMode


def is_gpu(device: Any) -> bool:
    """Whether a device is the one stood in for: it is called meta, and a script may call it cuda."""
    return device is not None and torch.device(device).type in ("meta", "cuda")


def leaves(value: object) -> Iterator[Any]:
    """What an operator returned, one by one, tensor or not."""
    if isinstance(value, (list, tuple)):
        for one in cast("list[object]", value):
            yield from leaves(one)
    else:
        yield value


def tensors(value: object) -> Iterator[Any]:
    """The tensors among arguments or results, containers looked into."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in cast("list[object]", value):
            yield from tensors(one)
    elif isinstance(value, dict):
        for one in cast("dict[str, object]", value).values():
            yield from tensors(one)


def on_meta(value: Any) -> Any:
    """Arguments with every tensor on the meta device, but for single numbers, which may be anywhere."""
    if isinstance(value, torch.Tensor):
        return value if value.is_meta or value.dim() == 0 else value.to("meta")
    if isinstance(value, (list, tuple)):
        return [on_meta(one) for one in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: on_meta(one) for key, one in cast("dict[str, object]", value).items()}
    return value


def shape_of(tensor: Any) -> Shape:
    """A tensor as a kernel sees it."""
    return Shape(
        tuple(tensor.shape), tuple(tensor.stride()), tensor.element_size(), str(tensor.dtype).removeprefix("torch.")
    )


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return shape_of(value)
    if isinstance(value, (list, tuple)):
        return [_described(one) for one in cast("list[object]", value)]
    return value


def arguments_of(operator: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a call was given, by the names of its schema."""
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    return {name: _described(value) for name, value in given.items()}


def overload_of(operator: Any) -> str:
    """An operator's name as its C++ class has it: add_Tensor, mm."""
    name = operator._schema.name.removeprefix("aten::")
    overload = operator._overloadname
    return name if overload in ("", "default") else f"{name}_{overload}"
