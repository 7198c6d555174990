"""What a block saves in the forward for the backward, and what it allocates and frees in between.

Sources: Korthikanti 2022 (sbh(34 + 5as/h) with its dropout; without it the eager bf16 block here is that plus the mask
and the norms' statistics) and the operators' own rules in torch, checked against recordings. N = B·T tokens; a score
matrix is B·H·T².
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.tensors import Tensor

TOKENS = ("B", "T")
SCORES = ("B", "H", "T", "T")


def attention_saved(shape: Shape, run: Run) -> list[Tensor]:
    """The attention half of a block, dropout aside.

    One type of s bytes, layer_norm, as many kv heads as heads: s·(5N·C + B·H·T²) + T² + 8N eager, s·5N·C + 4B·H·T + 8N
    fused. Under torch.autocast the norm's input stays fp32 and the linear saves a copy in half precision; the softmax
    is fp32 and its half copy is saved too: 6 bytes a score.
    """
    return [
        *norm_saved(shape, run, "norm 1", is_trained=not run.is_adapted),
        *linear_input(run, "norm 1's output", "C", "qkv", 1 if shape.has_fused_qkv else 3),
        *adapter_saved(shape, run, "qkv"),
        *(_eager(shape, run) if run.is_eager else _fused(shape, run)),
        *adapter_saved(shape, run, "output"),
        *dropout_mask(run, "attention's dropout mask", (*TOKENS, "C")),
    ]


def mlp_saved(shape: Shape, run: Run) -> list[Tensor]:
    """The MLP half of a block, dropout aside.

    gelu and silu save their input, relu its output, which the next linear saves anyway: s·(3N·C + 2N·F) + 8N with gelu.
    transformers' gelu_new is written in single operations and saves four tensors of N·F, of which torch.autocast keeps
    three in fp32. A gate saves four: s·4N·F for gate, its silu, up and their product.
    """
    return [
        *norm_saved(shape, run, "norm 2", is_trained=not run.is_adapted),
        *linear_input(run, "norm 2's output", "C", "up", 2 if shape.is_gated else 1),
        *adapter_saved(shape, run, "up"),
        *_activation(shape, run),
        *adapter_saved(shape, run, "down"),
        *dropout_mask(run, "the MLP's dropout mask", (*TOKENS, "C")),
    ]


def norm_saved(shape: Shape, run: Run, name: str, *, is_trained: bool) -> Iterator[Tensor]:
    """What one norm saves: its input, and fp32 statistics of every token.

    layer_norm: s·N·C + 8N (mean and inverse deviation). A fused rms_norm: s·N·C + 4N. transformers' rms_norm is written
    in single operations: a copy in fp32, the normalised values in the stream's type where the weight is trained, and
    the inverse deviation, 4N·C + s·N·C + 4N.
    """
    stream = run.precision.residual_bytes
    if shape.norm == "layer_norm":
        yield _saved(f"{name}'s input", stream, (*TOKENS, "C"))
        yield _saved(f"{name}'s mean and deviation", 8, TOKENS, tensors=2)
        return
    if run.is_huggingface:
        yield _saved(f"{name}'s input in fp32", 4, (*TOKENS, "C"))
        if is_trained:
            yield _saved(f"{name}'s normalised values", stream, (*TOKENS, "C"))
    else:
        yield _saved(f"{name}'s input", stream, (*TOKENS, "C"))
    yield _saved(f"{name}'s deviation", 4, TOKENS)


def linear_input(run: Run, name: str, width: str, place: str, consumers: int) -> Iterator[Tensor]:
    """The input that a linear layer saves for the gradient of its weight: s·N·width.

    A frozen weight needs none, unless an adapter stands beside it. torch.autocast casts anew for every linear that
    reads the same tensor; otherwise they share it.
    """
    if run.is_adapted and place not in run.places:
        return
    copies = consumers if run.precision.is_autocast else 1
    yield _saved(name, run.precision.linear_input_bytes * copies, (*TOKENS, width), tensors=copies)


def adapter_saved(shape: Shape, run: Run, place: str) -> Iterator[Tensor]:
    """What an adapter saves beside its input: what its first matrix gives, s·N·R for each matrix of the place."""
    if place in run.places:
        count = len(shape.linears(place))
        each = run.precision.compute_bytes * count
        yield _saved(f"{place}: what the adapter's first matrix gives", each, (*TOKENS, "R"), tensors=count)


def dropout_mask(run: Run, name: str, dims: tuple[str, ...]) -> Iterator[Tensor]:
    """The mask of a dropout: one byte an element on CUDA."""
    if run.has_dropout:
        yield _saved(name, 1, dims)


def attention_temporaries(shape: Shape, run: Run) -> list[Tensor]:
    """What the forward of attention holds beside what it saves, at its highest point.

    Eager: two score matrices that local variables keep, the projection that q, k and v are views of, and two N·C. Of
    capture/gpt2.py at batch 8: 888 MiB, so that the spike is 623.9 MiB above the 769.1 that stay. Fused: two N·C.
    """
    each = run.precision.compute_bytes
    held = [_temporary("attention's results", 2 * each, (*TOKENS, "C"), tensors=2)]
    if run.is_eager:
        held.append(_temporary("scores, scaled and masked", 2 * each, SCORES, tensors=2))
        if shape.has_fused_qkv:
            held.append(_temporary("query, key and value in one", each, (*TOKENS, "Q+2G")))
    return held


def mlp_temporaries(run: Run) -> list[Tensor]:
    """What the forward of the MLP holds beside what it saves: its result and the sum, 2s·N·C."""
    return [_temporary("the MLP's results", 2 * run.precision.compute_bytes, (*TOKENS, "C"), tensors=2)]


def embedding_temporaries(shape: Shape, run: Run) -> list[Tensor]:
    """Embeddings that local variables keep until the forward returns: s·(N·C + T·C) with learned positions."""
    if not shape.has_learned_positions:
        return []
    each = run.precision.residual_bytes
    return [
        _temporary("token embeddings", each, (*TOKENS, "C")),
        _temporary("position embeddings", each, ("T", "C")),
    ]


def attention_gradients(run: Run) -> list[Tensor]:
    """What the backward of attention holds beside what was saved, at its highest point.

    Eager: three score matrices (recorded: of the probabilities, through the softmax, through the mask). Fused:
    gradients of output, query, key and value, s·4N·Q, beside that of the stream.
    """
    stream = _gradient("gradient of the stream", run.precision.residual_bytes, (*TOKENS, "C"))
    if run.is_eager:
        return [_gradient("gradients of the scores", 3 * run.precision.softmax_bytes, SCORES, tensors=3)]
    return [stream, _gradient("gradients of attention", 4 * run.precision.compute_bytes, (*TOKENS, "Q"), tensors=4)]


def mlp_gradients(shape: Shape, run: Run) -> list[Tensor]:
    """What the backward of the MLP holds beside what was saved, at its highest point.

    Two N·F around the activation, three with a gate or an activation in single operations (recorded), the stream's
    gradient and its copy for the products.
    """
    count = 3 if shape.is_gated or _is_by_hand(shape, run) else 2
    copy = run.precision.compute_bytes if run.precision.is_autocast else 0
    return [
        _gradient("gradients inside of the MLP", count * run.precision.compute_bytes, (*TOKENS, "F"), tensors=count),
        _gradient("gradient of the stream", run.precision.residual_bytes + copy, (*TOKENS, "C")),
    ]


def block_saved(shape: Shape, run: Run) -> list[Tensor]:
    """Everything a block saves; its input only where it is checkpointed (Chen 2016)."""
    if run.is_checkpointed:
        return [_saved("a block's input", run.precision.residual_bytes, (*TOKENS, "C"))]
    return [*attention_saved(shape, run), *mlp_saved(shape, run)]


def root_saved(shape: Shape, run: Run) -> list[Tensor]:
    """What is saved outside of the blocks: around the embeddings, the final norm, and the output's input."""
    saved: list[Tensor] = []
    if shape.has_learned_positions:
        saved.append(_saved("positions", 8, ("T",)))
    else:
        saved.append(_saved("cosines and sines", 2 * run.precision.compute_bytes, ("T", "D"), tensors=2))
    saved.extend(dropout_mask(run, "the embeddings' dropout mask", (*TOKENS, "C")))
    saved.extend(norm_saved(shape, run, "final norm", is_trained=not run.is_adapted))
    saved.extend(linear_input(run, "final norm's output", "C", "head", 1))
    return saved


