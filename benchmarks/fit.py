"""What fit predicts against what was recorded: every pair of recordings of a program, at every other recorded value.

Prints and asserts nothing; `tests/fit/` asserts. Recordings come from the shared folder beside the checkout.
"""

from __future__ import annotations

import json
import lzma
from contextlib import ExitStack
from itertools import combinations
from pathlib import Path
from typing import Any

from tracekit import analysis, fit
from tracekit.errors import TracekitError
from tracekit.fit.rule import Point

CAPTURES = Path(__file__).resolve().parents[2] / "shared" / "captures"
MIB = 1 << 20

FAMILIES: dict[str, tuple[tuple[str, ...], int, dict[Point, str]]] = {
    "GPT-2 small, fp32": (
        ("batch",),
        2,
        {
            (1,): "g2_b1_t1024_ws8",
            (2,): "g2_b2_t1024_ws8",
            (3,): "g2_b3_t1024_ws8",
            (4,): "g2_b4_t1024_ws8",
            (6,): "g2_b6_t1024_ws8",
            (8,): "gpt2_b8_ws8",
            (12,): "g2_b12_t1024_ws8",
            (16,): "sweep_16_ws8",
            (20,): "sweep_20_ws8",
        },
    ),
    "GPT-2 small, batch and length": (
        ("batch", "sequence"),
        3,
        {
            (4, 512): "g2_b4_t512_ws8",
            (8, 512): "g2_b8_t512_ws8",
            (4, 1024): "g2_b4_t1024_ws8",
            (8, 1024): "gpt2_b8_ws8",
        },
    ),
    "Llama, bf16": (("batch",), 2, {(1,): "llama_b1", (2,): "llama_b2", (4,): "llama_b4"}),
}


def measured(name: str) -> tuple[int, int]:
    """The allocated and reserved peaks by torch's own counters."""
    facts: dict[str, Any] = json.loads(lzma.decompress((CAPTURES / f"{name}.facts.json.xz").read_bytes()))
    steps = facts["step_stats"]
    return (
        max(step["allocated_bytes.all.peak"] for step in steps),
        max(step["reserved_bytes.all.peak"] for step in steps),
    )


def main() -> None:
    """Print a line for each prediction, and each family's worst."""
    print("predicted less recorded, MiB; the span is that of the address layouts tried")
    for title, (variables, count, names) in FAMILIES.items():
        worst = [0.0, 0.0]
        with ExitStack() as stack:
            sources = {
                point: fit.read(point, name, stack.enter_context(analysis.open_any(CAPTURES / f"{name}.pickle.xz")))
                for point, name in names.items()
            }
            for given in combinations(names, count):
                try:
                    model = fit.build(variables, [sources[point] for point in given])
                except TracekitError as error:
                    print(f"{title} from {', '.join(map(fit.told, given))}: {error.problem}")
                    continue
                others = [point for point in names if point not in given]
                for point in others:
                    answer = fit.fit(model, fit.Conditions(), [point]).answers[point]
                    recorded = measured(names[point])
                    peaks = answer.outcome.peak_allocated.value, answer.outcome.peak_reserved.value
                    errors = [peak - truth for peak, truth in zip(peaks, recorded, strict=True)]
                    is_beyond = all(value >= max(one[at] for one in given) for at, value in enumerate(point))
                    if is_beyond:
                        shares = (abs(error) / truth for error, truth in zip(errors, recorded, strict=True))
                        worst = [max(pair) for pair in zip(worst, shares, strict=True)]
                    low, high = (end - recorded[1] for end in answer.reserved)
                    print(
                        f"{title} from {', '.join(map(fit.told, given)):>22} at {fit.told(point):>6}:"
                        f" allocated {errors[0] / MIB:+7.2f}, reserved {errors[1] / MIB:+7.1f}"
                        f" (span {low / MIB:+.0f} to {high / MIB:+.0f})"
                    )
        print(f"{title}: beyond the recordings the worst is {worst[0]:.3%} allocated, {worst[1]:.3%} reserved\n")


if __name__ == "__main__":
    main()
