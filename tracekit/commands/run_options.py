"""The options that choose a training step to estimate, and the run they make.

What a choice costs is for `tracekit.estimate` to say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tracekit.estimate.run import Run
    from tracekit.estimate.shape import Shape
    from tracekit.estimate.traced.cards import Card

Decorated = Callable[..., Any]

_COUNT = click.IntRange(1)

_OPTIONS = (
    click.option("--batch", type=_COUNT, default=8, show_default=True, help="Sequences in a micro-batch, per device."),
    click.option("--sequence", type=_COUNT, default=1024, show_default=True, help="Tokens in a sequence."),
    click.option(
        "--precision",
        metavar="NAME",
        default="fp32",
        show_default=True,
        help="fp32, bf16, bf16-master, fp16, autocast-bf16, autocast-fp16 or fp8.",
    ),
    click.option(
        "--optimizer",
        metavar="NAME",
        default="adamw",
        show_default=True,
        help="sgd, sgd-momentum, adam, adamw, adamw-amsgrad, nadam, rmsprop, adagrad, adafactor, lion, muon or"
        " adamw-8bit.",
    ),
    click.option(
        "--step",
        type=click.Choice(["foreach", "fused", "loop"]),
        default="foreach",
        show_default=True,
        help="How the optimizer's step runs; foreach is torch's own choice on a GPU.",
    ),
    click.option(
        "--attention",
        type=click.Choice(["fused", "eager"]),
        default="fused",
        show_default=True,
        help="Eager attention keeps a score for every pair of tokens.",
    ),
    click.option("--checkpoint", "is_checkpointed", is_flag=True, help="Blocks are computed again in the backward."),
    click.option(
        "--loss",
        type=click.Choice(["whole", "fused"]),
        default="whole",
        show_default=True,
        help="A fused loss never makes the scores of all tokens at once.",
    ),
    click.option(
        "--code",
        type=click.Choice(["plain", "huggingface"]),
        default="plain",
        show_default=True,
        help="Whose code the model is: fused norms, or transformers' models.",
    ),
    click.option(
        "--logits",
        type=click.Choice(["dropped", "backward", "step"]),
        help="Until when the script keeps the scores: not at all (as with transformers, when it keeps the loss only),"
        " until the backward is over (plain code), or over the step.",
    ),
    click.option("--dropout/--no-dropout", "has_dropout", default=None, help="Elements are dropped; by config.json."),
    click.option("--lora", "rank", type=_COUNT, metavar="RANK", help="Train adapters of this rank only."),
    click.option(
        "--lora-on",
        "adapted",
        type=click.Choice(["qkv", "all"]),
        default="qkv",
        show_default=True,
        help="Where adapters stand: query, key and value, or every matrix of a block.",
    ),
    click.option(
        "--accumulate", type=_COUNT, default=1, show_default=True, help="Micro-batches whose gradients add up."
    ),
    click.option(
        "--zero",
        "stage",
        type=click.IntRange(0, 3),
        default=0,
        show_default=True,
        help="What ranks share: 1 optimizer state, 2 gradients too, 3 weights too (FSDP).",
    ),
    click.option("--ranks", type=_COUNT, default=1, show_default=True, help="Devices that share."),
    click.option("--offload", "offloads_state", is_flag=True, help="Optimizer state lives in host memory."),
    click.option("--workspace", metavar="SIZE", help="Bytes of one cuBLAS workspace; 8,519,680, 32MiB on a Hopper."),
)


_TEXTS = (
    ("batch", "N,...", "Sequences in a micro-batch; several, such as 8,16, are compared."),
    ("sequence", "N,...", "Tokens in a sequence."),
    ("precision", "NAME,...", "As BUILD names them, such as bf16."),
    ("optimizer", "NAME,...", "As BUILD names them, such as adamw."),
    ("step", "NAME,...", "How the optimizer's step runs: foreach, fused, loop."),
    ("attention", "NAME,...", "As BUILD names them, such as eager."),
    ("loss", "NAME,...", "As BUILD names them, such as fused."),
    ("lora", "RANK,...", "Train adapters of this rank only."),
    ("accumulate", "N,...", "Micro-batches whose gradients add up."),
)
_FLAGS = (
    ("--checkpoint/--no-checkpoint", "Blocks are computed again in the backward."),
    ("--dropout/--no-dropout", "Elements are dropped."),
)


def for_script(function: Decorated) -> Decorated:
    """Give a command those options of a run that a script's build may take: texts as they were written, or truths."""
    for name, help_text in reversed(_FLAGS):
        function = click.option(name, default=None, help=help_text)(function)
    for name, metavar, help_text in reversed(_TEXTS):
        function = click.option(f"--{name}", metavar=metavar, help=help_text)(function)
    return function


def run(function: Decorated) -> Decorated:
    """Give a command every option of a run."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def make_run(shape: Shape, card: Card | None, **chosen: Any) -> Run:
    """The run that the options choose.

    Args:
        shape: the model, which says whether it drops elements.
        card: the GPU, which says how large workspaces are; None for most GPUs.
        chosen: values by the options' names.

    Raises:
        TracekitError: where there is no such precision or optimizer.
        click.UsageError: where options do not go together.
    """
    from tracekit.estimate.rows import named, optimizers, precisions
    from tracekit.estimate.run import Run
    from tracekit.units import parse_bytes

    rank, workspace, adapted = chosen.pop("rank"), chosen.pop("workspace"), chosen.pop("adapted")
    if chosen["ranks"] > 1 and not chosen["stage"]:
        raise click.UsageError("--ranks says how many devices share: give --zero 1, 2 or 3 with it")
    try:
        workspace_bytes = parse_bytes(workspace) if workspace else card.cublas_workspace if card else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--workspace") from error
    return Run(
        precision=named(precisions(), chosen.pop("precision"), "precision"),
        optimizer=named(optimizers(), chosen.pop("optimizer"), "optimizer"),
        has_dropout=shape.dropout if chosen["has_dropout"] is None else chosen["has_dropout"],
        logits=chosen["logits"] or ("dropped" if chosen["code"] == "huggingface" else "backward"),
        **({} if rank is None else {"rank": rank, "adapted": adapted}),
        **({} if workspace_bytes is None else {"workspace_bytes": workspace_bytes}),
        **{name: value for name, value in chosen.items() if name not in ("has_dropout", "logits")},
    )
