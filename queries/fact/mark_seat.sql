-- One mark of the recorder, and the event it was taken after: told by counting, so no clock is needed. As many events of
-- a kind lie before it as torch had counted since count_origin, and no more.
-- layer: fact
-- grain: mark_ix
-- reads: mark, count_origin, trace_event
-- stored: yes
--   mark_ix: the mark
--   device: its device
--   name: its name
--   step: the training step it lies in; null outside of steps
--   event_ix: the event it was taken after, -1 being before the first; null where that is unknown
--   problem: why it is unknown; null where it is known
with counted as (
    select
        mark.mark_ix,
        mark.device,
        count_origin.event_count,
        unnest([
            {'counter': 'alloc', 'number': mark.alloc_count - count_origin.alloc_count},
            {'counter': 'free', 'number': mark.free_count - count_origin.free_count},
            {'counter': 'completed', 'number': mark.completed_count - count_origin.completed_count},
            {'counter': 'segment_alloc', 'number': mark.segment_alloc_count - count_origin.segment_alloc_count},
            {'counter': 'segment_free', 'number': mark.segment_free_count - count_origin.segment_free_count},
            {'counter': 'device_alloc', 'number': mark.device_alloc_count - count_origin.device_alloc_count},
            {'counter': 'device_free', 'number': mark.device_free_count - count_origin.device_free_count},
            {'counter': 'oom', 'number': mark.oom_count - count_origin.oom_count}
        ], recursive := true)
    from mark
    inner join count_origin on mark.device = count_origin.device
    where count_origin.problem is null
),

-- which events a counter of torch's counts
counter_action as (
    select counter, action
    from (
        values
        ('alloc', 'alloc'),
        ('free', 'free_requested'),
        ('completed', 'free_completed'),
        ('segment_alloc', 'segment_alloc'),
        ('segment_free', 'segment_free'),
        ('device_alloc', 'segment_alloc'),
        ('device_alloc', 'segment_map'),
        ('device_free', 'segment_free'),
        ('device_free', 'segment_unmap'),
        ('oom', 'oom')
    ) as listed (counter, action)
),

numbered as (
    select
        trace_event.device,
        trace_event.event_ix,
        counter_action.counter,
        row_number() over (partition by trace_event.device, counter_action.counter order by trace_event.event_ix) as number
    from trace_event
    inner join counter_action on trace_event.action = counter_action.action
    where exists (select 1 from counted)
),

-- the last event that was counted, and the first one that was not
bounded as (
    select
        counted.mark_ix,
        counted.counter,
        counted.number,
        case when counted.number = 0 then -1 else latest.event_ix end as first_ix,
        coalesce(following.event_ix, counted.event_count) - 1 as last_ix
    from counted
    left join numbered as latest
        on counted.device = latest.device and counted.counter = latest.counter and counted.number = latest.number
    left join numbered as following
        on counted.device = following.device and counted.counter = following.counter and counted.number + 1 = following.number
    where counted.number is not null
),

-- allocations and frees say where it may be, the other counters where among those events
seated as (
    select
        mark_ix,
        max(first_ix) filter (where counter in ('alloc', 'free')) as first_ix,
        min(last_ix) filter (where counter in ('alloc', 'free')) as last_ix,
        min(last_ix) as least_ix,
        count(first_ix) filter (where counter in ('alloc', 'free')) as told_count,
        bool_or(number < 0) as is_before_all
    from bounded
    group by mark_ix
),

judged as (
    select
        mark.mark_ix,
        mark.device,
        mark.name,
        mark.step,
        greatest(seated.first_ix, least(seated.last_ix, seated.least_ix)) as event_ix,
        case
            when count_origin.device is null then 'the recording has no events of its device'
            when count_origin.problem is not null then count_origin.problem
            when count_origin.is_counted_back and seated.is_before_all then 'the ring lost the events that it lies among'
            when seated.told_count is distinct from 2 then 'it counts more than the recording has events'
            when seated.first_ix > seated.last_ix then 'its counts belong to no event'
        end as problem
    from mark
    left join seated on mark.mark_ix = seated.mark_ix
    left join count_origin on mark.device = count_origin.device
)

select
    mark_ix,
    device,
    name,
    step,
    case when problem is null then event_ix end as event_ix,
    problem
from judged
order by mark_ix
