"""Small programs written by hand, recorded as torch would have: through the allocator, with stacks, into a snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.snapshots import block, dumped, event, frame, segment, snapshot
from tracekit import analysis, fit
from tracekit.allocator.program import ALLOCATE, COMPLETE, DROP, Program
from tracekit.allocator.whatif import run

MIB = 1 << 20

Line = tuple[str, str, int, tuple[str, ...]]
"""An allocation by name, its bytes and its functions, innermost first; or `free` and a name."""

Record = Callable[..., fit.Source]


def alloc(name: str, size: int, *functions: str) -> Line:
    """Ask for bytes, from functions of the script."""
    return ("alloc", name, size, functions)


def free(name: str) -> Line:
    """Give an allocation back."""
    return ("free", name, 0, ())


def snapshot_of(lines: Sequence[Line], first_line: int = 1, outermost: str = "<module>") -> dict[str, Any]:
    """The snapshot of a program.

    Args:
        lines: what it does.
        first_line: where its functions begin in the script; another version of it has them elsewhere.
        outermost: the function that calls all the others.
    """
    program = Program()
    numbers: dict[str, int] = {}
    stacks: dict[int, list[dict[str, Any]]] = {}
    for position, (kind, name, size, functions) in enumerate(lines):
        if kind == "alloc":
            numbers[name] = program.add_allocation(size)
            program.add(ALLOCATE, numbers[name], position)
        else:
            program.add(DROP, numbers[name], position)
            program.add(COMPLETE, numbers[name], position)
        stacks[position] = [
            frame(function, "/home/user/train.py", first_line + index)
            for index, function in enumerate((*functions, outermost))
        ]
    outcome = run(program)
    events = outcome.events
    trace = [
        event(action or "", address or 0, size or 0, frames=stacks[source_ix or 0], time_us=1_000 + index)
        for index, (action, address, size, source_ix) in enumerate(
            zip(events.action, events.address, events.size, outcome.source_ix, strict=True)
        )
    ]
    segments = [
        segment(
            one.address,
            one.total_size,
            [block(each.address, each.size, each.state, each.requested_size or 0) for each in one.blocks],
        )
        for one in outcome.segments
    ]
    return snapshot(segments, [trace])


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    """Record a program at a point, as `fit.read` takes it."""
    with ExitStack() as stack:

        def made(point: int | tuple[int, ...], lines: Sequence[Line], **version: Any) -> fit.Source:
            at = (point,) if isinstance(point, int) else point
            path = tmp_path / f"{fit.told(at)}.pickle"
            path.write_bytes(dumped(snapshot_of(lines, **version)))
            warehouse = stack.enter_context(analysis.open_any(path))
            return fit.read(at, fit.told(at), warehouse)

        yield made
