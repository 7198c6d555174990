"""What could be changed so that a step needs less, by how much, and what that costs: each by estimating again.

Which lever shrinks what is a row of `LEVERS`; the bytes are never written down here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tracekit.estimate.ledger import Estimate
from tracekit.estimate.rows import optimizers, precisions
from tracekit.estimate.run import Run

Change = Callable[[Run], Run]


@dataclass(frozen=True, slots=True)
class Lever:
    """One thing that can be changed.

    Attributes:
        name: what is done.
        option: how the command line says it.
        shrinks: what gets smaller.
        cost: what is paid.
        change: the run, changed.
    """

    name: str
    option: str
    shrinks: str
    cost: str
    change: Change


LEVERS = (
    Lever(
        "half the batch", "--batch", "activations and the loss, in proportion",
        "the device is used less, or twice the micro-batches for the same batch",
        lambda run: replace(run, batch=max(1, run.batch // 2)),
    ),
    Lever(
        "micro-batches of one", "--batch 1 --accumulate N", "activations and the loss, to those of one sequence",
        "as many passes as there were sequences; all gradients stay while they add up",
        lambda run: replace(run, batch=1, accumulate=run.accumulate * run.batch),
    ),
    Lever(
        "half the sequence", "--sequence", "activations and the loss, scores of eager attention to a quarter",
        "less context", lambda run: replace(run, sequence=max(1, run.sequence // 2)),
    ),
    Lever(
        "checkpointing", "--checkpoint", "activations, to each block's input and one block's own",
        "about one more forward: a third of the compute", lambda run: replace(run, is_checkpointed=True),
    ),
    Lever(
        "fused attention", "--attention fused", "the scores of every pair of tokens", "none: it is faster",
        lambda run: replace(run, attention="fused"),
    ),
    Lever(
        "fused loss", "--loss fused", "the vocabulary-sized tensors, to one chunk's", "a kernel from another library",
        lambda run: replace(run, loss="fused"),
    ),
    Lever(
        "bf16 throughout", "--precision bf16", "everything but statistics, by half of fp32",
        "small updates are rounded away", lambda run: replace(run, precision=precisions()["bf16"]),
    ),
    Lever(
        "8-bit optimizer", "--optimizer adamw-8bit", "optimizer state, to 1 byte and its share of a scale",
        "some risk to stability", lambda run: replace(run, optimizer=optimizers()["adamw-8bit"]),
    ),
    Lever(
        "fused optimizer step", "--step fused", "what a step allocates", "none: it is faster",
        lambda run: replace(run, step="fused"),
    ),
    Lever(
        "adapters of low rank", "--lora 8 --lora-on all", "gradients and optimizer state, to those of the adapters",
        "less can be learned", lambda run: replace(run, adapted="all"),
    ),
    Lever(
        "sharing among 8 ranks", "--zero 3 --ranks 8", "weights, gradients and optimizer state, to an eighth",
        "traffic between devices", lambda run: replace(run, stage=3, ranks=max(8, run.ranks)),
    ),
    Lever(
        "optimizer state in host memory", "--offload", "optimizer state and what its step allocates",
        "a transfer of gradients and weights every step", lambda run: replace(run, offloads_state=True),
    ),
)  # fmt: skip
"""Every lever, in the order in which one would try them."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What pulling one lever does.

    Attributes:
        lever: the lever.
        peak_bytes: the peak then.
        saved_bytes: how much lower that is; negative where it is higher.
    """

    lever: Lever
    peak_bytes: int
    saved_bytes: int


def pull(make: Callable[[Run], Estimate], run: Run) -> list[Answer]:
    """Every lever that changes the run, alone, the most saving first.

    Args:
        make: makes an estimate of a run.
        run: the run as it is.
    """
    now = make(run).peak_bytes
    changed = [(lever, lever.change(run)) for lever in LEVERS]
    answers = [
        Answer(lever, peak, now - peak)
        for lever, other in changed
        if other != run
        for peak in (make(other).peak_bytes,)
    ]
    return sorted(answers, key=lambda answer: -answer.saved_bytes)
