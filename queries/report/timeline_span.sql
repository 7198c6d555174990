-- One run of events in one phase, ready to be drawn; where there are more than bin_count and
-- several begin in one bin, these are one row.
-- layer: report
-- grain: begin_event_ix
-- reads: device, span, trace_event
-- parameters: of_device, bin_count
--   begin_event_ix: its first event
--   end_event_ix: the event before which it ends
--   begin_us: when it begins, in microseconds since the device's first event; null where the recording has no times
--   end_us: when it ends
--   step: the training step, the first of several; null outside of steps
--   phase: the phase, or several; null where nothing tells
--   span_count: how many runs it stands for
with whole as (
    select
        span.begin_event_ix,
        coalesce(span.end_event_ix, device.event_count) as end_event_ix,
        span.step,
        span.phase,
        case
            when count(*) over () <= bin_count then row_number() over (order by span.begin_event_ix)
            else span.begin_event_ix * bin_count // device.event_count
        end as bin_ix
    from span
    inner join device on span.device = device.device
    where span.device = of_device and span.begin_event_ix < device.event_count
),

binned as (
    select
        min(begin_event_ix) as begin_event_ix,
        max(end_event_ix) as end_event_ix,
        arg_min(step, begin_event_ix) as step,
        case when count(distinct coalesce(phase, '')) = 1 then any_value(phase) else 'several' end as phase,
        count(*) as span_count
    from whole
    group by bin_ix
),

-- when each border is; the end of the last run is the last event
timed as (
    select
        event_ix,
        time_us - min(time_us) over () as since_us
    from trace_event
    where device = of_device
)

select
    binned.begin_event_ix,
    binned.end_event_ix::bigint as end_event_ix,
    begun.since_us as begin_us,
    coalesce(ended.since_us, (select max(timed.since_us) from timed)) as end_us,
    binned.step,
    binned.phase,
    binned.span_count
from binned
left join timed as begun on binned.begin_event_ix = begun.event_ix
left join timed as ended on binned.end_event_ix = ended.event_ix
order by binned.begin_event_ix
