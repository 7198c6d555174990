-- One moment that a drawn timeline points at: the peak, and requests that failed.
-- layer: report
-- grain: device, moment
-- reads: moment, trace_event, span, stack_shown
--   device: the device
--   moment: peak, oom, oom:2 and so on
--   event_ix: the event; -1 is the opening state
--   time_us: microseconds since the device's first event; null where the recording has no times
--   step: the training step then
--   phase: the phase then
--   size_bytes: the bytes asked for
--   requested_by: who asked
--   user_frame: the nearest line of the user's own code
--   allocated_bytes: bytes in blocks that the program holds
--   reserved_bytes: bytes in segments
with pointed as (
    select
        moment.device,
        moment.moment,
        moment.moment_ix,
        coalesce(moment.event_ix, -1) as event_ix,
        moment.allocated_bytes,
        moment.reserved_bytes
    from moment
    where moment.moment = 'peak' or moment.moment = 'oom' or moment.moment like 'oom:%'
),

placed as (
    select
        pointed.*,
        span.step,
        span.phase
    from pointed
    asof left join span on pointed.device = span.device and pointed.event_ix >= span.begin_event_ix
),

began as (
    select
        device,
        min(time_us) as time_us
    from trace_event
    group by device
)

select
    placed.device,
    placed.moment,
    placed.event_ix,
    trace_event.time_us - began.time_us as time_us,
    placed.step,
    placed.phase,
    trace_event.size_bytes,
    stack_shown.requested_by,
    stack_shown.user_frame,
    placed.allocated_bytes,
    placed.reserved_bytes
from placed
left join trace_event on placed.device = trace_event.device and placed.event_ix = trace_event.event_ix
left join began on placed.device = began.device
left join stack_shown on trace_event.stack_id = stack_shown.stack_id
order by placed.device, placed.moment_ix
