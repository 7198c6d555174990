"""A traced step put through the allocator: its peaks, whether it fits, the largest value that does, its dataset.

What a step asks for is traced in `tracer`, how the allocator answers is `tracekit.allocator`'s; nothing is printed.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from tracekit import what_if
from tracekit.allocator.device import Layout, ascending, descending, shuffled
from tracekit.allocator.program import Program
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import Outcome, run
from tracekit.collector import paused
from tracekit.errors import TracekitError
from tracekit.estimate.traced import script, tape
from tracekit.estimate.traced.cards import Card
from tracekit.estimate.traced.tape import Tape

Tell = Callable[[str], None]

_TRACER = "tracekit.estimate.traced.tracer"
"""The one module with torch, imported when a step is traced and not before."""

MOST_TRIES = 24
"""Steps traced in search of the largest value that fits, at most."""

LAYOUTS: tuple[Callable[[], Layout], ...] = (descending, ascending, *(partial(shuffled, seed) for seed in range(62)))
"""Where new segments may come to lie, which decides between free blocks of one size. The driver does not say: the first
is what it mostly does, and gives the answer; as many as `MOST_OPERATIONS` allows give its span."""

MOST_OPERATIONS, FEWEST_LAYOUTS = 500_000, 16
"""Operations that are run in all layouts together, about, and how many layouts are tried however long a step is."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a step is traced for.

    Attributes:
        card: the GPU.
        workspace_bytes: of one cuBLAS workspace.
        settings: the allocator's.
        limit: bytes that may be reserved in all; None is no limit.
        step_count: training steps to run.
    """

    card: Card
    workspace_bytes: int
    settings: Settings
    limit: int | None
    step_count: int


@dataclass(frozen=True)
class Estimate:
    """One traced step and how the allocator answers it.

    Attributes:
        arguments: what build was given.
        conditions: what it was traced for.
        tape: what it asked for.
    """

    arguments: Mapping[str, script.Value]
    conditions: Conditions
    tape: Tape

    @cached_property
    def program(self) -> Program:
        """The tape as a program."""
        return tape.program(self.tape, self.conditions.settings)

    @cached_property
    def outcomes(self) -> tuple[Outcome, ...]:
        """What comes out with the first of `LAYOUTS`, fewer where a step is long; the first one with its events."""
        count = max(FEWEST_LAYOUTS, MOST_OPERATIONS // max(len(self.tape.kind), 1))
        with paused():
            return tuple(
                run(self.program, self.conditions.settings, self.conditions.limit, lay(), keeps_events=index == 0)
                for index, lay in enumerate(LAYOUTS[:count])
            )

    @property
    def outcome(self) -> Outcome:
        """What most likely comes out."""
        return self.outcomes[0]

    @property
    def fits(self) -> bool:
        """Whether every request is served, most likely."""
        return self.outcome.fits

    def tables(self) -> dict[str, pa.Table]:
        """The raw tables that a recording of it would have."""
        settings = self.outcome.settings
        recorded = what_if.Recorded(tape.tables(self.tape), {0: self.program}, {0: settings})
        return what_if.tables_of(recorded, [what_if.Trial(0, "estimate", settings, self.outcome)])

    def as_row(self) -> dict[str, Any]:
        """The estimate in one row: peaks, their spans and whether it fits."""
        allocated = [outcome.peak_allocated.value for outcome in self.outcomes]
        reserved = [outcome.peak_reserved.value for outcome in self.outcomes]
        return {
            **self.arguments,
            "peak_allocated_bytes": allocated[0],
            "peak_reserved_bytes": reserved[0],
            "lowest_allocated_bytes": min(allocated),
            "highest_allocated_bytes": max(allocated),
            "lowest_reserved_bytes": min(reserved),
            "highest_reserved_bytes": max(reserved),
            "limit_bytes": self.conditions.limit,
            "fits": self.fits,
            "fit_count": sum(outcome.fits for outcome in self.outcomes),
            "layout_count": len(self.outcomes),
        }


def load(text: str) -> Callable[..., Any]:
    """Import torch, then the script that `text` names, and find its function.

    Args:
        text: path/to/file.py:function.

    Raises:
        TracekitError: where torch is not installed, or there is no such function.
    """
    try:
        importlib.import_module(_TRACER)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise TracekitError(
            "torch is not installed, and a script's step is traced with it", "pip install 'tracekit[capture]'"
        ) from error
    return script.load(text)


def estimate(
    build: Callable[..., Any], arguments: Mapping[str, script.Value], conditions: Conditions, tell: Tell
) -> Estimate:
    """Trace a step.

    Args:
        build: the user's function.
        arguments: what it is given beside the device.
        conditions: what to trace for.
        tell: told what is being done.

    Raises:
        TracekitError: where the step cannot be followed.
    """
    script.check_arguments(build, arguments)
    named = ", ".join(f"{name} {value}" for name, value in arguments.items())
    tell(f"tracing {named}".strip())
    with script.explained("the step cannot be traced"):
        made = importlib.import_module(_TRACER).trace(
            partial(build, **arguments),
            conditions.card,
            conditions.workspace_bytes,
            conditions.step_count,
        )
    return Estimate(dict(arguments), conditions, made)


def largest(estimates: list[Estimate], name: str, trace: Callable[[int], Estimate]) -> Estimate | None:
    """The estimate at the largest value that fits, where the next one does not.

    Args:
        estimates: what was traced already, at one value of `name` each; new ones join the list.
        name: the argument that varies: a whole number from 1 on.
        trace: traces another value.

    Returns:
        None where not even 1 fits.

    Raises:
        TracekitError: where no end was found.
    """
    known = {int(one.arguments[name] or 0): one for one in estimates}
    for _ in range(MOST_TRIES):
        fitting = sorted(value for value, one in known.items() if one.fits)
        failing = min((value for value, one in known.items() if not one.fits), default=None)
        below = [value for value in fitting if failing is None or value < failing]
        if failing is not None and failing == (below[-1] + 1 if below else 1):
            return known[below[-1]] if below else None
        value = _between(known, below, failing)
        known[value] = trace(value)
        estimates.append(known[value])
    raise TracekitError(f"no largest {name} was found in {MOST_TRIES} tries", "give values on both sides of it")


def _between(known: Mapping[int, Estimate], fitting: list[int], failing: int | None) -> int:
    """The value to try next: where a line through the two largest that fit meets the limit, or halfway."""
    low = fitting[-1] if fitting else 0
    guess = 2 * low if failing is None else (low + failing) // 2
    if len(fitting) > 1:
        first, last = fitting[-2], fitting[-1]
        (before, at) = (known[value].outcome.peak_reserved.value for value in (first, last))
        limit = known[last].conditions.limit
        if limit is not None and at > before:
            guess = last + max((limit - at) * (last - first) // (at - before), 0)
    highest = guess if failing is None else failing - 1
    return max(low + 1, min(guess, highest))
