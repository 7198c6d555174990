"""What a kernel's memory depends on in a GPU: its architecture, its multiprocessors, its size.

The figures are the vendor's; what a kernel does with them belongs to `kernel`.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from tracekit.errors import TracekitError
from tracekit.units import MIB, parse_bytes


@dataclass(frozen=True, slots=True)
class Card:
    """A GPU.

    Attributes:
        name: as it is asked for.
        major: the major number of its compute capability.
        processors: its multiprocessors.
        threads: the threads that one multiprocessor holds.
        total_bytes: its memory, as nvidia-smi prints it; what is left after the CUDA context is less.
    """

    name: str
    major: int
    processors: int
    threads: int
    total_bytes: int

    @property
    def cublas_workspace(self) -> int:
        """Bytes of a cuBLAS workspace by default (torch 2.11, CublasHandlePool.cpp; 10 and 12 since 2.12)."""
        return 32 * MIB if self.major in (9, 10, 12) else parse_workspace(":4096:2:16:8")


CARDS: dict[str, Card] = {
    card.name: card
    for card in (
        Card("v100", 7, 80, 2048, 32_768 * MIB),
        Card("t4", 7, 40, 1024, 15_360 * MIB),
        Card("a100", 8, 108, 2048, 81_920 * MIB),
        Card("a100-40", 8, 108, 2048, 40_960 * MIB),
        Card("a10", 8, 72, 1536, 23_028 * MIB),
        Card("a40", 8, 84, 1536, 46_068 * MIB),
        Card("a6000", 8, 84, 1536, 49_140 * MIB),
        Card("rtx3090", 8, 82, 1536, 24_576 * MIB),
        Card("rtx4090", 8, 128, 1536, 24_564 * MIB),
        Card("l4", 8, 58, 1536, 23_034 * MIB),
        Card("l40s", 8, 142, 1536, 46_068 * MIB),
        Card("h100", 9, 132, 2048, 81_559 * MIB),
        Card("h200", 9, 132, 2048, 143_771 * MIB),
        Card("b200", 10, 148, 2048, 183_359 * MIB),
        Card("rtx5090", 12, 170, 1536, 32_607 * MIB),
    )
}
"""Cards by name."""


def card(name: str) -> Card:
    """The card of a name.

    Raises:
        TracekitError: where it is none of `CARDS`.
    """
    found = CARDS.get(name.lower())
    if found is None:
        raise TracekitError(f"{name!r} is not a card that is known here", f"one of {', '.join(CARDS)}")
    return found


def parse_workspace(text: str) -> int:
    """Bytes of a cuBLAS workspace: a size, or `:KIB:COUNT` pairs, summed, as CUBLAS_WORKSPACE_CONFIG has them.

    Raises:
        TracekitError: where it is no such text.
    """
    with contextlib.suppress(ValueError):
        return parse_bytes(text)
    parts = text.split(":")[1:]
    if not text.startswith(":") or len(parts) % 2 or not all(part.isdecimal() for part in parts):
        raise TracekitError(
            f"{text!r} is not a cuBLAS workspace",
            "write a size such as 32MiB, or :KIB:COUNT pairs such as :4096:2:16:8",
        )
    numbers = list(map(int, parts))
    return sum(size * count for size, count in zip(numbers[::2], numbers[1::2], strict=True)) * 1024
