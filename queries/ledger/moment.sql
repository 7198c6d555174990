-- One moment at which the account is drawn up: the state after an event.
-- layer: ledger
-- grain: device, moment
-- reads: device, running_bytes, span, trace_event
-- stored: yes
--   device: the device
--   moment: start, peak, end, oom (oom:2 and so on for later ones), or step:N, the peak of a step
--   moment_ix: its place among the device's moments
--   event_ix: the event it comes after; null before the first event
--   requested_bytes: bytes asked for, until their block is back in the pool
--   allocated_bytes: bytes in blocks held by the program
--   active_bytes: bytes in blocks held by the program or waiting for another stream
--   reserved_bytes: bytes in segments
with state as materialized (
    select
        device,
        event_ix,
        requested_bytes,
        allocated_bytes,
        active_bytes,
        reserved_bytes,
        is_growth
    from running_bytes
),

stepped as materialized (
    select
        state.device,
        state.event_ix,
        state.allocated_bytes,
        span.step
    from state
    asof left join span on state.device = span.device and state.event_ix >= span.begin_event_ix
    where state.is_growth
),

highest as (
    select
        device,
        step,
        max(allocated_bytes) as allocated_bytes
    from stepped
    group by device, step
),

-- the first event of the largest value: the same step repeats, so peaks tie
span_peak as (
    select
        stepped.device,
        stepped.step,
        stepped.allocated_bytes,
        min(stepped.event_ix) as event_ix
    from stepped
    inner join highest
        on
            stepped.device = highest.device
            and stepped.step is not distinct from highest.step
            and stepped.allocated_bytes = highest.allocated_bytes
    group by stepped.device, stepped.step, stepped.allocated_bytes
),

peak as (
    select
        device,
        event_ix
    from span_peak
    qualify row_number() over (partition by device order by allocated_bytes desc, event_ix) = 1
),

step_peak as (
    select
        device,
        step,
        event_ix
    from span_peak
    where step is not null
),

oom as (
    select
        device,
        event_ix,
        row_number() over (partition by device order by event_ix) as oom_number
    from trace_event
    where action = 'oom'
),

named as (
    select
        device,
        'start' as moment,
        -1 as event_ix,
        0 as moment_order
    from device
    union all
    select
        device,
        'peak' as moment,
        event_ix,
        1 as moment_order
    from peak
    union all
    select
        device,
        case when oom_number = 1 then 'oom' else 'oom:' || oom_number end as moment,
        event_ix,
        2 as moment_order
    from oom
    union all
    select
        device,
        'step:' || step as moment,
        event_ix,
        3 as moment_order
    from step_peak
    union all
    select
        device,
        'end' as moment,
        event_count - 1 as event_ix,
        4 as moment_order
    from device
)

select
    named.device,
    named.moment,
    row_number() over (partition by named.device order by named.moment_order, named.event_ix) - 1 as moment_ix,
    nullif(named.event_ix, -1)::bigint as event_ix,
    state.requested_bytes,
    state.allocated_bytes,
    state.active_bytes,
    state.reserved_bytes
from named
asof inner join state on named.device = state.device and named.event_ix >= state.event_ix
order by named.device, moment_ix
