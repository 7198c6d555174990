-- A device whose recording and replay disagree: an address, a segment event, a final block, or a peak.
-- layer: check
-- grain: device, mismatch_ix
-- reads: replay, mismatch, running_bytes
--   device: the device
--   mismatch_ix: position among its mismatches; null for a peak
--   event_ix: the event
--   fault: what disagrees, in words
with summed as (
    select
        device,
        max(allocated_bytes) as allocated_bytes,
        max(active_bytes) as active_bytes,
        max(requested_bytes) as requested_bytes,
        max(reserved_bytes) as reserved_bytes
    from running_bytes
    group by device
)

select
    mismatch.device,
    mismatch.mismatch_ix,
    mismatch.event_ix,
    mismatch.reason as fault
from mismatch
union all
select
    replay.device,
    null as mismatch_ix,
    null as event_ix,
    'the peaks of the replay are not those of the events: allocated ' || replay.peak_allocated_bytes || ' and '
    || summed.allocated_bytes || ', active ' || replay.peak_active_bytes || ' and ' || summed.active_bytes || ', requested '
    || replay.peak_requested_bytes || ' and ' || summed.requested_bytes || ', reserved '
    || replay.peak_reserved_bytes || ' and ' || summed.reserved_bytes as fault
from replay
inner join summed on replay.device = summed.device
where
    replay.peak_allocated_bytes <> summed.allocated_bytes
    or replay.peak_active_bytes <> summed.active_bytes
    or replay.peak_requested_bytes <> summed.requested_bytes
    or replay.peak_reserved_bytes <> summed.reserved_bytes
order by device, mismatch_ix
