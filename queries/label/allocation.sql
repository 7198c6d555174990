-- One allocation: what was asked for, the block it got, when it lived, and in which step and phase.
-- layer: label
-- grain: allocation_id
-- reads: placement, span
-- stored: yes
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
--   phase_evidence: what says so: annotation or stack
--   free_step: the training step it was dropped in
--   free_phase: the phase it was dropped in
--   is_pending_at_start: whether the program had dropped it before the recording began, so that it only waits
--   block_id: the block of the final snapshot that it still occupies
with begun as (
    select
        placement.*,
        span.step,
        span.phase,
        span.phase_evidence
    from placement
    asof left join span
        on placement.device = span.device and placement.birth_event_ix >= span.begin_event_ix
)

select
    begun.placement_id as allocation_id,
    begun.device,
    begun.stream,
    begun.pool,
    begun.address,
    begun.segment_address,
    coalesce(begun.requested_bytes, begun.held_bytes) as requested_bytes,
    coalesce(begun.held_bytes, begun.requested_bytes) as held_bytes,
    begun.held_bytes is not null as is_held_known,
    begun.birth_event_ix,
    begun.free_requested_event_ix,
    begun.death_event_ix,
    begun.birth_us,
    begun.free_requested_us,
    begun.death_us,
    begun.stack_id,
    begun.free_stack_id,
    begun.step,
    begun.phase,
    begun.phase_evidence,
    span.step as free_step,
    span.phase as free_phase,
    begun.is_pending_at_start,
    begun.block_id
from begun
asof left join span
    on begun.device = span.device and begun.free_requested_event_ix >= span.begin_event_ix
order by allocation_id
