"""A recording's program: what it asked for and gave back, with every decision of the allocator taken out.

How an allocator answers is not known here; that is `tracekit.allocator.whatif`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tracekit.allocator.opening import Opening
from tracekit.allocator.recording import Events
from tracekit.allocator.result import Replay
from tracekit.allocator.settings import DEFAULT_POOL, PoolId, Settings

ALLOCATE = 0
DROP = 1
COMPLETE = 2
EMPTY_CACHE = 3
ATTEMPT = 4
"""What a program does. Drop: it lets go of a block; complete: the last stream is done with it. Attempt: a request
that failed in the recording; where it succeeds, the block is given back at once, for nobody knows how long the
program would have kept it."""


@dataclass(slots=True)
class Program:
    """What a program does, in order, and the allocations it does it with.

    Attributes:
        kind: ALLOCATE, DROP, COMPLETE, EMPTY_CACHE or ATTEMPT, one an operation.
        number: the allocation it is about, -1 for EMPTY_CACHE. The number of an allocation is the position of its
            placement; attempts come after those.
        source_ix: the event of the recording that it comes from, None where it is older than the recording.
        requested: the bytes of each allocation, as asked for; of an attempt, as rounded.
        stream: the stream of each allocation.
        pool: the pool of each allocation.
        opening: what was there before the recording; the first operations set it up anew.
        opening_count: how many operations do so.
        settings: the settings that it was recorded under.
        bases: size and address of the segments that the recording shows, in order.
        range_bases: where the ranges of its expandable segments begin, in order.
    """

    kind: list[int] = field(default_factory=list[int])
    number: list[int] = field(default_factory=list[int])
    source_ix: list[int | None] = field(default_factory=list["int | None"])
    requested: list[int] = field(default_factory=list[int])
    stream: list[int] = field(default_factory=list[int])
    pool: list[PoolId] = field(default_factory=list[PoolId])
    opening: Opening = field(default_factory=Opening)
    opening_count: int = 0
    settings: Settings = field(default_factory=Settings)
    bases: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    range_bases: list[int] = field(default_factory=list[int])

    def __len__(self) -> int:
        return len(self.kind)

    def add(self, kind: int, number: int, source_ix: int | None = None) -> None:
        """Append an operation."""
        self.kind.append(kind)
        self.number.append(number)
        self.source_ix.append(source_ix)

    def add_allocation(self, requested: int, stream: int = 0, pool: PoolId = DEFAULT_POOL) -> int:
        """Append an allocation and return its number; the operations about it are added apart."""
        self.requested.append(requested)
        self.stream.append(stream)
        self.pool.append(pool)
        return len(self.requested) - 1


def program_of(replay: Replay, events: Events) -> Program:
    """Take the program out of a recording and its replay.

    Releases that a request caused by running short are the allocator's own and are left out; those that the program
    asked for become EMPTY_CACHE. What is older than the recording is asked for first, by address.
    """
    rows = replay.placements
    program = Program(settings=replay.settings, opening=replay.opening, range_bases=replay.range_bases)
    for requested, held, stream, pool in zip(rows.requested, rows.held, rows.stream, rows.pool, strict=True):
        size = held if requested is None else requested
        program.add_allocation(1 if size is None else size, stream, pool or DEFAULT_POOL)
    for number in range(replay.opening_count):
        program.add(ALLOCATE, number)
        if number in replay.pending_at_opening:
            program.add(DROP, number)
    program.opening_count = len(program)
    _add_operations(program, replay, events)
    program.bases = [
        (events.size[ix] or 0, events.address[ix] or 0)
        for ix, action in enumerate(events.action)
        if action == "segment_alloc"
    ]
    return program


def _add_operations(program: Program, replay: Replay, events: Events) -> None:
    """Go through the events; where a block must have gone because another came, its end goes first."""
    rows, count = replay.placements, len(events)
    overtaken: dict[int, list[tuple[int, int]]] = {}
    dropped = _by_event(rows.free_requested_ix, count, DROP, overtaken)
    ended = _by_event(rows.death_ix, count, COMPLETE, overtaken)
    born = _by_event(rows.birth_ix, count, ALLOCATE, overtaken)
    emptied = set(replay.empty_cache_ix)
    for ix, action in enumerate(events.action):
        for kind, number in overtaken.get(ix, ()):
            program.add(kind, number, ix)
        for kind, number in ((DROP, dropped[ix]), (COMPLETE, ended[ix]), (ALLOCATE, born[ix])):
            if number >= 0:
                program.add(kind, number, ix)
        if ix in emptied:
            program.add(EMPTY_CACHE, -1, ix)
        elif action == "oom":
            _add_attempt(program, events, ix)


def _by_event(
    column: list[int | None], count: int, kind: int, overtaken: dict[int, list[tuple[int, int]]]
) -> list[int]:
    """List for each event the allocation it is about, -1 for none; where there are several, all but the first."""
    numbers = [-1] * count
    for number, ix in enumerate(column):
        if ix is not None and numbers[ix] >= 0:
            overtaken.setdefault(ix, []).append((kind, number))
        elif ix is not None:
            numbers[ix] = number
    return numbers


def _add_attempt(program: Program, events: Events, ix: int) -> None:
    pool = events.pool[ix] if events.pool is not None else None
    number = program.add_allocation(events.size[ix] or 0, events.stream[ix] or 0, pool or DEFAULT_POOL)
    program.add(ATTEMPT, number, ix)


def allocate_earlier(program: Program, numbers: Iterable[int], position: int) -> Program:
    """Let a program ask for some of its allocations earlier, just before the operation at `position`.

    They keep their order among themselves, and are given back where they were. This answers questions such as: what
    if the optimizer's state were created before the first forward pass?

    Args:
        program: the program as recorded.
        numbers: the allocations to move.
        position: the operation that they shall come before.

    Raises:
        ValueError: where one of them is asked for before that already.
    """
    chosen = set(numbers)
    moved = [
        at
        for at, (kind, number) in enumerate(zip(program.kind, program.number, strict=True))
        if kind == ALLOCATE and number in chosen
    ]
    if moved and moved[0] < position:
        number = program.number[moved[0]]
        raise ValueError(f"allocation {number} is made at operation {moved[0]}, before {position} already")
    gone = set(moved)
    order = [*range(position), *moved, *(at for at in range(position, len(program)) if at not in gone)]
    return replace(
        program,
        kind=[program.kind[at] for at in order],
        number=[program.number[at] for at in order],
        source_ix=[program.source_ix[at] for at in order],
    )
