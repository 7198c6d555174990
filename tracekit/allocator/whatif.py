"""A recorded program run again under other settings or a smaller limit: its peaks, or how it ran out of memory.

Deterministic and without a device; the result has the shape of a recording, so that whatever reads one can read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tracekit.allocator.blocks import ALLOCATED, FREE, PENDING, STATE_NAMES, UNMAPPED, Block, Segment
from tracekit.allocator.device import Device, Layout
from tracekit.allocator.forced import MovableAllocator, enter_opening
from tracekit.allocator.model import OutOfMemoryError
from tracekit.allocator.opening import GROWTHS, RELEASES
from tracekit.allocator.program import ALLOCATE, ATTEMPT, COMPLETE, DROP, Program
from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.result import Peak
from tracekit.allocator.settings import PoolId, Settings

NO_PEAK = Peak(0, None)


class CachedBlock(NamedTuple):
    """A free block that did not help a request that failed.

    Attributes:
        address: where it begins.
        size: its bytes.
        stream: its stream.
        pool: its pool.
        segment_address: the segment it lies in.
        segment_size: that segment's bytes; of an expandable one, those of the range.
        below: the allocation that lies just below it in the segment and keeps it there, None where none does.
        above: the one just above.
        obstacle: why it could not serve: `too small`, `another stream`, `another pool` or `max_split_size`.
    """

    address: int
    size: int
    stream: int
    pool: PoolId
    segment_address: int
    segment_size: int
    below: int | None
    above: int | None
    obstacle: str


@dataclass(slots=True)
class OutOfMemory:
    """How a program ran out of memory.

    Attributes:
        event_ix: the event of the recording whose request failed; None for what is older than the recording.
        position: the operation of the program.
        number: the allocation.
        request_bytes: what was asked for; as the allocator rounds it where the recording itself ran out there.
        rounded_bytes: the size that was looked for.
        segment_bytes: what the driver was asked for.
        stream: the stream.
        pool: the pool.
        allocated_bytes: bytes in allocated blocks then.
        active_bytes: bytes in allocated and pending blocks then.
        reserved_bytes: bytes reserved then, after all that was idle had been given back.
        released_bytes: bytes that were given back for this request.
        limit_bytes: the limit, if there is one.
        cached: the free blocks that were left, largest first.
    """

    event_ix: int | None
    position: int
    number: int
    request_bytes: int
    rounded_bytes: int
    segment_bytes: int
    stream: int
    pool: PoolId
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    released_bytes: int
    limit_bytes: int | None
    cached: list[CachedBlock]

    @property
    def free_bytes(self) -> int | None:
        """What the limit still left to reserve."""
        return None if self.limit_bytes is None else self.limit_bytes - self.reserved_bytes

    @property
    def cached_bytes(self) -> int:
        """Bytes in the free blocks that were left."""
        return sum(block.size for block in self.cached)


@dataclass(slots=True)
class Outcome:
    """What became of a program.

    Attributes:
        settings: the settings it ran under, with the limit in them.
        peak_allocated: bytes in allocated blocks, at most, and the event of the recording at which.
        peak_active: bytes in allocated and pending blocks, at most.
        peak_requested: bytes asked for in allocated and pending blocks, at most.
        peak_reserved: bytes reserved, at most.
        final_allocated: bytes in allocated blocks at the end.
        final_reserved: bytes reserved at the end.
        retries: how often the cache was released because a request ran short.
        out_of_memory: the request that ended the program, or failed in the recording and here too.
        operation_count: how many operations were carried out.
        events: what a recording would show; empty where it was not asked for.
        source_ix: the event of the recording behind each of them, None where it is older.
        segments: the segments at the end, as a snapshot has them.
    """

    settings: Settings
    peak_allocated: Peak = NO_PEAK
    peak_active: Peak = NO_PEAK
    peak_requested: Peak = NO_PEAK
    peak_reserved: Peak = NO_PEAK
    final_allocated: int = 0
    final_reserved: int = 0
    retries: int = 0
    out_of_memory: OutOfMemory | None = None
    operation_count: int = 0
    events: Events = field(default_factory=lambda: Events([], [], [], []))
    source_ix: list[int | None] = field(default_factory=list["int | None"])
    segments: list[FinalSegment] = field(default_factory=list[FinalSegment])

    @property
    def fits(self) -> bool:
        """True where every request was served."""
        return self.out_of_memory is None


def run(
    program: Program,
    settings: Settings | None = None,
    limit: int | None = None,
    layout: Layout | None = None,
    keeps_opening: bool | None = None,
    keeps_events: bool = True,
) -> Outcome:
    """Run a program again.

    Args:
        program: what to run.
        settings: the settings to run it under; those of the recording where none are given.
        limit: bytes that may be reserved in all, as set_per_process_memory_fraction limits them.
        layout: where new segments go, from `tracekit.allocator.device`; without one, where the recording had them.
        keeps_opening: True takes what was there before the recording as it lay; False has it asked for anew, by
            address. Left out, it is kept where the settings are the recording's, and asked for anew where not.
        keeps_events: whether to write down what a recording would show.
    """
    chosen = settings or program.settings
    if keeps_opening is None:
        keeps_opening = replace(chosen, memory_limit=None) == replace(program.settings, memory_limit=None)
    if limit is not None:
        chosen = replace(chosen, memory_limit=limit)
    return _Run(program, chosen, layout, keeps_opening, keeps_events).run()


class _Run:
    """One run under way."""

    def __init__(
        self, program: Program, settings: Settings, layout: Layout | None, keeps_opening: bool, keeps_events: bool
    ) -> None:
        self.program = program
        self.device = Device(settings, layout, program.bases, program.range_bases)
        self.allocator = MovableAllocator(settings, self.device)
        self.blocks: list[Block | None] = [None] * len(program.requested)
        self.outcome = Outcome(settings)
        self.keeps_opening = keeps_opening
        self.keeps_events = keeps_events
        self.action: list[str] = []
        self.address: list[int | None] = []
        self.size: list[int] = []
        self.stream: list[int] = []
        self.pool: list[PoolId] = []
        self.reserved = 0

    def run(self) -> Outcome:
        """Carry out the operations until one fails."""
        first = 0
        if self.keeps_opening and self.program.opening_count:
            self.enter_opening()
            first = self.program.opening_count
        self.carry_out(first)
        return self.result()

    def enter_opening(self) -> None:
        """Take over what was there before the recording, as it lay."""
        allocator, outcome = self.allocator, self.outcome
        segments, blocks = enter_opening(allocator, self.program.opening)
        for segment in {id(segment): segment for segment in segments if segment is not None}.values():
            used = sum(block.size for block in segment if block.state != UNMAPPED)
            self.device.claim(segment.address, segment.size, used)
        for number, block in enumerate(blocks):
            if block is not None:
                block.ticket = number
                self.blocks[number] = block
        self.reserved = allocator.reserved
        outcome.peak_allocated = Peak(allocator.allocated, None)
        outcome.peak_active = Peak(allocator.active, None)
        outcome.peak_requested = Peak(allocator.requested, None)
        outcome.peak_reserved = Peak(allocator.reserved, None)

    def carry_out(self, first: int) -> None:
        """Carry out the operations from one on."""
        program, allocator, blocks = self.program, self.allocator, self.blocks
        peak_allocated, peak_active, peak_requested = -1, -1, -1
        operations = zip(program.kind[first:], program.number[first:], program.source_ix[first:], strict=True)
        for position, (kind, number, source_ix) in enumerate(operations, first):
            if kind == ALLOCATE:
                if not self.allocate(position, number, source_ix):
                    break
                if allocator.allocated > peak_allocated:
                    peak_allocated = self.note_peak("peak_allocated", allocator.allocated, source_ix)
                if allocator.active > peak_active:
                    peak_active = self.note_peak("peak_active", allocator.active, source_ix)
                if allocator.requested > peak_requested:
                    peak_requested = self.note_peak("peak_requested", allocator.requested, source_ix)
            elif kind in (DROP, COMPLETE):
                block = blocks[number]
                if block is not None and block.ticket == number:
                    self.give_back(kind, block, number, source_ix)
            elif kind == ATTEMPT:
                self.attempt(position, number, source_ix)
            else:
                allocator.empty_cache()
                self.record_steps(source_ix)
        else:
            position = len(program)
        self.outcome.operation_count = position

    def note_peak(self, name: str, value: int, source_ix: int | None) -> int:
        """Keep the higher of a peak and a value, and return it."""
        peak: Peak = getattr(self.outcome, name)
        if value > peak.value:
            peak = Peak(value, source_ix)
            setattr(self.outcome, name, peak)
        return peak.value

    def allocate(self, position: int, number: int, source_ix: int | None) -> bool:
        """Serve a request, or tell how it failed."""
        program, allocator = self.program, self.allocator
        requested, stream, pool = program.requested[number], program.stream[number], program.pool[number]
        before = allocator.reserved
        allocator.is_capturing = pool[0] != 0
        try:
            block = allocator.malloc(requested, stream, pool)
        except OutOfMemoryError as error:
            self.record_steps(source_ix)
            self.record("oom", None, error.rounded, stream, pool, source_ix)
            self.outcome.out_of_memory = self.tell(error, position, number, source_ix, before)
            return False
        if allocator.steps:
            self.record_steps(source_ix)
        block.ticket = number
        self.blocks[number] = block
        if self.keeps_events:
            self.record("alloc", block.address, requested, stream, pool, source_ix)
        return True

    def attempt(self, position: int, number: int, source_ix: int | None) -> None:
        """Try a request that failed in the recording."""
        if self.allocate(position, number, source_ix):
            block = self.blocks[number]
            self.note_peak("peak_allocated", self.allocator.allocated, source_ix)
            self.note_peak("peak_active", self.allocator.active, source_ix)
            self.note_peak("peak_requested", self.allocator.requested, source_ix)
            if block is not None:
                self.give_back(DROP, block, number, source_ix)
                self.give_back(COMPLETE, block, number, source_ix)

    def give_back(self, kind: int, block: Block, number: int, source_ix: int | None) -> None:
        """Drop a block or complete its free; a release on the way may have completed it already."""
        home = block.segment.home
        address, requested = block.address, block.requested
        if kind == DROP and block.state == ALLOCATED:
            self.allocator.request_free(block)
            action = "free_requested"
        elif kind == COMPLETE and block.state == PENDING:
            self.blocks[number] = None
            self.allocator.complete_free(block)
            action = "free_completed"
        else:
            return
        if self.keeps_events:
            self.record(action, address, requested, home.stream, home.pool.id, source_ix)

    # What a recording would show

    def record(
        self, action: str, address: int | None, size: int, stream: int, pool: PoolId, source_ix: int | None
    ) -> None:
        """Write down an event."""
        if self.keeps_events:
            self.action.append(action)
            self.address.append(address)
            self.size.append(size)
            self.stream.append(stream)
            self.pool.append(pool)
            self.outcome.source_ix.append(source_ix)

    def record_steps(self, source_ix: int | None) -> None:
        """Write down what the allocator did to make room."""
        for step in self.allocator.steps:
            if step.action in GROWTHS:
                self.reserved += step.size
                self.note_peak("peak_reserved", self.reserved, source_ix)
            elif step.action in RELEASES:
                self.reserved -= step.size
            self.record(step.action, step.address, step.size, step.stream, step.pool, source_ix)
        self.allocator.steps.clear()

    def result(self) -> Outcome:
        """Put together what came out."""
        outcome, allocator = self.outcome, self.allocator
        outcome.final_allocated = allocator.allocated
        outcome.final_reserved = allocator.reserved
        outcome.retries = allocator.retries
        outcome.events = Events(self.action, self.address, self.size, self.stream, self.pool)
        if self.keeps_events:
            segments = [allocator.segments[base] for base in allocator.bases]
            outcome.segments = [final for segment in segments for final in _final_segments(segment)]
        return outcome

    # How it ran out

    def tell(
        self, error: OutOfMemoryError, position: int, number: int, source_ix: int | None, before: int
    ) -> OutOfMemory:
        """Tell how a request failed."""
        stream, pool = self.program.stream[number], self.program.pool[number]
        cached = [
            self.describe(block, error.rounded, stream, pool)
            for pool_of_blocks in self.allocator.pools.values()
            for block in pool_of_blocks.ordered()
        ]
        return OutOfMemory(
            event_ix=source_ix,
            position=position,
            number=number,
            request_bytes=error.requested,
            rounded_bytes=error.rounded,
            segment_bytes=error.segment_size,
            stream=stream,
            pool=pool,
            allocated_bytes=error.allocated,
            active_bytes=error.active,
            reserved_bytes=error.reserved,
            released_bytes=max(before - error.reserved, 0),
            limit_bytes=self.allocator.settings.memory_limit,
            cached=sorted(cached, key=lambda one: (-one.size, one.address)),
        )

    def describe(self, block: Block, rounded: int, stream: int, pool: PoolId) -> CachedBlock:
        """Tell why a free block did not serve a request, and what keeps it where it is."""
        segment = block.segment
        home = segment.home
        if block.size < rounded:
            obstacle = "too small"
        elif home.pool.id != pool:
            obstacle = "another pool"
        elif home.stream != stream:
            obstacle = "another stream"
        else:
            obstacle = "max_split_size"
        return CachedBlock(
            block.address,
            block.size,
            home.stream,
            home.pool.id,
            segment.address,
            segment.size,
            _ticket(block.prev),
            _ticket(block.next),
            obstacle,
        )


def _ticket(block: Block | None) -> int | None:
    return block.ticket if block is not None and block.state in (ALLOCATED, PENDING) else None


def _final_segments(segment: Segment) -> Iterator[FinalSegment]:
    """List a segment as a snapshot does; an expandable one as its mapped runs."""
    run: list[Block] = []
    for block in segment:
        if block.state != UNMAPPED:
            run.append(block)
        elif run:
            yield _final_segment(segment, run)
            run = []
    if run:
        yield _final_segment(segment, run)


def _final_segment(segment: Segment, run: list[Block]) -> FinalSegment:
    home = segment.home
    return FinalSegment(
        run[0].address,
        sum(block.size for block in run),
        home.stream,
        home.pool.id,
        home.pool.is_small,
        segment.is_expandable,
        [
            FinalBlock(
                block.address, block.size, 0 if block.state == FREE else block.requested, STATE_NAMES[block.state]
            )
            for block in run
        ],
    )
