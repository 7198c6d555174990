"""One training step or one generation, as chosen: everything an estimate depends on beside the model.

Choices only; what they cost is for the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tracekit.estimate.rows import Optimizer, Precision, optimizers, precisions
from tracekit.estimate.shape import LINEARS

ATTENTIONS = ("fused", "eager")
CODES = ("plain", "huggingface")
LOSSES = ("whole", "fused")
STEPS = ("foreach", "fused", "loop")
LOGITS = ("dropped", "backward", "step")
ADAPTED = {"none": (), "qkv": ("qkv",), "all": LINEARS}
"""What low-rank adapters stand beside: nothing, the projections into attention, or every matrix of a block."""

CHUNK_ROWS = 1024
"""Tokens whose scores a fused loss makes at once."""


@dataclass(frozen=True)
class Run:
    """What is chosen for a run.

    Attributes:
        batch: sequences in a micro-batch, on one device (B).
        sequence: tokens in each (T).
        precision: bytes of numbers.
        optimizer: what keeps state.
        step: how the optimizer's step runs: foreach (torch's choice on a GPU), fused, or loop.
        attention: eager keeps a score for every pair of tokens; fused (scaled_dot_product_attention) keeps none.
        is_checkpointed: blocks keep their input only, and are computed again in the backward.
        loss: whole makes the scores of all tokens; fused makes them in chunks of `CHUNK_ROWS` tokens.
        code: how the model is written: plain as capture/gpt2.py with fused norms, huggingface as transformers' models.
        logits: until when the script's own variable keeps the scores.
        adapted: a key of `ADAPTED`: what low-rank adapters stand beside; all else is frozen then.
        rank: of the adapters (R).
        accumulate: micro-batches whose gradients add up before a step.
        stage: of ZeRO: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too (as FSDP) is shared by ranks.
        ranks: devices that share.
        offloads_state: optimizer state lives in host memory.
        has_dropout: elements are dropped in training.
        workspace_bytes: of one cuBLAS workspace (W).
    """

    batch: int = 8
    sequence: int = 1024
    precision: Precision = field(default_factory=lambda: precisions()["fp32"])
    optimizer: Optimizer = field(default_factory=lambda: optimizers()["adamw"])
    step: str = "foreach"
    attention: str = "fused"
    is_checkpointed: bool = False
    loss: str = "whole"
    code: str = "plain"
    logits: str = "backward"
    adapted: str = "none"
    rank: int = 8
    accumulate: int = 1
    stage: int = 0
    ranks: int = 1
    offloads_state: bool = False
    has_dropout: bool = False
    workspace_bytes: int = 8_519_680

    @property
    def places(self) -> Sequence[str]:
        """The places of a block with an adapter."""
        return ADAPTED[self.adapted]

    @property
    def is_adapted(self) -> bool:
        """Whether only low-rank adapters are trained."""
        return self.adapted != "none"

    @property
    def is_huggingface(self) -> bool:
        """Whether the model is written as transformers' are."""
        return self.code == "huggingface"

    @property
    def is_eager(self) -> bool:
        """Whether attention keeps a score for every pair of tokens."""
        return self.attention == "eager"
