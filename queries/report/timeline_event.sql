-- One event of one device that a drawn timeline keeps: of each of bin_count equal runs of events the first, the last, the
-- lowest, the highest, and the one with the most reserved, so that no peak is lost, and the first twelve failed requests;
-- -1 is the opening state.
-- layer: report
-- grain: event_ix
-- reads: device, running_bytes, trace_event
-- parameters: of_device, bin_count
--   event_ix: the event
--   allocated_bytes: bytes in blocks that the program holds after it
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments
--   high_water_bytes: the most allocated so far
with state as materialized (
    select
        running_bytes.event_ix,
        running_bytes.allocated_bytes,
        running_bytes.active_bytes,
        running_bytes.reserved_bytes,
        (running_bytes.event_ix + 1) * bin_count // (device.event_count + 1) as bin_ix
    from running_bytes
    inner join device on running_bytes.device = device.device
    where running_bytes.device = of_device
),

-- of equal peaks the first, see moment; of the lowest ones the last, as a block just dropped waits for one event more
-- before it is back in the pool: a value and how far its event is from the last possible one, as one number
extreme as (
    select
        min(event_ix) as first_ix,
        max(event_ix) as last_ix,
        min(allocated_bytes::hugeint * 4294967296 + 4294967294 - event_ix) as lowest_key,
        max(allocated_bytes::hugeint * 4294967296 + 4294967294 - event_ix) as highest_key,
        max(reserved_bytes::hugeint * 4294967296 + 4294967294 - event_ix) as most_reserved_key
    from state
    group by bin_ix
),

kept as (
    select first_ix as event_ix from extreme
    union
    select last_ix as event_ix from extreme
    union
    select 4294967294 - (lowest_key & 4294967295) as event_ix from extreme
    union
    select 4294967294 - (highest_key & 4294967295) as event_ix from extreme
    union
    select 4294967294 - (most_reserved_key & 4294967295) as event_ix from extreme
),

-- a failed request changes no byte, and is pointed at all the same
failed as (
    select event_ix from trace_event
    where device = of_device and action = 'oom'
    order by event_ix
    limit 12
),

seen as (
    select
        state.event_ix,
        state.allocated_bytes,
        state.active_bytes,
        state.reserved_bytes
    from state
    inner join kept on state.event_ix = kept.event_ix
    union all
    select
        failed.event_ix,
        state.allocated_bytes,
        state.active_bytes,
        state.reserved_bytes
    from failed
    asof inner join state on failed.event_ix >= state.event_ix
)

select
    event_ix::bigint as event_ix,
    allocated_bytes,
    active_bytes,
    reserved_bytes,
    max(allocated_bytes) over (order by event_ix) as high_water_bytes
from seen
order by event_ix
