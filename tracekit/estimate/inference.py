"""Generating instead of training: weights, the KV cache, and what a block needs while it runs.

Nothing is saved for a backward here; the tensors of training are in the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tracekit.estimate import activations, static
from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.tensors import Tensor

MOMENTS = (
    ("prefill", "forward", "all tokens go through the model once"),
    ("decode", "forward", "one token more, with the keys and values of all before it"),
)


def kv_cache(run: Run) -> Tensor:
    """Keys and values of every token: 2·L·B·T·K·D·s bytes.

    GPT-2 in fp32, batch 8 of 1,024 tokens: 576 MiB.
    """
    return Tensor("keys and values", "kv_cache", 2 * run.precision.compute_bytes, ("B", "T", "G"), ("L",), tensors=2)


def pinned_cache(run: Run) -> Tensor:
    """The same where the cache holds views of one projection of query, key and value: a view keeps all of it alive.

    L·B·T·(H + 2K)·D·s bytes: (H + 2K) / 2K times the cache, 864 MiB where it is 576.
    """
    each = run.precision.compute_bytes
    return Tensor("projections that keys and values are views of", "kv_cache", each, ("B", "T", "Q+2G"), ("L",))


def alive(shape: Shape, run: Run) -> Mapping[tuple[str, str], list[Tensor]]:
    """The tensors of every place of a generation, by moment and place."""
    owned = [
        *static.parameters(shape, run),
        *static.buffers(shape, run),
        *static.workspaces(shape, run),
        kv_cache(run),
        Tensor("tokens", "input", 8, ("B", "T")),
    ]
    return {
        ("prefill", "a block's attention"): [*owned, *_attention(shape, run)],
        ("prefill", "a block's MLP"): [*owned, *_mlp(run)],
        ("prefill", "scores"): [*owned, *_scores(run)],
        ("decode", "scores"): [*owned, Tensor("logits", "logits_and_loss", run.precision.compute_bytes, ("B", "V"))],
    }


def _attention(shape: Shape, run: Run) -> Iterator[Tensor]:
    """The stream, its norm, query, key and value, and what attention itself holds."""
    each = run.precision.compute_bytes
    yield _held("stream and norm", 2 * run.precision.residual_bytes, ("B", "T", "C"), 2)
    yield _held("query, key and value", each, ("B", "T", "Q+2G"))
    if run.is_eager:
        yield _held("attention probabilities", run.precision.softmax_bytes, activations.SCORES)
    yield from activations.attention_temporaries(shape, run)


def _mlp(run: Run) -> Iterator[Tensor]:
    """The stream, its norm, and the inside of the MLP: two tensors as wide at once."""
    yield _held("stream and norm", 2 * run.precision.residual_bytes, ("B", "T", "C"), 2)
    yield _held("inside of the MLP", 2 * run.precision.compute_bytes, ("B", "T", "F"), 2)
    yield from activations.mlp_temporaries(run)


def _scores(run: Run) -> Iterator[Tensor]:
    """The scores of all words: of every token in plain code, of the last one only in transformers' generate."""
    dims = ("B", "V") if run.is_huggingface else ("B", "T", "V")
    yield Tensor("logits", "logits_and_loss", run.precision.compute_bytes, dims)
    yield _held("stream and norm", 2 * run.precision.residual_bytes, ("B", "T", "C"), 2)


def _held(name: str, each: int, dims: tuple[str, ...], tensors: int = 1) -> Tensor:
    return Tensor(name, "forward_temporary", each, dims, tensors=tensors)
