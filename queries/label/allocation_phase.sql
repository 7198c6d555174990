-- One allocation's step and phase, at its birth and when the program dropped it.
-- layer: label
-- grain: allocation_id
-- reads: placement, span
-- stored: yes
--   allocation_id: the allocation
--   step: the training step it was born in
--   phase: the phase it was born in
--   phase_evidence: what says so, see span
--   free_step: the training step it was dropped in
--   free_phase: the phase it was dropped in
with born as (
    select
        placement.placement_id,
        placement.device,
        placement.free_requested_event_ix,
        span.step,
        span.phase,
        span.phase_evidence
    from placement
    asof left join span
        on placement.device = span.device and placement.birth_event_ix >= span.begin_event_ix
)

select
    born.placement_id as allocation_id,
    born.step,
    born.phase,
    born.phase_evidence,
    span.step as free_step,
    span.phase as free_phase
from born
asof left join span
    on born.device = span.device and born.free_requested_event_ix >= span.begin_event_ix
order by allocation_id
