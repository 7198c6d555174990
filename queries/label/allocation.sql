-- One allocation: what was asked for, the block it got, when it lived, and in which step and phase.
-- layer: label
-- grain: allocation_id
-- reads: placement, allocation_phase
--   allocation_id: dense number: those older than the recording first, then by birth
--   device: the device
--   stream: the stream it was allocated on
--   pool: its pool, (0,0) being the default one; null where the file does not say
--   address: first address of its block
--   segment_address: first address of its segment
--   requested_bytes: what was asked for
--   held_bytes: the block given out; where the file cannot tell, the requested bytes stand in
--   is_held_known: whether held_bytes is the block's own size
--   birth_event_ix: its alloc event; null when older than the recording
--   free_requested_event_ix: when the program dropped it; null when it never did
--   death_event_ix: when its block went back to the pool; null when it never did
--   birth_us: time of its alloc event
--   free_requested_us: time the program dropped it
--   death_us: time its block went back to the pool
--   stack_id: the stack that allocated it
--   free_stack_id: the stack that dropped it
--   step: the training step it was born in
--   phase: the phase it was born in
--   phase_evidence: what says so, see span
--   free_step: the training step it was dropped in
--   free_phase: the phase it was dropped in
--   is_pending_at_start: whether the program had dropped it before the recording began, so that it only waits
--   block_id: the block of the final snapshot that it still occupies
select
    placement.placement_id as allocation_id,
    placement.device,
    placement.stream,
    placement.pool,
    placement.address,
    placement.segment_address,
    coalesce(placement.requested_bytes, placement.held_bytes) as requested_bytes,
    coalesce(placement.held_bytes, placement.requested_bytes) as held_bytes,
    placement.held_bytes is not null as is_held_known,
    placement.birth_event_ix,
    placement.free_requested_event_ix,
    placement.death_event_ix,
    placement.birth_us,
    placement.free_requested_us,
    placement.death_us,
    placement.stack_id,
    placement.free_stack_id,
    allocation_phase.step,
    allocation_phase.phase,
    allocation_phase.phase_evidence,
    allocation_phase.free_step,
    allocation_phase.free_phase,
    placement.is_pending_at_start,
    placement.block_id
from placement
inner join allocation_phase on placement.placement_id = allocation_phase.allocation_id
