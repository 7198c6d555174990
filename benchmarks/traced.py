"""Traced estimates against recordings on an H200: allocated and reserved peaks, and how far the estimate is off.

The measure is torch's own counters, taken beside each recording; the models are those of tests/estimate/models, written
anew from the recordings' stacks, and the story's own step. `python -m benchmarks.traced` prints the table.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.scores import CAPTURES, facts_of
from tracekit import what_if
from tracekit.allocator.settings import Settings
from tracekit.estimate.traced import answer, cards
from tracekit.estimate.traced.answer import Conditions, Estimate
from tracekit.estimate.traced.script import Value
from tracekit.units import MIB

ROOT = Path(__file__).resolve().parents[1]
AMPERE = 8_519_680
"""Bytes of a cuBLAS workspace where CUBLAS_WORKSPACE_CONFIG=:4096:2:16:8 was set."""


@dataclass(frozen=True, slots=True)
class Case:
    """How a recording was made, in the estimate's words.

    Attributes:
        model: a file of tests/estimate/models, or the story's own.
        arguments: what its build is given.
        steps: steps that were recorded.
        workspace: bytes of a cuBLAS workspace; the card's own where it is None.
        settings: the allocator's, as the command line takes them.
        limit: bytes that could be reserved.
    """

    model: str
    arguments: Mapping[str, Value] = field(default_factory=dict[str, Value])
    steps: int = 2
    workspace: int | None = None
    settings: str = ""
    limit: int | None = None


_SMALL: Mapping[str, Value] = {
    "batch": 4, "sequence": 256, "width": 256, "heads": 4, "layers": 3, "vocabulary": 5003, "context_length": 256,
}  # fmt: skip
_CAP = 45_440 * MIB

CASES: Mapping[str, Case] = {
    **{f"g2_b{batch}_t1024_ws8": Case("golden", {"batch": batch}, 2, AMPERE) for batch in (1, 2, 3, 4, 6, 12)},
    **{f"g2_b{batch}_t512_ws8": Case("golden", {"batch": batch, "sequence": 512}, 2, AMPERE) for batch in (4, 8)},
    **{f"sweep_{batch}_ws8": Case("golden", {"batch": batch}, 2, AMPERE, limit=_CAP) for batch in (16, 20)},
    "sweep_21_ws8_expandable": Case("golden", {"batch": 21}, 2, AMPERE, "expandable_segments:True", _CAP),
    "gpt2_b8_ws8": Case("golden", workspace=AMPERE),
    "gpt2_b8": Case("golden"),
    "gpt2_b8_expandable": Case("golden", settings="expandable_segments:True"),
    "gpt2_b8_maxsplit": Case("golden", settings="max_split_size_mb:256,roundup_power2_divisions:4"),
    "gpt2_b8_ckpt": Case("train_step", {"checkpoint": True}),
    "gpt2_b2_accum4": Case("train_step", {"batch": 2, "accumulate": 4}),
    "gpt2_b8_bf16_sdpa": Case("autocast"),
    "small_nocontext": Case("train_step", _SMALL),
    **{f"llama_b{batch}": Case("llama", {"batch": batch}) for batch in (1, 2, 4)},
    "zoo_encoder": Case("encoder", steps=3),
    "zoo_opt_sgdm": Case("encoder", {"optimizer": "sgdm"}, 3),
    "zoo_hf_gpt2_b4": Case("hf_gpt2", steps=3),
    **{f"resnet_b{batch}": Case("resnet50", {"batch": batch}) for batch in (16, 32)},
    "zoo_resnet50_b32": Case("resnet50", {"batch": 32}, 3),
    "zoo_unet_b8": Case("unet", steps=3),
}


@dataclass(frozen=True, slots=True)
class Held:
    """A traced estimate beside what was measured, in bytes."""

    name: str
    estimate: Estimate
    allocated_bytes: int
    reserved_bytes: int


def trace(case: Case) -> Estimate:
    """The estimate of a case, on the recording machine's card."""
    if str(ROOT / "capture") not in sys.path:
        sys.path.append(str(ROOT / "capture"))  # the models of the story are its script's neighbours
    models = ROOT / "tests" / "estimate" / "models"
    path = ROOT / "capture" / "train_step.py" if case.model == "train_step" else models / f"{case.model}.py"
    card = cards.card("h200")
    settings = what_if.chosen_settings(Settings(), case.settings)
    conditions = Conditions(card, case.workspace or card.cublas_workspace, settings, case.limit, case.steps)
    return answer.estimate(answer.load(f"{path}:build"), case.arguments, conditions, lambda _: None)


def hold(name: str) -> Held:
    """One recording's measure and its estimate; the peak is the highest of the recording's steps."""
    facts = facts_of(name)
    steps = facts.get("step_stats") or [facts["stats"]]
    allocated, reserved = (max(step[f"{what}_bytes.all.peak"] for step in steps) for what in ("allocated", "reserved"))
    return Held(name, trace(CASES[name]), allocated, reserved)


def lines(held: Held) -> Iterator[str]:
    """A line's cells: for either peak what was measured, the estimate, its span and its error."""
    row = held.estimate.as_row()
    for what, measured in (("allocated", held.allocated_bytes), ("reserved", held.reserved_bytes)):
        low, at, high = (row[f"{which}_{what}_bytes"] for which in ("lowest", "peak", "highest"))
        span = f"{low / MIB:,.1f} to {high / MIB:,.1f}" if low != high else ""
        yield f"{measured / MIB:>11,.1f}{at / MIB:>11,.1f}{100 * (at - measured) / measured:>9.3f} % {span:<22}"


def main() -> None:
    """Print a line for every recording."""
    if not CAPTURES.is_dir():
        print("the shared recordings are not beside the checkout: nothing to hold the traced estimate against")
        return
    if importlib.util.find_spec("torch") is None:
        print("torch is not installed, and steps are traced with it: pip install torch (a CPU build will do)")
        return
    titles = "".join(f"{what:>11}{'estimated':>11}{'error':>11} {'span':<22}" for what in ("allocated", "reserved"))
    print(f"{'recording, MiB':<26}{titles}".rstrip())
    for name in CASES:
        print(f"{name:<26}{''.join(lines(hold(name)))}".rstrip(), flush=True)


if __name__ == "__main__":
    main()
