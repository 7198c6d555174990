"""The estimate itself: the account at every moment of a step that never ran, and its peak.

Tensors come from the modules beside this one; here they get sizes and are added up. Bytes are those asked for: what the
allocator rounds up and keeps free is not known without a replay, and is not guessed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tracekit.estimate import inference, moments
from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.static import trained_sizes
from tracekit.estimate.tensors import Sizes, Tensor, total_bytes

BUCKETS = (
    "parameter",
    "buffer",
    "gradient",
    "gradient_in_flight",
    "optimizer_state",
    "optimizer_temporary",
    "activation",
    "logits_and_loss",
    "forward_temporary",
    "backward_temporary",
    "autocast_cast",
    "library_workspace",
    "communication",
    "kv_cache",
    "input",
)
"""The lines that an estimate may have, in the order of the view `bucket`."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an account."""

    bucket: str
    requested_bytes: int
    allocation_count: int


@dataclass(frozen=True)
class Account:
    """What is alive at a place.

    Attributes:
        moment: the moment's name.
        phase: its phase.
        place: where in the moment it is highest.
        tensors: what is alive.
        sizes: what their symbols stand for.
        ranks: devices that share.
    """

    moment: str
    phase: str | None
    place: str
    tensors: tuple[Tensor, ...]
    sizes: Sizes
    ranks: int

    @cached_property
    def requested_bytes(self) -> int:
        """Bytes asked for by all that is alive."""
        return total_bytes(self.tensors, self.sizes, self.ranks)

    def lines(self) -> list[Line]:
        """The account by bucket; its lines add up to `requested_bytes`."""
        held: dict[str, list[Tensor]] = {bucket: [] for bucket in BUCKETS}
        for tensor in self.tensors:
            held[tensor.bucket].append(tensor)
        made = [
            Line(
                bucket,
                total_bytes(tensors, self.sizes, self.ranks),
                sum(tensor.allocation_count(self.sizes) for tensor in tensors),
            )
            for bucket, tensors in held.items()
        ]
        return [line for line in made if line.requested_bytes]

    def by_bucket(self) -> Mapping[str, int]:
        """Bytes of each line."""
        return {line.bucket: line.requested_bytes for line in self.lines()}


@dataclass(frozen=True, slots=True)
class Estimate:
    """A step that never ran.

    Attributes:
        shape: the model.
        run: what was chosen.
        accounts: one for each moment, at its highest point.
    """

    shape: Shape
    run: Run
    accounts: tuple[Account, ...]

    @property
    def peak(self) -> Account:
        """The highest moment, the first of them where several are."""
        return max(self.accounts, key=lambda account: account.requested_bytes)

    @property
    def peak_bytes(self) -> int:
        """Bytes asked for at the peak."""
        return self.peak.requested_bytes


def estimate(shape: Shape, run: Run) -> Estimate:
    """The accounts of a training step, from the second on.

    Args:
        shape: the model.
        run: what is chosen.

    Returns:
        Nine moments in order, each at its highest place.
    """
    sizes = shape.sizes | trained_sizes(shape, run)
    phases = {name: phase for name, phase, _ in moments.MOMENTS}
    places = [
        Account(
            place.moment, phases[place.moment], place.name, moments.alive(shape, run, place), sizes | around, run.ranks
        )
        for place, around in moments.place_sizes(shape.layers).items()
    ]
    return Estimate(shape, run, _highest(places))


def estimate_generation(shape: Shape, run: Run) -> Estimate:
    """The accounts of generating: prefill and decode, with weights, KV cache and what a block needs at once."""
    sizes = shape.sizes | trained_sizes(shape, run)
    places = [
        Account(moment, "forward", place, tuple(tensors), sizes, run.ranks)
        for (moment, place), tensors in inference.alive(shape, run).items()
    ]
    return Estimate(shape, run, _highest(places))


def _highest(accounts: Sequence[Account]) -> tuple[Account, ...]:
    best: dict[str, Account] = {}
    for account in accounts:
        known = best.get(account.moment)
        if known is None or account.requested_bytes > known.requested_bytes:
            best[account.moment] = account
    return tuple(best.values())
