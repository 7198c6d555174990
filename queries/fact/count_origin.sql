-- One device, and what torch had counted on it before the first event in the file: whence the counts of the recorder's
-- marks and rolls are counted. Where the ring lost the beginning it is counted back from the end: the last mark before
-- the dump stands there, if it read the bytes that the snapshot's segments hold.
-- layer: fact
-- grain: device
-- reads: device, mark, dump, segment, trace_event
-- stored: yes
--   device: the device
--   alloc_count: allocations it had served
--   free_count: allocations that had been dropped
--   completed_count: blocks that were back in the pool
--   segment_alloc_count: segments got from the device
--   segment_free_count: segments given back
--   device_alloc_count: times the device had been asked for memory
--   device_free_count: times memory had been given back
--   oom_count: requests that had failed
--   event_count: events of the device in the snapshot
--   is_counted_back: whether the beginning is lost and this is counted back from the end
--   problem: why nothing can be counted from there; null where it can
with begin_mark as (
    select
        device,
        min_by(mark, mark_ix) as mark
    from mark
    where name = 'begin'
    group by device
),

dumped as (
    select
        device,
        bool_or(is_ring_full) as is_ring_full,
        max(event_count) as event_count,
        max(time_us) as time_us
    from dump
    where is_snapshot
    group by device
),

last_mark as (
    select
        mark.device,
        max_by(mark, mark.mark_ix) as mark
    from mark
    inner join dumped on mark.device = dumped.device
    where dumped.is_ring_full and coalesce(mark.time_us <= dumped.time_us, true)
    group by mark.device
),

held_at_end as (
    select
        device,
        sum(allocated_size_bytes) as allocated_bytes,
        sum(total_size_bytes) as reserved_bytes
    from segment
    group by device
),

kept as (
    select
        device,
        count(*) filter (where action = 'alloc') as alloc_count,
        count(*) filter (where action = 'free_requested') as free_count,
        count(*) filter (where action = 'free_completed') as completed_count,
        count(*) filter (where action = 'segment_alloc') as segment_alloc_count,
        count(*) filter (where action = 'segment_free') as segment_free_count,
        count(*) filter (where action in ('segment_alloc', 'segment_map')) as device_alloc_count,
        count(*) filter (where action in ('segment_free', 'segment_unmap')) as device_free_count,
        count(*) filter (where action = 'oom') as oom_count
    from trace_event
    where exists (select 1 from last_mark)
    group by device
),

-- a device without a mark begin, where others have one, was not in use then: its counters began at zero
forward as (
    select
        device.device,
        coalesce(begin_mark.mark.alloc_count, 0) as alloc_count,
        coalesce(begin_mark.mark.free_count, 0) as free_count,
        coalesce(begin_mark.mark.completed_count, 0) as completed_count,
        coalesce(begin_mark.mark.segment_alloc_count, 0) as segment_alloc_count,
        coalesce(begin_mark.mark.segment_free_count, 0) as segment_free_count,
        coalesce(begin_mark.mark.device_alloc_count, 0) as device_alloc_count,
        coalesce(begin_mark.mark.device_free_count, 0) as device_free_count,
        coalesce(begin_mark.mark.oom_count, 0) as oom_count,
        device.event_count,
        coalesce(dumped.is_ring_full, false) as has_lost,
        case
            when device.event_count = 0 then 'the recording has no events of its device'
            when dumped.event_count <> device.event_count then 'the snapshot is not the dump that the recorder names'
            when not coalesce(dumped.is_ring_full, false) and not exists (select 1 from begin_mark) then 'no mark says what had been counted when the recording began'
        end as problem
    from device
    left join begin_mark on device.device = begin_mark.device
    left join dumped on device.device = dumped.device
),

backward as (
    select
        last_mark.device,
        last_mark.mark.alloc_count - kept.alloc_count as alloc_count,
        last_mark.mark.free_count - kept.free_count as free_count,
        last_mark.mark.completed_count - kept.completed_count as completed_count,
        last_mark.mark.segment_alloc_count - kept.segment_alloc_count as segment_alloc_count,
        last_mark.mark.segment_free_count - kept.segment_free_count as segment_free_count,
        last_mark.mark.device_alloc_count - kept.device_alloc_count as device_alloc_count,
        last_mark.mark.device_free_count - kept.device_free_count as device_free_count,
        last_mark.mark.oom_count - kept.oom_count as oom_count
    from last_mark
    inner join held_at_end on last_mark.device = held_at_end.device
    inner join kept on last_mark.device = kept.device
    where
        last_mark.mark.allocated_bytes = held_at_end.allocated_bytes
        and last_mark.mark.reserved_bytes = held_at_end.reserved_bytes
)

select
    device,
    alloc_count,
    free_count,
    completed_count,
    segment_alloc_count,
    segment_free_count,
    device_alloc_count,
    device_free_count,
    oom_count,
    event_count,
    false as is_counted_back,
    problem
from forward
where not has_lost or problem is not null
union all
select
    forward.device,
    backward.alloc_count,
    backward.free_count,
    backward.completed_count,
    backward.segment_alloc_count,
    backward.segment_free_count,
    backward.device_alloc_count,
    backward.device_free_count,
    backward.oom_count,
    forward.event_count,
    true as is_counted_back,
    case when backward.alloc_count is null then 'the ring lost the beginning of the recording, and no mark stands at its end to count back from' end as problem
from forward
left join backward on forward.device = backward.device
where forward.has_lost and forward.problem is null
order by device
