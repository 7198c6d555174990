-- The state of one device after any event, -1 being before the first, with what the event was: from moment_at(0, 3815).
-- layer: report
-- grain: device
-- reads: opening, effect, span, trace_event, stack_shown
-- parameters: of_device, at_event_ix
--   device: the device
--   event_ix: the event; -1 is the opening state
--   step: the training step then
--   phase: the phase then
--   action: what happened, in torch's word; null for the opening state
--   size_bytes: the bytes that the event is about
--   requested_by: who asked
--   user_frame: the nearest line of the user's own code
--   requested_bytes: bytes asked for, until their block is back in the pool
--   allocated_bytes: bytes in blocks that the program holds
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments
with state as (
    select
        device,
        sum(requested_bytes)::bigint as requested_bytes,
        sum(allocated_bytes)::bigint as allocated_bytes,
        sum(active_bytes)::bigint as active_bytes,
        sum(reserved_bytes)::bigint as reserved_bytes
    from (
        select device, -1 as event_ix, requested_bytes, allocated_bytes, active_bytes, reserved_bytes from opening
        union all
        select device, event_ix, requested_bytes, allocated_bytes, active_bytes, reserved_bytes from effect
    )
    where device = of_device and event_ix <= at_event_ix
    group by device
),

here as (
    select * from span
    where device = of_device and begin_event_ix <= at_event_ix
    order by begin_event_ix desc
    limit 1
),

happened as (
    select * from trace_event
    where device = of_device and event_ix = at_event_ix
)

select
    state.device,
    at_event_ix::bigint as event_ix,
    here.step,
    here.phase,
    happened.action,
    happened.size_bytes,
    stack_shown.requested_by,
    stack_shown.user_frame,
    state.requested_bytes,
    state.allocated_bytes,
    state.active_bytes,
    state.reserved_bytes
from state
left join here on state.device = here.device
left join happened on state.device = happened.device
left join stack_shown on happened.stack_id = stack_shown.stack_id
