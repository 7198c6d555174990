"""The tensors around the loss: a score for every word of every token, and what cross-entropy makes of them.

N = B·T tokens, V words. When they are alive beside the rest is for `moments`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.estimate.run import Run
from tracekit.estimate.tensors import Tensor

VOCABULARY = ("B", "T", "V")


def loss_peak(run: Run) -> Iterator[Tensor]:
    """What is alive at the highest point, at the beginning of the backward.

    One type of s bytes: logits, log-softmax, the gradient of each: 4·s·N·V (recorded: 6,282.1 MiB of GPT-2 at batch 8).
    torch.autocast: logits 2, log-softmax 2, its fp32 copy for nll_loss 4, the gradient of that 4: 12·N·V (recorded).
    transformers' loss takes the scores in fp32: log-softmax and two gradients, 12·N·V (recorded), and s·N·V where the
    caller keeps the output. A fused loss: about three fp32 tensors of M·V for a chunk of M tokens, the gradient of the
    stream s·N·C, and that of the output matrix s·V·C, which it holds from the forward on (Liger; not recorded).
    """
    precision = run.precision
    each = precision.compute_bytes
    if run.loss == "fused":
        yield _scores("a chunk's scores and their gradients", 12, ("M", "V"), tensors=3)
        yield _scores("gradient of the stream", each, ("B", "T", "C"))
    elif run.is_huggingface:
        yield from kept_logits(run, "backward")
        yield _scores("log-softmax in fp32", 4)
        yield _scores("gradients of log-softmax and logits in fp32", 8, tensors=2)
    else:
        yield _scores("logits", each)
        yield _scores("log-softmax", each)
        if precision.is_autocast:
            yield _scores("log-softmax in fp32", 4)
            yield _scores("gradient of log-softmax in fp32", 4)
        else:
            yield _scores("gradients of log-softmax and logits", 2 * each, tensors=2)
    yield _scores("loss", 4, ())
    if run.loss == "fused" and not run.is_adapted:
        yield Tensor("gradient of the output matrix", "gradient_in_flight", run.precision.gradient_bytes, ("V", "C"))


def kept_logits(run: Run, until: str) -> Iterator[Tensor]:
    """The scores that the script's own variable keeps: s·N·V, until the backward is over or over the step too.

    Args:
        run: what is chosen.
        until: backward or step: where one asks.
    """
    keeps = {"dropped": (), "backward": ("backward",), "step": ("backward", "step")}[run.logits]
    if until in keeps and run.loss == "whole":
        yield _scores("logits", run.precision.compute_bytes)


def _scores(name: str, each: int, dims: tuple[str, ...] = VOCABULARY, tensors: int = 1) -> Tensor:
    return Tensor(name, "logits_and_loss", each, dims, tensors=tensors)
