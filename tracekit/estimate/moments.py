"""A training step in nine moments: which kind of tensor is alive when, each moment at its highest point.

The blocks go by in three thirds, forward and backward. A moment has one or more places, such as the attention of the
first block of a third; the tensors of a place are put together here, what they are is for the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tracekit.estimate import activations, loss, static
from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.tensors import Tensor

MOMENTS = (
    ("start", None, "before the forward"),
    ("forward 1", "forward", "through the first third of the blocks"),
    ("forward 2", "forward", "through the second third"),
    ("forward 3", "forward", "through the last third"),
    ("loss", "backward", "the scores of all words, where forward turns into backward"),
    ("backward 3", "backward", "back through the last third"),
    ("backward 2", "backward", "back through the second third"),
    ("backward 1", "backward", "back through the first third and the embeddings"),
    ("optimizer", "optimizer", "the optimizer's step"),
)
"""Name, phase and meaning of the nine moments of a training step, in order."""


@dataclass(frozen=True, slots=True)
class Place:
    """A point of the step.

    Attributes:
        name: what it is called.
        moment: the moment it belongs to.
        kind: start, forward, loss, backward, embeddings or optimizer.
        part: attention or mlp, inside of a block; None elsewhere.
    """

    name: str
    moment: str
    kind: str
    part: str | None = None


def _places() -> Iterator[Place]:
    yield Place("start", "start", "start")
    for third in (1, 2, 3):
        for part in ("attention", "mlp"):
            yield Place(f"forward {third}, last block's {part}", f"forward {third}", "forward", part)
    yield Place("loss", "loss", "loss")
    for third in (3, 2, 1):
        for block in ("last", "first"):
            for part in ("mlp", "attention"):
                yield Place(f"backward {third}, {block} block's {part}", f"backward {third}", "backward", part)
    yield Place("embeddings", "backward 1", "embeddings")
    yield Place("optimizer", "optimizer", "optimizer")


PLACES = tuple(_places())
"""Every place of a training step, in order."""


def place_sizes(layers: int) -> dict[str, int]:
    """How many blocks are whole before each place, and how many have their gradients after it.

    Args:
        layers: blocks of the model.

    Returns:
        For each place inside of a block `before <name>` and, in the backward, `after <name>`; the block itself is
        counted in neither.
    """
    ends = [-(-layers * third // 3) for third in range(4)]
    sizes: dict[str, int] = {}
    for place in PLACES:
        if place.part is None:
            continue
        third = int(place.moment[-1])
        before = ends[third] - 1
        if "first block" in place.name:
            before = min(ends[third - 1], before)
        sizes[f"before {place.name}"] = before
        sizes[f"after {place.name}"] = layers - 1 - before
    return sizes


def owned(shape: Shape, run: Run) -> list[Tensor]:
    """What is alive at every place: the model, the optimizer's state, workspaces, the batch, gradients that add up."""
    tensors = [
        *static.parameters(shape, run),
        *static.buffers(shape, run),
        *static.states(shape, run),
        *static.workspaces(shape, run),
        Tensor("tokens", "input", 8, ("B", "T")),
    ]
    if not run.is_huggingface:
        tensors.append(Tensor("one token more a sequence, for the targets", "input", 8, ("B",), tensors=0))
    if run.accumulate > 1:
        tensors.extend(static.gradients(shape, run))
    return tensors


def alive(shape: Shape, run: Run) -> Mapping[Place, Sequence[Tensor]]:
    """The tensors of every place of a training step, the second one of a run or a later one.

    With gradient accumulation it is the second micro-batch or a later one: the gradients of the first are there.

    Returns:
        For each place its tensors, without those of `owned`.
    """
    return {place: tuple(_alive(shape, run, place)) for place in PLACES}


def _alive(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    if place.kind == "start":
        yield from loss.kept_logits(run, "step")
    elif place.kind == "forward":
        yield from _forward(shape, run, place)
    elif place.kind == "loss":
        yield from loss.loss_peak(shape, run)
        yield Tensor("the loss's own numbers", "backward_temporary", 8, tensors=2)
        yield from (tensor.times("L") for tensor in activations.block_saved(shape, run))
        yield from activations.root_saved(shape, run)
        yield from (tensor.times("L") for tensor in static.casts(run.precision))
        yield from _output_copy(run)
        yield from _gathered_root(run)
    elif place.kind == "backward":
        yield from _backward(shape, run, place)
    elif place.kind == "embeddings":
        yield from loss.kept_logits(run, "backward")
        yield Tensor("gradient of the stream", "backward_temporary", run.precision.residual_bytes, ("B", "T", "C"))
        yield from _gathered_root(run)
        if run.accumulate == 1:
            yield from static.gradients(shape, run)
        if shape.is_tied and not run.is_adapted:
            each = run.precision.gradient_bytes
            yield Tensor("the tied gradient's halves", "gradient_in_flight", 2 * each, ("V", "C"), tensors=2)
    else:
        yield from loss.kept_logits(run, "step")
        if run.accumulate == 1:
            yield from static.gradients(shape, run)
        yield from static.step_temporaries(run)


def _forward(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    before = f"before {place.name}"
    yield from loss.kept_logits(run, "step")
    yield from activations.embedding_temporaries(shape, run)
    yield from (tensor.times(before) for tensor in activations.block_saved(shape, run))
    yield from (tensor.times(before) for tensor in static.casts(run.precision))
    yield from static.casts(run.precision)
    yield from activations.attention_saved(shape, run)
    if place.part == "attention":
        yield from activations.attention_temporaries(shape, run)
    else:
        yield from activations.mlp_saved(shape, run)
        yield from activations.mlp_temporaries(run)
    yield from static.gathered(run)


def _backward(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    before, after = f"before {place.name}", f"after {place.name}"
    each = run.precision.gradient_bytes
    yield from loss.kept_logits(run, "backward")
    yield from (tensor.times(before) for tensor in activations.block_saved(shape, run))
    yield from (tensor.times(before) for tensor in static.casts(run.precision))
    yield from static.casts(run.precision)
    yield from activations.attention_saved(shape, run)
    if place.part == "mlp":
        yield from activations.mlp_saved(shape, run)
        yield from activations.mlp_gradients(shape, run)
    else:
        yield from activations.attention_gradients(run)
    yield from static.gathered(run)
    yield from static.unreduced(run)
    if run.is_adapted:
        return
    if run.accumulate == 1:
        shared = run.stage >= 2
        yield Tensor("gradients of blocks", "gradient", each, ("P_block",), (after,), is_shared=shared)
        if place.part == "attention":
            yield Tensor("gradients of this block so far", "gradient", each, ("P_late",), is_shared=shared)
        yield Tensor("gradients after the blocks", "gradient", each, ("P_head",), is_shared=shared)
    if shape.is_tied:
        yield Tensor("the output's half of the tied gradient", "gradient_in_flight", each, ("V", "C"))


def _output_copy(run: Run) -> Iterator[Tensor]:
    """The output matrix in the lower precision of torch.autocast."""
    if run.precision.is_autocast:
        yield Tensor("copy of the output matrix", "autocast_cast", run.precision.copy_bytes, ("V", "C"))


def _gathered_root(run: Run) -> Iterator[Tensor]:
    """With ZeRO's stage 3 what is outside of the blocks is one group, gathered around the loss and the embeddings."""
    if run.stage >= 3:
        yield Tensor("the group outside of the blocks", "communication", run.precision.weight_bytes, ("P_root",))
