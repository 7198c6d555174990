"""The tables of a dataset: their columns, types, units and meanings, as Arrow schemas.

What a table holds is said here and nowhere else; how it is filled belongs to `flatten`, `run_folder` and `place`, what
it means to the SQL under queries/.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

SCHEMA_VERSION = 2
"""Raised whenever a table or column changes meaning; a dataset of another version is refused."""

_TYPES = {
    "integer": pa.int64(),
    "text": pa.string(),
    "boolean": pa.bool_(),
    "json": pa.string(),
}


@dataclass(frozen=True, slots=True)
class TableSpec:
    """One table: what a row is, its sort key, and its Arrow schema with a doc and a unit on each field."""

    name: str
    doc: str
    key: tuple[str, ...]
    schema: pa.Schema


def _table(name: str, doc: str, key: str, columns: str) -> TableSpec:
    """Read one `column type unit meaning...` line a column (a unit of - is none) into a table."""
    fields: list[pa.Field] = []
    for line in columns.strip().splitlines():
        column, kind, unit, meaning = line.strip().split(maxsplit=3)
        metadata: dict[bytes | str, bytes | str] = {"doc": meaning}
        if unit != "-":
            metadata["unit"] = unit
        fields.append(pa.field(column, _TYPES[kind], metadata=metadata))
    about: dict[bytes | str, bytes | str] = {"doc": doc, "schema_version": str(SCHEMA_VERSION)}
    return TableSpec(name, doc, tuple(key.split()), pa.schema(fields, metadata=about))


_RAW = (
    _table(
        "run",
        "The recording as a whole: one row.",
        "layout",
        """
        layout text - how the snapshot was laid out: dict (torch 2.0 and later) or list (before, and memory_snapshot())
        oldest_torch text - the oldest torch release that writes every field seen here; the file does not name its own
        device_count integer - devices that have events or segments
        has_trace boolean - whether any event was recorded; without, only the final state is known
        has_stacks boolean - whether any event or block carries a stack
        has_time boolean - whether events carry a time (torch 2.2 and later)
        extra json - top-level keys this version does not know, as JSON
        """,
    ),
    _table(
        "device",
        "One device the snapshot speaks of.",
        "device",
        """
        device integer - the device's ordinal as torch numbers it
        event_count integer - events in its trace
        segment_count integer - segments it held when the snapshot was taken
        first_time_us integer us time of its first event, since the Unix epoch
        last_time_us integer us time of its last event, since the Unix epoch
        """,
    ),
    _table(
        "allocator_setting",
        "One allocator setting in force when the snapshot was taken.",
        "key",
        """
        key text - the setting's name as torch writes it
        value json - its value as JSON; a max_split_size of -1 is unlimited
        """,
    ),
    _table(
        "segment",
        "One segment held from the device when the snapshot was taken (a mapped run of one, where expandable).",
        "segment_id",
        """
        segment_id integer - dense number in the order of the file
        device integer - the device it lies on
        segment_ix integer - position in the file's list of segments
        address integer - first address
        total_size_bytes integer bytes the segment's bytes, reserved from the device
        allocated_size_bytes integer bytes bytes in blocks held by the program, as the allocator counted them
        active_size_bytes integer bytes allocated_size plus blocks freed that wait for another stream
        requested_size_bytes integer bytes bytes asked for, summed over active blocks (torch 2.0 and later)
        stream integer - the stream it belongs to; 0 is the default stream
        segment_type text - the pool's class: small or large
        pool text - the pool it belongs to, (0,0) being the default one (torch 2.1 and later)
        is_expandable boolean - whether it is a mapped run of an expandable segment
        stack_id integer - the stack that reserved it
        extra json - keys this version does not know, as JSON
        """,
    ),
    _table(
        "block",
        "One block of a segment when the snapshot was taken.",
        "block_id",
        """
        block_id integer - dense number in the order of the file
        segment_id integer - the segment it lies in
        device integer - the device it lies on
        block_ix integer - position in its segment
        address integer - first address (summed up from the sizes before torch 2.1)
        size_bytes integer bytes the block's bytes, after rounding
        requested_size_bytes integer bytes what was asked for; stale where the block is inactive
        state text - active_allocated, active_pending_free or inactive
        stack_id integer - the stack that allocated it, where it is held
        extra json - keys this version does not know, as JSON
        """,
    ),
    _table(
        "block_history",
        "One former or present occupant of a block, newest first (torch 1.13 and 2.0 only).",
        "block_id history_ix",
        """
        block_id integer - the block
        history_ix integer - position in the block's history, 0 being the newest
        address integer - where the occupant began
        real_size_bytes integer bytes what it had asked for
        stack_id integer - its stack, where recorded
        cpp_frames text - its C++ stack as torch formatted it
        """,
    ),
    _table(
        "trace_event",
        "One entry of a device's trace, in the order in which the allocator's state changed.",
        "device event_ix",
        """
        device integer - the device whose trace it is
        event_ix integer - position in that device's trace
        action text - what happened, in torch's word: alloc, free_requested, free_completed, segment_alloc ...
        address integer - the address it happened at; null for oom and snapshot
        size_bytes integer bytes requested bytes of alloc and free_*, segment bytes of segment_*, rounded bytes of oom, active bytes of snapshot
        device_free_bytes integer bytes what the driver reported as free on the device, for oom
        stream integer - the stream of the block or segment
        time_us integer us since the Unix epoch (torch 2.2 and later); ties are common, order is event_ix
        stack_id integer - the stack, where one was recorded
        pool text - the pool, where the entry says it (torch 2.12 and later)
        compile_context text - the torch.compile region, null outside one
        user_metadata text - what the program had set by _set_memory_metadata, JSON text where it was a dict
        forward_stack_id integer - stack of the forward call, recorded under anomaly mode only
        category text - the profiler's category, in snapshots built by torch.profiler only
        internal_metadata text - the allocator's own tag (torch 2.15 and later)
        extra json - keys this version does not know and values that do not fit their column, as JSON
        """,
    ),
    _table(
        "stack",
        "One distinct stack of frames.",
        "stack_id",
        """
        stack_id integer - dense number in order of first appearance
        depth_count integer - its number of frames
        """,
    ),
    _table(
        "stack_frame",
        "One frame of one stack.",
        "stack_id depth_ix",
        """
        stack_id integer - the stack
        depth_ix integer - position in it, 0 being the innermost; Python and C++ frames may be misplaced against each other
        frame_id integer - the frame
        """,
    ),
    _table(
        "frame",
        "One distinct frame.",
        "frame_id",
        """
        frame_id integer - dense number in order of first appearance
        name text - function name: Python's co_name, or the C++ signature
        filename text - source file; null where the recorder had none ('??' or empty)
        line integer - line number; null where the recorder had none (0)
        extra json - further keys, such as the fx_* of traced graphs, as JSON
        """,
    ),
    _table(
        "annotation",
        "One START or END mark of a record_function range.",
        "annotation_ix",
        """
        annotation_ix integer - position in the file's list
        device integer - the device that was current at the call
        name text - the range's name
        stage text - START or END
        time_us integer us since the Unix epoch
        event_ix integer - the first event of its device at or after it; null where there is none
        extra json - keys this version does not know, as JSON
        """,
    ),
    _table(
        "host_entry",
        "One segment or event of the pinned host-memory allocator (torch 2.14 and later, where recorded).",
        "source list_ix entry_ix",
        """
        source text - host_segments or host_traces
        list_ix integer - position of the inner list, 0 where there is none
        entry_ix integer - position of the entry in its list
        action text - what happened, in torch's word
        address integer - host address
        size_bytes integer bytes size as recorded
        time_us integer us since the Unix epoch
        stack_id integer - the stack, where recorded
        extra json - every other key, as JSON
        """,
    ),
    _table(
        "note",
        "One kind of thing the reader met and did not understand, kept and counted.",
        "place what",
        """
        place text - where: run, segment, block, trace_event, frame, annotation; capture, mark, tensor or op of a run folder
        what text - an unknown key, an unknown action, or a value that does not fit its column
        occurrence_count integer - how often
        """,
    ),
)

_PLACED = (
    _table(
        "replay",
        "How far a replay of the caching allocator agrees with one device's recording.",
        "device",
        """
        device integer - the device
        is_exact boolean - whether every address, every segment and the final blocks agree; null where there is no trace
        mismatch_count integer - events at which the replay and the recording disagree
        first_mismatch_event_ix integer - the first such event
        verdict text - a sentence for the person
        opening_allocation_count integer - allocations older than the recording
        opening_reserved_bytes integer bytes segments held when the recording began
        unknown_held_count integer - allocations whose block size the file cannot tell; their requested bytes stand in
        final_block_difference_count integer - blocks whose final state differs from the file's
        peak_allocated_bytes integer bytes largest bytes in allocated blocks
        peak_allocated_event_ix integer - the first event after which it was reached; null for the opening state
        peak_active_bytes integer bytes largest bytes in active blocks
        peak_active_event_ix integer - the first event after which it was reached; null for the opening state
        peak_requested_bytes integer bytes largest bytes asked for and not yet freed
        peak_requested_event_ix integer - the first event after which it was reached; null for the opening state
        peak_reserved_bytes integer bytes largest bytes in segments
        peak_reserved_event_ix integer - the first event after which it was reached; null for the opening state
        """,
    ),
    _table(
        "mismatch",
        "One point at which the replay and the recording disagree (the first hundred of each device).",
        "device mismatch_ix",
        """
        device integer - the device
        mismatch_ix integer - position among the device's mismatches
        event_ix integer - the event; null where the opening state is meant
        kind text - what disagrees, or which event is missing: opening, address, growth, release, out_of_memory, lost_free, lost_alloc, lost_segment
        expected_address integer - the address the replay chose, where it chose one
        found_address integer - the address the recording shows
        reason text - the likely reason
        """,
    ),
    _table(
        "placement",
        "One allocation and the block it really got: those older than the recording first, then by birth.",
        "placement_id",
        """
        placement_id integer - dense number over all devices
        device integer - the device
        address integer - first address of its block
        requested_bytes integer bytes what was asked for; null where the file does not say
        held_bytes integer bytes the block given out; null where the file cannot tell
        stream integer - the stream it was allocated on
        pool text - its pool; null where the file does not say
        segment_address integer - first address of the segment it lies in
        birth_event_ix integer - its alloc event; null when older than the recording
        free_requested_event_ix integer - when the program dropped it; null when it never did
        death_event_ix integer - when its block went back to the pool; null when it never did
        birth_us integer us time of its alloc event
        free_requested_us integer us time the program dropped it
        death_us integer us time its block went back to the pool
        stack_id integer - the stack that allocated it, from its alloc event or else from its block
        free_stack_id integer - the stack at its free_requested event; the allocating one where the recorder kept no other
        is_pending_at_start boolean - whether the program had dropped it before the recording began, so that it only waits
        is_exact boolean - whether the replay chose the recorded address; null for one older than the recording
        block_id integer - the block of the final snapshot that it still occupies
        """,
    ),
    _table(
        "reserved_range",
        "One run of addresses reserved from the device, from one event to another: a segment, or mapped pages of an expandable one.",
        "reserved_range_id",
        """
        reserved_range_id integer - dense number: those older than the recording first, then by birth
        device integer - the device
        address integer - first address
        size_bytes integer bytes its bytes
        stream integer - the stream it belongs to
        pool text - its pool, (0,0) being the default one
        is_small boolean - whether it is of the small pool, which serves requests of up to 1 MiB
        is_expandable boolean - whether it is mapped pages of an expandable segment; runs side by side are one there
        birth_event_ix integer - the event that reserved it; null when older than the recording
        death_event_ix integer - the event that gave it back; null when it never was
        """,
    ),
)

_RECORDED = (
    _table(
        "run_fact",
        "One fact that the recorder wrote beside the snapshot, in capture.json of a run folder.",
        "key",
        """
        key text - its name there: torch, driver, devices, program, arguments, git_commit, step_count, exit ...
        value json - its value as JSON
        """,
    ),
    _table(
        "dump",
        "One dump that the recorder made, on one device.",
        "dump_ix device",
        """
        dump_ix integer - position in the recorder's list, oldest first
        device integer - the device
        file text - its name in the run folder
        reason text - why it was made: step, oom, signal, exit, end, exception or manual
        step integer - the training step it was made in; null outside of steps
        phase text - the phase it was made in; null outside of phases
        time_us integer us when it had been written, since the Unix epoch
        event_count integer - events of the device in it
        is_ring_full boolean - whether the recorder's ring was full, so that the beginning is lost
        is_snapshot boolean - whether it is the one that this dataset was made from
        """,
    ),
    _table(
        "mark",
        "One reading of torch's own counters that the recorder took, at a named point of the program on one device.",
        "mark_ix",
        """
        mark_ix integer - position in the recorder's list, oldest first
        device integer - the device
        name text - the point: begin, load_model, 2.forward (when step 2's forward ended), 2.end, out_of_memory, or the program's own
        step integer - the training step it lies in; null outside of steps
        time_us integer us since the Unix epoch, the clock of the events
        requested_bytes integer bytes what torch counted as asked for; null where the reading does not say
        allocated_bytes integer bytes what torch counted in blocks given out
        active_bytes integer bytes what torch counted in blocks not back in the pool; null where the reading does not say
        reserved_bytes integer bytes what torch counted in segments
        peak_allocated_bytes integer bytes the largest allocated_bytes since peak_since_us, as torch kept it
        peak_reserved_bytes integer bytes the largest reserved_bytes since peak_since_us, as torch kept it
        peak_since_us integer us when the recorder last reset the peaks; null for never, so since the process began
        alloc_count integer - allocations the device had served since the process began
        free_count integer - allocations the program had dropped by then
        completed_count integer - blocks that were back in the pool by then; null where the reading does not say
        segment_alloc_count integer - segments got from the device by then
        segment_free_count integer - segments given back by then
        device_alloc_count integer - times the device had been asked for memory by then, for segments and for mapped pages; null where the reading does not say
        device_free_count integer - times memory had been given back to it by then; null where the reading does not say
        oom_count integer - requests that had failed by then; null where the reading does not say
        stats json - torch.cuda.memory_stats as JSON, without what was zero
        """,
    ),
    _table(
        "tensor",
        "One tensor of the recorder's roll: which address was which parameter, buffer, gradient or optimizer state, and when.",
        "tensor_ix",
        """
        tensor_ix integer - position in the roll
        device integer - the device
        address integer - first address of its storage
        storage_bytes integer bytes the storage's bytes
        storage_offset_bytes integer bytes where in the storage the tensor begins
        tensor_bytes integer bytes the tensor's own bytes; several tensors may share a storage
        shape json - its shape
        dtype text - its dtype: float32
        role text - parameter, buffer, gradient or optimizer_state
        name text - the parameter's or buffer's path in the model; of optimizer state, its key after that
        step integer - the step at whose end it was seen, counted from 1
        time_us integer us when it was seen
        alloc_count integer - allocations the device had served by then, as in a mark
        """,
    ),
    _table(
        "op",
        "One output with a storage of its own of one call of an operator, from the recorder's op log; one row for a call without.",
        "op_row_ix",
        """
        op_row_ix integer - position in the log
        op_ix integer - number of the call; events in it carry it in user_metadata where torch has that
        operator text - the operator and its overload: aten.mm.default
        pass text - forward, recompute or backward; null outside of marked modules
        module text - path of the module it ran in; null outside of marked modules
        phase text - the program's phase; null outside of phases
        step integer - the training step; null outside of steps
        thread integer - number of the thread, 0 being the first one seen
        begin_us integer us when the call began
        end_us integer us when it had returned
        input_shapes json - shapes of the tensors given to it
        output_ix integer - which of its outputs; null where it returned no new storage
        device integer - device of that output's storage
        address integer - first address of that storage
        storage_bytes integer bytes that storage's bytes
        shape json - the output's shape
        dtype text - the output's dtype
        """,
    ),
)

_GIVEN = (
    _table(
        "user_rule",
        "One bucket rule of the user's own, from a file given with --rules; see the view bucket_rule for its conditions.",
        "rule_ix",
        """
        rule_ix integer - position in the file; of those that hold the first wins, before any built-in one
        rule_id text - the rule's name
        bucket text - the bucket it puts allocations in, perhaps a new one
        evidence text - what it rests on: identity, stack, lifetime or size
        tensor_role text - condition on the role in the recorder's roll
        role text - condition on the roles of the stack's frames
        free_role text - condition on the roles of the frames that dropped it
        library text - condition on the library
        phase text - condition on the phase of birth
        free_phase text - condition on the phase it was dropped in
        lifetime text - condition on the lifetime
        operator text - condition on the operator
        module_part text - condition on parameter, buffer, copy or input
        size_like text - condition on what it has the size of
        origin text - condition on recorded or opening
        autograd_node text - condition on the autograd node
        frame text - regular expression that a frame of the stack must match in part: file:line function, or the C++ name
        why text - a sentence for the person
        """,
    ),
)

TABLES: dict[str, TableSpec] = {spec.name: spec for spec in (*_RAW, *_RECORDED, *_PLACED, *_GIVEN)}
"""Every table of a dataset by name: those of the snapshot, of the run folder, of the replay, and what the user gave."""

RAW_TABLES: tuple[str, ...] = tuple(spec.name for spec in _RAW)
RECORDED_TABLES: tuple[str, ...] = tuple(spec.name for spec in _RECORDED)
PLACED_TABLES: tuple[str, ...] = tuple(spec.name for spec in _PLACED)

SPARSE_TABLES: tuple[str, ...] = (*RECORDED_TABLES, *(spec.name for spec in _GIVEN))
"""Tables that a dataset need not have rows for: without a run folder, or rules of the user's own."""
