-- The account after each event of each device.
-- layer: fact
-- grain: device, event_ix
-- reads: trace_event, effect, opening
--   device: the device
--   event_ix: the event
--   requested_bytes: bytes asked for, until their block is back in the pool
--   allocated_bytes: bytes in blocks from alloc to free_requested, as memory_allocated counts them
--   active_bytes: bytes in blocks from alloc to free_completed
--   reserved_bytes: bytes in segments, as memory_reserved counts them
select
    trace_event.device,
    trace_event.event_ix,
    (opening.requested_bytes + coalesce(sum(effect.requested_bytes) over so_far, 0))::bigint as requested_bytes,
    (opening.allocated_bytes + coalesce(sum(effect.allocated_bytes) over so_far, 0))::bigint as allocated_bytes,
    (opening.active_bytes + coalesce(sum(effect.active_bytes) over so_far, 0))::bigint as active_bytes,
    (opening.reserved_bytes + coalesce(sum(effect.reserved_bytes) over so_far, 0))::bigint as reserved_bytes
from trace_event
inner join opening on trace_event.device = opening.device
left join effect on trace_event.device = effect.device and trace_event.event_ix = effect.event_ix
window so_far as (partition by trace_event.device order by trace_event.event_ix rows unbounded preceding)
