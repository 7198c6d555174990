-- One device of the recording in one row: how high it went, when, and who asked.
-- layer: report
-- grain: device
-- reads: device, moment, span, trace_event, stack_label, replay
-- stored: yes
--   device: the device
--   event_count: events in its trace
--   step_count: training steps seen
--   peak_event_ix: the event that set the allocated peak; null when the opening state did
--   peak_allocated_bytes: bytes in allocated blocks then, as max_memory_allocated counts them
--   peak_requested_bytes: bytes asked for then
--   peak_reserved_bytes: bytes in segments then
--   peak_step: the step then
--   peak_phase: the phase then
--   requested_by: who made the request that set it
--   request_bytes: the bytes of that request
--   peak_time_us: when it was
--   highest_reserved_bytes: the largest bytes in segments at any time, as max_memory_reserved counts them
--   oom_count: requests that failed
--   is_exact: whether a replay of the allocator agrees with the whole recording; null without a trace
--   mismatch_count: where it does not, at how many points
--   first_mismatch_event_ix: the first of them
--   unknown_held_count: allocations whose block size the file cannot tell; their requested bytes stand in
--   opening_allocation_count: allocations older than the recording
--   verdict: the replay's verdict in a sentence
with steps as (
    select
        device,
        count(distinct step) as step_count
    from span
    group by device
),

ooms as (
    select
        device,
        count(*) as oom_count
    from trace_event
    where action = 'oom'
    group by device
),

peak as (
    select
        moment.*,
        span.step,
        span.phase
    from moment
    asof left join span on moment.device = span.device and moment.event_ix >= span.begin_event_ix
    where moment.moment = 'peak'
)

select
    device.device,
    device.event_count,
    coalesce(steps.step_count, 0)::bigint as step_count,
    peak.event_ix as peak_event_ix,
    peak.allocated_bytes as peak_allocated_bytes,
    peak.requested_bytes as peak_requested_bytes,
    peak.reserved_bytes as peak_reserved_bytes,
    peak.step as peak_step,
    peak.phase as peak_phase,
    stack_label.requested_by,
    trace_event.size_bytes as request_bytes,
    trace_event.time_us as peak_time_us,
    replay.peak_reserved_bytes as highest_reserved_bytes,
    coalesce(ooms.oom_count, 0)::bigint as oom_count,
    replay.is_exact,
    replay.mismatch_count,
    replay.first_mismatch_event_ix,
    replay.unknown_held_count,
    replay.opening_allocation_count,
    replay.verdict
from device
inner join peak on device.device = peak.device
inner join replay on device.device = replay.device
left join steps on device.device = steps.device
left join ooms on device.device = ooms.device
left join trace_event on device.device = trace_event.device and peak.event_ix = trace_event.event_ix
left join stack_label on trace_event.stack_id = stack_label.stack_id
order by device.device
