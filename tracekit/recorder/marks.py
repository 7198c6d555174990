"""One reading of the allocator's own counters at a named point of the program: the witness beside the events.

Nothing is computed from events here, or it would be no witness.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Mark:
    """A reading at one point, on one device.

    The four counts say after which event it was taken: the recording's events of that device, counted from
    its begin, reach these numbers (less those of the mark `begin`) there and nowhere else.

    Attributes:
        label: the point: `begin`, `load_model`, `2.forward` (when step 2's forward ended), `2.end`, or the
            caller's.
        step: the step it lies in, None outside of steps.
        device: the device's ordinal.
        time_us: us since the Unix epoch, the clock of the events.
        allocated_bytes: bytes in blocks given out.
        reserved_bytes: bytes in segments.
        peak_allocated_bytes: the largest allocated_bytes since peak_since_us.
        peak_reserved_bytes: the largest reserved_bytes since peak_since_us.
        peak_since_us: when the recorder last reset the peaks; None if never, so since the process began.
        alloc_count: allocations served so far (events alloc).
        free_count: allocations freed so far (events free_requested).
        segment_alloc_count: segments got from the device so far (events segment_alloc).
        segment_free_count: segments given back so far (events segment_free).
        stats: torch.cuda.memory_stats, whole but for the zeros.
    """

    label: str
    step: int | None
    device: int
    time_us: int
    allocated_bytes: int
    reserved_bytes: int
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    peak_since_us: int | None
    alloc_count: int
    free_count: int
    segment_alloc_count: int
    segment_free_count: int
    stats: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """The mark as capture.json holds it."""
        return asdict(self)


def read_mark(
    stats: dict[str, int], label: str, step: int | None, device: int, time_us: int, peak_since_us: int | None
) -> Mark:
    """Make a mark from a device's memory_stats."""
    return Mark(
        label=label,
        step=step,
        device=device,
        time_us=time_us,
        allocated_bytes=stats.get("allocated_bytes.all.current", 0),
        reserved_bytes=stats.get("reserved_bytes.all.current", 0),
        peak_allocated_bytes=stats.get("allocated_bytes.all.peak", 0),
        peak_reserved_bytes=stats.get("reserved_bytes.all.peak", 0),
        peak_since_us=peak_since_us,
        alloc_count=stats.get("allocation.all.allocated", 0),
        free_count=stats.get("allocation.all.freed", 0),
        segment_alloc_count=stats.get("segment.all.allocated", 0),
        segment_free_count=stats.get("segment.all.freed", 0),
        stats=stats,
    )
