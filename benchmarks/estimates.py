"""The closed form against recordings: what tensors ask for at the peak, and how far the formula is off, in bytes.

The measure is torch's own counter of requested bytes, taken beside each recording.
`python -m benchmarks.estimates` prints the table, and the tests assert its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchmarks.scores import CAPTURES, facts_of
from tracekit.estimate.ledger import Estimate, estimate
from tracekit.estimate.rows import precisions, presets
from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.units import MIB

HOPPER = 32 * MIB
"""Bytes of a cuBLAS workspace on the recording machine, where the environment did not say 8,519,680."""

GPT2 = presets()["gpt2"]
SMALL = replace(
    GPT2, name="small", layers=3, width=256, heads=4, kv_heads=4, mlp_width=1024, vocabulary=5003, positions=256
)
TINY = replace(
    SMALL, name="tiny", layers=6, width=64, heads=2, kv_heads=2, head_width=32, mlp_width=256, vocabulary=211,
    positions=32,
)  # fmt: skip
LLAMA = replace(
    presets()["llama-3.1-8b"], name="llama, 8 layers", layers=8, width=1024, heads=16, kv_heads=4, head_width=64,
    mlp_width=2816, vocabulary=32000,
)  # fmt: skip

PLAIN = Run(attention="eager", logits="step", workspace_bytes=HOPPER)
"""GPT-2 as the recordings' script wrote it, which keeps the logits of a step into the next one."""

TRANSFORMERS = Run(code="huggingface", logits="dropped", workspace_bytes=HOPPER)
"""A model of transformers whose script keeps the loss only."""


@dataclass(frozen=True, slots=True)
class Case:
    """What a recording was of, in the estimate's words."""

    shape: Shape
    run: Run


def _golden(batch: int, sequence: int = 1024) -> Case:
    return Case(GPT2, replace(PLAIN, batch=batch, sequence=sequence, workspace_bytes=8_519_680))


CASES: Mapping[str, Case] = {
    **{f"g2_b{batch}_t1024_ws8": _golden(batch) for batch in (1, 2, 3, 4, 6, 12)},
    **{f"g2_b{batch}_t512_ws8": _golden(batch, 512) for batch in (4, 8)},
    "gpt2_b8_ws8": _golden(8),
    "sweep_16_ws8": _golden(16),
    "sweep_20_ws8": _golden(20),
    "sweep_21_ws8_expandable": _golden(21),
    "gpt2_b8": Case(GPT2, PLAIN),
    "gpt2_b8_expandable": Case(GPT2, PLAIN),
    "gpt2_b8_maxsplit": Case(GPT2, PLAIN),
    "gpt2_b8_ckpt": Case(GPT2, replace(PLAIN, is_checkpointed=True)),
    "gpt2_b2_accum4": Case(GPT2, replace(PLAIN, batch=2, accumulate=4)),
    "gpt2_b8_bf16_sdpa": Case(GPT2, replace(PLAIN, precision=precisions()["autocast-bf16"], attention="fused")),
    "small_nocontext": Case(SMALL, replace(PLAIN, batch=4, sequence=256)),
    "small_long": Case(TINY, replace(PLAIN, batch=2, sequence=32)),
    **{
        f"llama_b{batch}": Case(LLAMA, replace(TRANSFORMERS, batch=batch, precision=precisions()["bf16"]))
        for batch in (1, 2, 4)
    },
    "zoo_hf_gpt2_b4": Case(GPT2, replace(TRANSFORMERS, batch=4, sequence=512, has_dropout=True)),
    "trainer_py": Case(
        replace(GPT2, layers=6),
        replace(
            TRANSFORMERS, batch=4, sequence=512, precision=precisions()["autocast-bf16"], accumulate=2,
            has_dropout=True,
        ),
    ),
}  # fmt: skip
"""Every shared recording of a decoder-only transformer that is not the same step as another one."""


@dataclass(frozen=True, slots=True)
class Held:
    """A closed form held against a recording.

    Attributes:
        name: the recording.
        estimate: the estimate.
        requested_bytes: torch's peak of requested bytes.
        reserved_bytes: torch's peak of reserved bytes.
    """

    name: str
    estimate: Estimate
    requested_bytes: int
    reserved_bytes: int

    @property
    def error_bytes(self) -> int:
        """Estimated less measured."""
        return self.estimate.peak_bytes - self.requested_bytes


def hold(name: str) -> Held:
    """One recording's measure and its estimate; the peak is the highest of the recording's steps."""
    facts, case = facts_of(name), CASES[name]
    steps = facts.get("step_stats") or [facts["stats"]]
    return Held(
        name,
        estimate(case.shape, case.run),
        max(step["requested_bytes.all.peak"] for step in steps),
        max(step["reserved_bytes.all.peak"] for step in steps),
    )


def main() -> None:
    """Print a line for every recording."""
    if not CAPTURES.is_dir():
        print("the shared recordings are not beside the checkout: nothing to hold the closed form against")
        return
    print(f"{'recording':<26}{'measured':>16}{'estimated':>16}{'error':>12}{'error %':>10}{'reserved /':>12}")
    for name in CASES:
        held = hold(name)
        print(
            f"{name:<26}{held.requested_bytes:>16,}{held.estimate.peak_bytes:>16,}{held.error_bytes:>12,}"
            f"{100 * held.error_bytes / held.requested_bytes:>10.4f}"
            f"{held.reserved_bytes / held.estimate.peak_bytes:>12.3f}"
        )


if __name__ == "__main__":
    main()
