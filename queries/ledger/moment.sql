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

-- the first event of the largest value, as one number: the same step repeats, so peaks tie, and of equal values the
-- earlier event must win; events are fewer than two to the 32, and the opening state is event -1
highest as (
    select
        device,
        step,
        max(allocated_bytes::hugeint * 4294967296 + 4294967294 - event_ix) as peak_key
    from stepped
    group by device, step
),

peak as (
    select
        device,
        (4294967294 - max(peak_key) % 4294967296)::bigint as event_ix
    from highest
    group by device
),

step_peak as (
    select
        device,
        step,
        (4294967294 - peak_key % 4294967296)::bigint as event_ix
    from highest
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
),

-- the last change of the account at or before each moment
seated as (
    select
        named.device,
        named.moment,
        named.moment_order,
        named.event_ix,
        state.event_ix as state_event_ix
    from named
    asof inner join state on named.device = state.device and named.event_ix >= state.event_ix
    where named.moment_order in (2, 4)
    union all
    select
        device,
        moment,
        moment_order,
        event_ix,
        event_ix as state_event_ix
    from named
    where moment_order not in (2, 4)
)

select
    seated.device,
    seated.moment,
    row_number() over (partition by seated.device order by seated.moment_order, seated.event_ix) - 1 as moment_ix,
    nullif(seated.event_ix, -1)::bigint as event_ix,
    state.requested_bytes,
    state.allocated_bytes,
    state.active_bytes,
    state.reserved_bytes
from seated
inner join state on seated.device = state.device and seated.state_event_ix = state.event_ix
order by seated.device, moment_ix
