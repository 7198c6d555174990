-- One roll of tensors that the recorder took on a device, and the event after which all its tensors were alive: the
-- newest allocation that torch had counted by then. Where the recording lost its beginning, the clock must tell.
-- layer: fact
-- grain: device, alloc_count, time_us
-- reads: tensor, count_origin, trace_event, device, dump
-- stored: yes
--   device: the device
--   alloc_count: allocations that the device had served by then
--   time_us: when it was taken
--   event_ix: the event, -1 being before the first; null where that is unknown
--   seat_evidence: count or time; null where it is unknown
with roll as (
    select distinct
        device,
        alloc_count,
        time_us
    from tensor
),

numbered as (
    select
        device,
        event_ix,
        row_number() over (partition by device order by event_ix) as number
    from trace_event
    where action = 'alloc' and exists (select 1 from roll)
),

counted as (
    select
        roll.device,
        roll.alloc_count,
        roll.time_us,
        case when roll.alloc_count = count_origin.alloc_count then -1 else numbered.event_ix end as event_ix
    from roll
    inner join count_origin on roll.device = count_origin.device
    left join numbered
        on roll.device = numbered.device and roll.alloc_count - count_origin.alloc_count = numbered.number
    where count_origin.problem is null
),

dumped as (
    select
        device,
        max(time_us) as time_us
    from dump
    where is_snapshot
    group by device
),

-- by the clock only within the recording: what was alive before its first event may be another tensor by then
timed as (
    select
        roll.device,
        roll.alloc_count,
        roll.time_us,
        max(trace_event.event_ix) as event_ix
    from roll
    inner join count_origin on roll.device = count_origin.device
    inner join device on roll.device = device.device
    inner join trace_event on roll.device = trace_event.device and trace_event.time_us <= roll.time_us
    left join dumped on roll.device = dumped.device
    where count_origin.problem is not null and roll.time_us <= coalesce(dumped.time_us, device.last_time_us)
    group by roll.device, roll.alloc_count, roll.time_us
)

select
    roll.device,
    roll.alloc_count,
    roll.time_us,
    coalesce(counted.event_ix, timed.event_ix) as event_ix,
    case
        when counted.event_ix is not null then 'count'
        when timed.event_ix is not null then 'time'
    end as seat_evidence
from roll
left join counted
    on
        roll.device = counted.device and roll.alloc_count is not distinct from counted.alloc_count
        and roll.time_us is not distinct from counted.time_us
left join timed
    on
        roll.device = timed.device and roll.alloc_count is not distinct from timed.alloc_count
        and roll.time_us is not distinct from timed.time_us
order by roll.device, roll.time_us, roll.alloc_count
