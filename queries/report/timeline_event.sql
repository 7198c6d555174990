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

extreme as (
    select
        bin_ix,
        min(event_ix) as first_ix,
        max(event_ix) as last_ix,
        min(allocated_bytes) as lowest_bytes,
        max(allocated_bytes) as highest_bytes,
        max(reserved_bytes) as most_reserved_bytes
    from state
    group by bin_ix
),

-- of equal peaks the first, see moment; of the lowest ones the last, as a block just dropped waits for one event more
-- before it is back in the pool
binned as (
    select
        any_value(extreme.first_ix) as first_ix,
        any_value(extreme.last_ix) as last_ix,
        max(state.event_ix) filter (where state.allocated_bytes = extreme.lowest_bytes) as lowest_ix,
        min(state.event_ix) filter (where state.allocated_bytes = extreme.highest_bytes) as highest_ix,
        min(state.event_ix) filter (where state.reserved_bytes = extreme.most_reserved_bytes) as most_reserved_ix
    from state
    inner join extreme on state.bin_ix = extreme.bin_ix
    group by state.bin_ix
),

kept as (
    select first_ix as event_ix from binned
    union
    select last_ix as event_ix from binned
    union
    select lowest_ix as event_ix from binned
    union
    select highest_ix as event_ix from binned
    union
    select most_reserved_ix as event_ix from binned
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
