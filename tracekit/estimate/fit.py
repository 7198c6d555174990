"""Whether a step fits a card, as far as a sum of tensors can say it, and the largest batch.

The caching allocator reserves more than tensors need, by how much only a replay of the events tells: the answers here
are therefore three: it fits, it does not, or it is too close to tell.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from tracekit.estimate.ledger import Estimate
from tracekit.estimate.run import Run

RESERVED_AT_MOST = Fraction(126, 100)
"""Reserved bytes for each byte of tensors at the peak: 1.01 to 1.26 in the recordings (tests/estimate asserts it)."""


def fits(requested_bytes: int, limit_bytes: int) -> bool | None:
    """Whether a peak fits a limit: None where it is too close to tell without a replay."""
    if requested_bytes > limit_bytes:
        return False
    return True if requested_bytes * RESERVED_AT_MOST <= limit_bytes else None


def largest_batch(make: Callable[[Run], Estimate], run: Run, limit_bytes: int) -> tuple[int, int]:
    """The largest batch that surely fits, and the largest whose tensors fit; 0 where not even one does.

    Args:
        make: makes an estimate of a run.
        run: what is chosen; its own batch does not matter.
        limit_bytes: bytes that may be reserved.
    """

    def largest(budget: Fraction) -> int:
        def is_below(batch: int) -> bool:
            return make(replace(run, batch=batch)).peak_bytes <= budget

        if not is_below(1):
            return 0
        high = 2
        while is_below(high):
            high *= 2
        low = high // 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if is_below(middle) else (low, middle)
        return low

    limit = Fraction(limit_bytes)
    return largest(limit / RESERVED_AT_MOST), largest(limit)
