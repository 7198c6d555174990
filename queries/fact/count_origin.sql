-- One device, and what torch had counted on it when its recording began: whence the counts of the recorder's marks and
-- rolls are counted.
-- layer: fact
-- grain: device
-- reads: device, mark, dump
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
        max(event_count) as event_count
    from dump
    where is_snapshot
    group by device
)

-- a device without a mark begin, where others have one, was not in use then: its counters began at zero
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
    case
        when device.event_count = 0 then 'the recording has no events of its device'
        when dumped.is_ring_full then 'the ring lost the beginning of the recording'
        when dumped.event_count <> device.event_count then 'the snapshot is not the dump that the recorder names'
        when not exists (select 1 from begin_mark) then 'no mark says what had been counted when the recording began'
    end as problem
from device
left join begin_mark on device.device = begin_mark.device
left join dumped on device.device = dumped.device
