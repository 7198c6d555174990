"""Composite operators by the way they take on a GPU, where a tensor without data would take the CPU's.

Each is registered for meta tensors while a step is traced; nothing is written down here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracekit.estimate.traced.door import aten, is_gpu, torch

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer

_HALVES = (torch.float16, torch.bfloat16)


def register(library: Any, tracer: Tracer) -> None:
    """Register every route."""

    def move(self: Any, **options: Any) -> Any:
        return _to(self, tracer, **options)

    def move_to(
        self: Any, device: Any, dtype: Any, _non_blocking: bool = False, copy: bool = False, **rest: Any
    ) -> Any:
        return _to(self, tracer, device=device, dtype=dtype, copy=copy, **rest)

    def attention(*args: Any, **kwargs: Any) -> Any:
        return _attention(tracer, *args, **kwargs)

    routes: dict[str, Callable[..., Any]] = {
        "dropout": _dropout,
        "linear": _linear,
        "log_softmax.int": _log_softmax,
        "scaled_dot_product_attention": attention,
        "softmax.int": _softmax,
        "to.device": move_to,
        "to.dtype_layout": move,
    }
    if hasattr(aten, "_fused_rms_norm"):
        routes["rms_norm"] = _rms_norm
    for name, route in routes.items():
        library.impl(name, route, "AutogradMeta")


def _dropout(self: Any, p: float, train: bool) -> Any:
    if p in (0, 1) or not train or self.numel() == 0:
        return aten.dropout.default.decompose(self, p, train)
    return aten.native_dropout.default(self, p, train)[0]


def _softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    is_widened = dtype is torch.float32 and self.dtype in _HALVES
    return aten._softmax.default(self if is_widened or dtype is None else self.to(dtype), dim, is_widened)


def _log_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    is_widened = dtype is torch.float32 and self.dtype in _HALVES
    return aten._log_softmax.default(self if is_widened or dtype is None else self.to(dtype), dim, is_widened)


def _linear(self: Any, weight: Any, bias: Any = None) -> Any:
    if bias is None or self.dim() < 3 or (self.dim() == 3 and self.is_contiguous()):
        return aten.linear.default.decompose(self, weight, bias)
    return aten.matmul.default(self, aten.t.default(weight)).add_(bias)  # under a mode torch adds out of place


def _rms_norm(self: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    return aten._fused_rms_norm.default(self, shape, weight, eps)[0]


def _attention(
    tracer: Tracer,
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
    """The kernel that a GPU chooses (sdp_utils.cpp): cuDNN's, flash, memory-efficient attention, or plain products."""
    if mask is not None and mask.dtype is torch.bool:
        mask = torch.where(mask, 0.0, float("-inf")).to(query.dtype)
    needs_sums = torch.is_grad_enabled() and any(one.requires_grad for one in (query, key, value))
    is_half = query.dtype in _HALVES
    is_four = query.dim() == key.dim() == value.dim() == 4
    width = query.shape[-1]
    is_dense = all(one.stride(-1) == 1 for one in (query, key, value, *([] if mask is None else [mask])))
    may = torch.backends.cuda
    if is_four and is_dense and is_half:
        if may.cudnn_sdp_enabled() and tracer.card.major in (9, 10) and width % 8 == 0 and width <= 128:
            return aten._scaled_dot_product_cudnn_attention.default(
                query, key, value, mask, needs_sums, dropout_p, is_causal, False, scale=scale
            )[0]
        if may.flash_sdp_enabled() and tracer.card.major >= 8 and mask is None and width <= 256:
            return _flash_attention(query, key, value, dropout_p, is_causal, scale)
    is_grouped = enable_gqa and key.shape[1] != query.shape[1]
    is_aligned = is_four and is_dense and width % (8 if is_half else 4) == 0
    if is_aligned and not is_grouped and may.mem_efficient_sdp_enabled():
        return aten._scaled_dot_product_efficient_attention.default(
            query, key, value, mask, needs_sums, dropout_p, is_causal, scale=scale
        )[0]
    return _plain_attention(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)


def _flash_attention(query: Any, key: Any, value: Any, dropout_p: float, is_causal: bool, scale: float | None) -> Any:
    """Heads whose width is no multiple of eight are filled up to one, and the output is cut (attention.cpp)."""
    width = query.shape[-1]
    if width % 8:
        query, key, value = (aten.constant_pad_nd.default(one, [0, -width % 8], 0.0) for one in (query, key, value))
    made = aten._scaled_dot_product_flash_attention.default(
        query, key, value, dropout_p, is_causal, False, scale=width**-0.5 if scale is None else scale
    )[0]
    return made[..., :width] if width % 8 else made


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
    moves = device is not None and is_gpu(device) == tracer.is_host(tensor)
    if not moves and not options.get("copy") and dtype in (None, tensor.dtype):
        return tensor
    return aten._to_copy.default(tensor, dtype=dtype, device=device, memory_format=options.get("memory_format"))
