"""A training step in nine moments: which kind of tensor is alive when, each moment at its highest point.

The blocks go by in three thirds, forward and backward. A moment has one or more places, such as the attention of the
first block of a third; the tensors of a place are put together here, what they are is for the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
        is_first: whether the block is the first of its third rather than the last.
    """

    name: str
    moment: str
    kind: str
    part: str | None = None
    is_first: bool = False


def _places() -> Iterator[Place]:
    yield Place("start", "start", "start")
    for third in (1, 2, 3):
        for part in ("attention", "mlp"):
            yield Place(f"forward {third}, last block's {part}", f"forward {third}", "forward", part)
    yield Place("loss", "loss", "loss")
    for third in (3, 2, 1):
        for block in ("last", "first"):
            for part in ("mlp", "attention"):
                name = f"backward {third}, {block} block's {part}"
                yield Place(name, f"backward {third}", "backward", part, block == "first")
    yield Place("embeddings", "backward 1", "embeddings")
    yield Place("optimizer", "optimizer", "optimizer")


PLACES = tuple(_places())
"""Every place of a training step, in order."""


def place_sizes(layers: int) -> dict[Place, dict[str, int]]:
    """What the symbols `before` and `after` stand for at each place: blocks on either side of the one that runs.

    Args:
        layers: blocks of the model; thirds are rounded up.
    """
    ends = [-(-layers * third // 3) for third in range(4)]

    def before(place: Place) -> int:
        if place.part is None:
            return 0
        third = int(place.moment[-1])
        last = ends[third] - 1
        return min(ends[third - 1], last) if place.is_first else last

    return {place: {"before": before(place), "after": layers - 1 - before(place)} for place in PLACES}


def model(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """What is alive at every place: weights, buffers, workspaces, the batch."""
    del place
    yield from static.parameters(shape, run)
    yield from static.buffers(shape, run)
    yield from static.workspaces(shape, run)
    yield Tensor("tokens", "input", 8, ("B", "T"))
    if not run.is_huggingface:
        yield Tensor("one token more a sequence, for the targets", "input", 8, ("B",), tensors=0)


def optimizer(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """The optimizer's state at every place, for it is the second step or a later one; its temporaries in its step."""
    yield from static.states(shape, run)
    if place.kind == "optimizer":
        yield from static.step_temporaries(run)


def gradients(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """Gradients: all of them at every place while they add up, otherwise from the backward until the step is over.

    A tied matrix gets its gradient in halves: the output's waits through the whole backward, at the embeddings the
    other one comes, and their sum is the gradient.
    """
    each, is_shared = run.precision.gradient_bytes, run.stage >= 2
    if run.accumulate > 1 or place.kind in ("embeddings", "optimizer"):
        yield from static.gradients(shape, run)
    elif place.kind == "backward" and not run.is_adapted:
        yield Tensor("gradients of blocks", "gradient", each, ("P_block",), ("after",), is_shared=is_shared)
        if place.part == "attention":
            yield Tensor("gradients of this block so far", "gradient", each, ("P_late",), is_shared=is_shared)
        yield Tensor("gradients after the blocks", "gradient", each, ("P_head",), is_shared=is_shared)
    if shape.is_tied and not run.is_adapted:
        if place.kind == "backward":
            yield Tensor("the output's half of the tied gradient", "gradient_in_flight", each, ("V", "C"))
        elif place.kind == "embeddings":
            yield Tensor("the tied gradient's halves", "gradient_in_flight", 2 * each, ("V", "C"), tensors=2)


def saved(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """Activations and what comes and goes beside them: those of whole blocks, and of the block that runs."""
    if place.kind == "loss":
        yield from (tensor.times("L") for tensor in activations.block_saved(shape, run))
        yield from (tensor.times("L") for tensor in static.casts(run.precision))
        yield from activations.root_saved(shape, run)
        if run.precision.is_autocast:
            yield Tensor("copy of the output matrix", "autocast_cast", run.precision.copy_bytes, ("V", "C"))
    elif place.kind == "embeddings":
        yield Tensor("gradient of the stream", "backward_temporary", run.precision.residual_bytes, ("B", "T", "C"))
    elif place.part is not None:
        yield from (tensor.times("before") for tensor in activations.block_saved(shape, run))
        yield from (tensor.times("before") for tensor in static.casts(run.precision))
        yield from static.casts(run.precision)
        yield from activations.attention_saved(shape, run)
        if place.part == "mlp":
            yield from activations.mlp_saved(shape, run)
        yield from _beside(shape, run, place)


def _beside(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """What the block that runs holds beside what it saves."""
    if place.kind == "forward":
        yield from activations.embedding_temporaries(shape, run)
        is_attention = place.part == "attention"
        yield from activations.attention_temporaries(shape, run) if is_attention else activations.mlp_temporaries(run)
    elif place.part == "attention":
        yield from activations.attention_gradients(run)
    else:
        yield from activations.mlp_gradients(shape, run)


def scores(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """The vocabulary-sized tensors: all at the loss, elsewhere those that the script keeps."""
    del shape
    if place.kind == "loss":
        yield from loss.loss_peak(run)
        yield Tensor("the loss's own numbers", "backward_temporary", 8, tensors=2)
    elif place.kind in ("backward", "embeddings"):
        yield from loss.kept_logits(run, "backward")
    else:
        yield from loss.kept_logits(run, "step")


def exchanged(shape: Shape, run: Run, place: Place) -> Iterator[Tensor]:
    """What a rank holds of the others: blocks while they run, and what is outside of the blocks as one group."""
    del shape
    if place.part is not None:
        yield from static.gathered(run)
        if place.kind == "backward":
            yield from static.unreduced(run)
    elif place.kind in ("loss", "embeddings") and run.stage >= 3:
        yield Tensor("the group outside of the blocks", "communication", run.precision.weight_bytes, ("P_root",))


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of thing that the tensors of a place are put together from.

    Attributes:
        tensors: makes its tensors; those of places of one kind and part are the same.
        of_run: the choices of a run that they depend on, beside sizes.
        of_shape: what else of a model they depend on, beside sizes and how many tensors a row counts.
    """

    tensors: Callable[[Shape, Run, Place], Iterator[Tensor]]
    of_run: tuple[str, ...]
    of_shape: tuple[str, ...] = ()


PARTS = (
    Part(
        model,
        ("precision", "attention", "is_checkpointed", "code", "adapted", "stage"),
        ("has_learned_positions", "has_qkv_bias", "has_mlp_bias", "has_fused_qkv"),
    ),
    Part(gradients, ("precision", "adapted", "accumulate", "stage"), ("is_tied",)),
    Part(optimizer, ("precision", "optimizer", "step", "adapted", "stage", "offloads_state")),
    Part(
        saved,
        ("precision", "attention", "is_checkpointed", "code", "adapted", "has_dropout"),
        ("is_gated", "has_learned_positions", "norm", "activation", "has_qk_norm", "has_fused_qkv"),
    ),
    Part(scores, ("precision", "loss", "code", "logits", "adapted")),
    Part(exchanged, ("precision", "adapted", "stage")),
)
"""All of them; of the run's choice to accumulate it only matters whether there is more than one micro-batch."""


def alive(shape: Shape, run: Run, place: Place) -> tuple[Tensor, ...]:
    """The tensors of a place of a training step, the second one of a run or a later one.

    With gradient accumulation it is the second micro-batch or a later one: the gradients of the first are there.
    """
    return tuple(tensor for part in PARTS for tensor in part.tensors(shape, run, place))
