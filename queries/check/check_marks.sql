-- A counter of torch's that the recorder read at a mark, and that the account does not reach there.
-- layer: check
-- grain: mark_ix, counter
-- reads: mark, mark_seat, count_origin, running_bytes, trace_event
--   device: the device
--   mark_ix: the mark
--   name: its name
--   event_ix: the event it was taken after, -1 being before the first
--   counter: allocated_bytes, active_bytes, requested_bytes, reserved_bytes, or the peak of one of the two that have one
--   torch_bytes: what torch had counted
--   account_bytes: what the account says
--   fault: the difference, in words
with seat as (
    select
        mark.*,
        mark_seat.event_ix
    from mark
    inner join mark_seat on mark.mark_ix = mark_seat.mark_ix
    where mark_seat.event_ix is not null
),

placed as (
    select
        seat.*,
        running_bytes.allocated_bytes as account_allocated_bytes,
        running_bytes.active_bytes as account_active_bytes,
        running_bytes.requested_bytes as account_requested_bytes,
        running_bytes.reserved_bytes as account_reserved_bytes
    from seat
    asof inner join running_bytes
        on seat.device = running_bytes.device and seat.event_ix >= running_bytes.event_ix
),

-- from where on torch's peaks count: the state when they were reset, else the one in which the recording began
since as (
    select
        seat.mark_ix,
        seat.device,
        seat.event_ix,
        coalesce(max(trace_event.event_ix), -1) as since_event_ix
    from seat
    left join trace_event on seat.device = trace_event.device and trace_event.time_us < seat.peak_since_us
    group by seat.mark_ix, seat.device, seat.event_ix
),

began as (
    select
        since.mark_ix,
        since.device,
        since.event_ix,
        running_bytes.event_ix as since_event_ix
    from since
    asof inner join running_bytes
        on since.device = running_bytes.device and since.since_event_ix >= running_bytes.event_ix
),

peak as (
    select
        began.mark_ix,
        max(running_bytes.allocated_bytes) as allocated_bytes,
        max(running_bytes.reserved_bytes) as reserved_bytes
    from began
    inner join count_origin on began.device = count_origin.device
    inner join running_bytes
        on
            began.device = running_bytes.device
            and running_bytes.event_ix between began.since_event_ix and began.event_ix
    where not count_origin.is_counted_back or began.since_event_ix >= 0
    group by began.mark_ix
),

-- without a reset, a peak may be older than the recording; where the ring lost the reset, nothing tells the peak since
begin_mark as (
    select
        device,
        max(peak_allocated_bytes) as peak_allocated_bytes,
        max(peak_reserved_bytes) as peak_reserved_bytes
    from mark
    where name = 'begin'
    group by device
),

compared as (
    select
        placed.device,
        placed.mark_ix,
        placed.name,
        placed.event_ix,
        unnest([
            {'counter': 'allocated_bytes', 'torch_bytes': placed.allocated_bytes, 'account_bytes': placed.account_allocated_bytes},
            {'counter': 'active_bytes', 'torch_bytes': placed.active_bytes, 'account_bytes': placed.account_active_bytes},
            {'counter': 'requested_bytes', 'torch_bytes': placed.requested_bytes, 'account_bytes': placed.account_requested_bytes},
            {'counter': 'reserved_bytes', 'torch_bytes': placed.reserved_bytes, 'account_bytes': placed.account_reserved_bytes},
            {
                'counter': 'peak_allocated_bytes',
                'torch_bytes': placed.peak_allocated_bytes,
                'account_bytes': case when peak.mark_ix is not null then greatest(peak.allocated_bytes, case when placed.peak_since_us is null then begin_mark.peak_allocated_bytes end) end
            },
            {
                'counter': 'peak_reserved_bytes',
                'torch_bytes': placed.peak_reserved_bytes,
                'account_bytes': case when peak.mark_ix is not null then greatest(peak.reserved_bytes, case when placed.peak_since_us is null then begin_mark.peak_reserved_bytes end) end
            }
        ], recursive := true)
    from placed
    left join peak on placed.mark_ix = peak.mark_ix
    left join begin_mark on placed.device = begin_mark.device
)

select
    device,
    mark_ix,
    name,
    event_ix,
    counter,
    torch_bytes,
    account_bytes,
    'at the mark ' || name || ' torch counted ' || torch_bytes || ' in ' || counter || ', the account has ' || account_bytes as fault
from compared
where torch_bytes <> account_bytes
order by mark_ix, counter
