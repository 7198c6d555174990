"""Recurrent layers as cuDNN runs them: weights in one buffer, one call forward and one backward, whatever the length.

What such a call takes besides its outputs is `kernel`'s; nothing is written down here.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tracekit.estimate.traced.door import aten, torch
from tracekit.estimate.traced.kernel import recurrent_reserve

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer

_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}
"""cuDNN's numbers for the kinds of layers."""


def register(library: Any, tracer: Tracer) -> None:
    """Have recurrent layers go to cuDNN, and say what that returns."""
    for name, mode in _MODES.items():
        library.impl(f"{name}.input", _route(name, mode, tracer), "AutogradMeta")
        library.impl(f"{name}.data", _packed(getattr(aten, name).data, tracer), "AutogradMeta")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*Overriding a previously registered kernel")
        library.impl("_cudnn_rnn", _forward, "Meta")
        library.impl("_cudnn_rnn_backward", _backward, "Meta")


def flatten_on_gpu(stack: contextlib.ExitStack, tracer: Tracer, put: Callable[..., None]) -> None:
    """A layer that is moved to a GPU has its weights copied into one buffer, of which they are views from then on."""

    def flatten(self: Any) -> None:
        weights: list[Any] = [weight for weight in self._flat_weights if isinstance(weight, torch.Tensor)]
        is_there = all(weight.is_meta and not tracer.is_host(weight) for weight in weights)
        if not is_there or len(weights) != len(self._flat_weights):
            return
        if len({weight.untyped_storage()._cdata for weight in weights}) == 1:
            return
        with torch.no_grad():
            views = _views(weights)
            for weight, view in zip(weights, views, strict=True):
                view.copy_(weight)
            for weight, view in zip(weights, views, strict=True):
                weight.data = view

    put(stack, torch.nn.RNNBase, "flatten_parameters", flatten)


def _views(weights: Sequence[Any]) -> list[Any]:
    """Views into a new buffer, one for each weight."""
    flat = weights[0].new_zeros(sum(weight.numel() for weight in weights))
    parts = flat.split([weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def _route(name: str, mode: int, tracer: Tracer) -> Callable[..., Any]:
    def call(
        x: Any,
        hidden: Any,
        params: Any,
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if name != "lstm":
            tracer.tape.unknown[f"aten.{name} by cuDNN"] += 1
        hx, cx = hidden if name == "lstm" else (hidden, None)
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            x, hx = (tracer.cast(one, dtype, is_kept=False) for one in (x, hx))
            cx = None if cx is None else tracer.cast(cx, dtype, is_kept=False)
            params = [tracer.cast(one, dtype, is_kept=False) for one in params]
        width = (hx if cx is None else cx).shape[-1]
        projected = hx.shape[-1] if hx.shape[-1] != width else 0
        buffer = (
            params[0].new_empty(0).set_(params[0].untyped_storage(), 0, (sum(one.numel() for one in params),), (1,))
        )
        output, hy, cy, _, _ = aten._cudnn_rnn.default(
            *(x, params, 4 if has_biases else 2, buffer, hx, cx, mode, width, projected, layers),
            *(batch_first, dropout, train, bidirectional, [], None),
        )
        return (output, hy, cy) if name == "lstm" else (output, hy)

    return call


def _packed(operator: Any, tracer: Tracer) -> Callable[..., Any]:
    """Sequences of several lengths go step by step, and are named: what cuDNN does with them is not known here."""

    def call(*args: Any, **kwargs: Any) -> Any:
        tracer.tape.unknown[f"{operator} by cuDNN"] += 1
        return operator.decompose(*args, **kwargs)

    return call


def _forward(
    x: Any,
    weight: Any,
    _stride: int,
    buffer: Any,
    hx: Any,
    cx: Any,
    mode: int,
    width: int,
    projected: int,
    layers: int,
    batch_first: bool,
    _dropout: float,
    train: bool,
    bidirectional: bool,
    _sizes: Any,
    _state: Any,
) -> Any:
    """Outputs as cuDNN lays them: time first, so that what is batch-first is a transposed view."""
    del weight
    length, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
    directions = 2 if bidirectional else 1
    output = x.new_empty((length, batch, (projected or width) * directions))
    kept = recurrent_reserve(mode, layers * directions, length, batch * width * x.element_size()) if train else 0
    return (
        output.transpose(0, 1) if batch_first else output,
        torch.empty_like(hx, memory_format=torch.contiguous_format),
        x.new_empty(0) if cx is None else torch.empty_like(cx, memory_format=torch.contiguous_format),
        x.new_empty(kept, dtype=torch.uint8),
        buffer,
    )


def _backward(
    x: Any,
    weight: Sequence[Any],
    _stride: int,
    _buffer: Any,
    hx: Any,
    cx: Any,
    _output: Any,
    _grad_output: Any,
    _grad_hy: Any,
    _grad_cy: Any,
    _mode: int,
    _width: int,
    _projected: int,
    _layers: int,
    batch_first: bool,
    *_rest: Any,
) -> Any:
    """Gradients of the input, of the states, and of the weights: views into one buffer."""
    shape = (x.shape[1], x.shape[0], x.shape[2]) if batch_first else x.shape
    gradient = x.new_empty(shape)
    return (
        gradient.transpose(0, 1) if batch_first else gradient,
        torch.empty_like(hx, memory_format=torch.contiguous_format),
        x.new_empty(0) if cx is None else torch.empty_like(cx, memory_format=torch.contiguous_format),
        _views(weight),
    )