def _eager(shape: Shape, run: Run) -> Iterator[Tensor]:
    """Attention written out: q, k and v as the products read them, the probabilities, and what the mask saves."""
    precision = run.precision
    yield _saved("query, key and value", 3 * precision.compute_bytes, (*TOKENS, "Q"), tensors=3)
    if run.is_huggingface and not shape.has_learned_positions and precision.compute_bytes < 4:
        # transformers' rotary models take the softmax in fp32 and cast it back
        yield _saved("attention probabilities in fp32", 4, SCORES)
        yield _saved("attention probabilities", precision.compute_bytes, SCORES)
    else:
        yield _saved("attention probabilities", precision.softmax_bytes, SCORES)
        if precision.is_autocast:
            yield _saved("attention probabilities, cast", precision.compute_bytes, SCORES)
    if run.has_dropout:
        yield _saved("attention probabilities' dropout mask", 1, SCORES)
        yield _saved("attention probabilities after dropout", precision.compute_bytes, SCORES)
    if not run.is_huggingface:
        yield _saved("where the mask is", 1, ("T", "T"))
    yield from _qk_norm(shape, run)
    yield from linear_input(run, "attention's output", "Q", "output", 1)


def _fused(shape: Shape, run: Run) -> Iterator[Tensor]:
    """scaled_dot_product_attention: q, k, v, its output, and one fp32 number for every query and head."""
    each = run.precision.compute_bytes
    if shape.has_fused_qkv:
        # v is a view of the projection, so all of it stays; q and k are too, unless rotary positions made new ones
        yield _saved("query, key and value in one", each, (*TOKENS, "Q+2G"))
    if not (shape.has_fused_qkv and shape.has_learned_positions):
        yield _saved("query", each, (*TOKENS, "Q"))
        yield _saved("key", each, (*TOKENS, "G"))
        if not shape.has_fused_qkv:
            yield _saved("value", each, (*TOKENS, "G"))
    yield from _qk_norm(shape, run)
    yield _saved("attention's output", each, (*TOKENS, "Q"))
    if run.precision.linear_input_bytes < each:
        yield from linear_input(run, "attention's output, quantised", "Q", "output", 1)
    yield _saved("log of the softmax's sums", 4, ("B", "H", "T"))
    if each < 4:
        yield _saved("state of the random numbers", 16, tensors=2)


