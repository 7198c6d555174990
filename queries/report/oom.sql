-- One request that failed, with the account at that moment and what it says of the limit.
-- layer: report
-- grain: device, event_ix
-- reads: trace_event, running_bytes, span, stack_label, moment
--   device: the device
--   moment: its moment: oom, oom:2 and so on
--   event_ix: the oom event
--   asked_bytes: what was asked for, rounded as the allocator does
--   segment_bytes: the segment that the device was asked for on its behalf
--   device_free_bytes: what the driver reported as free on the device then
--   requested_by: who asked
--   user_frame: the line of the user's own code
--   stream: the stream it was asked for on
--   pool: the pool it was asked from, where the event says
--   step: the step then
--   phase: the phase then
--   allocated_bytes: bytes in blocks that the program held
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments, after the allocator had given back all it could
--   cached_bytes: free bytes inside segments
--   needed_bytes: active and asked bytes together: what would be reserved without a free byte
--   limit_from_bytes: the most that was ever reserved in the recording so far: the limit is no lower
--   limit_below_bytes: reserved and segment bytes together, which the device refused: the limit is lower
--   verdict: fragmented (needed_bytes is no more than was reserved before: its free bytes in one place would have served it), full (needed_bytes is what the device refused), or between, where the recording cannot tell
--   outcome: recovered (the same asker then got less), survived (the program went on otherwise) or fatal (nothing was allocated after it)
--   next_event_ix: the next allocation after it; null where there is none
--   next_bytes: the bytes of that
with failed as (
    select
        trace_event.device,
        trace_event.event_ix,
        trace_event.size_bytes as asked_bytes,
        -- small requests take 2 MiB, middling ones 20, larger ones whole 2 MiB; an expandable segment grows by less
        case
            when trace_event.size_bytes <= 1048576 then 2097152
            when trace_event.size_bytes < 10485760 then 20971520
            else (trace_event.size_bytes + 2097151) // 2097152 * 2097152
        end as segment_bytes,
        trace_event.device_free_bytes,
        trace_event.stream,
        trace_event.pool,
        trace_event.stack_id,
        case when row_number() over by_event = 1 then 'oom' else 'oom:' || row_number() over by_event end as moment
    from trace_event
    where trace_event.action = 'oom'
    window by_event as (partition by trace_event.device order by trace_event.event_ix)
),

highest as (
    select
        failed.device,
        failed.event_ix,
        max(running_bytes.reserved_bytes) as reserved_bytes
    from failed
    inner join running_bytes on failed.device = running_bytes.device and running_bytes.event_ix <= failed.event_ix
    group by failed.device, failed.event_ix
),

next_alloc as (
    select
        failed.device,
        failed.event_ix,
        min(trace_event.event_ix) as next_event_ix,
        arg_min(trace_event.size_bytes, trace_event.event_ix) as next_bytes,
        arg_min(trace_event.stack_id, trace_event.event_ix) as next_stack_id
    from failed
    inner join trace_event
        on failed.device = trace_event.device and failed.event_ix < trace_event.event_ix and trace_event.action = 'alloc'
    group by failed.device, failed.event_ix
),

placed as (
    select
        failed.*,
        span.step,
        span.phase
    from failed
    asof left join span on failed.device = span.device and failed.event_ix >= span.begin_event_ix
),

told as (
    select
        placed.*,
        moment.allocated_bytes,
        moment.active_bytes,
        moment.reserved_bytes,
        moment.active_bytes + placed.asked_bytes as needed_bytes,
        highest.reserved_bytes as limit_from_bytes,
        moment.reserved_bytes + placed.segment_bytes as limit_below_bytes,
        next_alloc.next_event_ix,
        next_alloc.next_bytes,
        next_alloc.next_stack_id
    from placed
    inner join moment on placed.device = moment.device and placed.moment = moment.moment
    inner join highest on placed.device = highest.device and placed.event_ix = highest.event_ix
    left join next_alloc on placed.device = next_alloc.device and placed.event_ix = next_alloc.event_ix
)

select
    told.device,
    told.moment,
    told.event_ix,
    told.asked_bytes,
    told.segment_bytes::bigint as segment_bytes,
    told.device_free_bytes,
    stack_label.requested_by,
    stack_label.user_frame,
    told.stream,
    told.pool,
    told.step,
    told.phase,
    told.allocated_bytes,
    told.active_bytes,
    told.reserved_bytes,
    told.reserved_bytes - told.active_bytes as cached_bytes,
    told.needed_bytes,
    told.limit_from_bytes,
    told.limit_below_bytes::bigint as limit_below_bytes,
    case
        when told.needed_bytes <= told.limit_from_bytes then 'fragmented'
        when told.needed_bytes >= told.limit_below_bytes then 'full'
        else 'between'
    end as verdict,
    case
        when told.next_event_ix is null then 'fatal'
        when
            told.next_bytes < told.asked_bytes
            and (
                told.next_stack_id = told.stack_id
                or (
                    next_label.requested_by = stack_label.requested_by
                    and next_label.user_frame is not distinct from stack_label.user_frame
                )
            )
            then 'recovered'
        else 'survived'
    end as outcome,
    told.next_event_ix,
    told.next_bytes
from told
left join stack_label on told.stack_id = stack_label.stack_id
left join stack_label as next_label on told.next_stack_id = next_label.stack_id
order by told.device, told.event_ix