def _qk_norm(shape: Shape, run: Run) -> Iterator[Tensor]:
    """Norms of queries and keys by head: as `norm_saved`, over H·D and K·D."""
    if not shape.has_qk_norm:
        return
    for tensor in norm_saved(shape, run, "query norm", is_trained=not run.is_adapted):
        yield replace(tensor, dims=(*TOKENS, "Q") if "C" in tensor.dims else (*TOKENS, "H"))
    for tensor in norm_saved(shape, run, "key norm", is_trained=not run.is_adapted):
        yield replace(tensor, dims=(*TOKENS, "G") if "C" in tensor.dims else (*TOKENS, "K"))


def _is_by_hand(shape: Shape, run: Run) -> bool:
    return shape.activation == "gelu_new" and run.is_huggingface


def _activation(shape: Shape, run: Run) -> Iterator[Tensor]:
    """The MLP's inside: N·F tensors."""
    each, hidden = run.precision.compute_bytes, (*TOKENS, "F")
    if shape.is_gated:
        yield _saved("gate, its activation, and up", 3 * each, hidden, tensors=3)
        yield from linear_input(run, "gate times up", "F", "down", 1)
        return
    if shape.activation == "relu":
        yield _saved("the activation's output", each, hidden)
        return
    yield _saved("the activation's input", each, hidden)
    if _is_by_hand(shape, run):
        inside = 4 if run.precision.is_autocast else each
        yield _saved("inside of the activation", 3 * inside, hidden, tensors=3)
    yield from linear_input(run, "the activation's output", "F", "down", 1)


def _saved(name: str, each: int, dims: Sequence[str] = (), tensors: int = 1) -> Tensor:
    return Tensor(name, "activation", each, tuple(dims), tensors=tensors)


def _temporary(name: str, each: int, dims: Sequence[str], tensors: int = 1) -> Tensor:
    return Tensor(name, "forward_temporary", each, tuple(dims), tensors=tensors)


def _gradient(name: str, each: int, dims: Sequence[str], tensors: int = 1) -> Tensor:
    return Tensor(name, "backward_temporary", each, tuple(dims), tensors=tensors)
