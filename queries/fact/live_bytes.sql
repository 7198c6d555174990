-- The account after each event of each device.
-- layer: fact
-- grain: device, event_ix
-- reads: trace_event, running_bytes
--   device: the device
--   event_ix: the event
--   requested_bytes: bytes asked for, until their block is back in the pool
--   allocated_bytes: bytes in blocks from alloc to free_requested, as memory_allocated counts them
--   active_bytes: bytes in blocks from alloc to free_completed
--   reserved_bytes: bytes in segments, as memory_reserved counts them
select
    trace_event.device,
    trace_event.event_ix,
    running_bytes.requested_bytes,
    running_bytes.allocated_bytes,
    running_bytes.active_bytes,
    running_bytes.reserved_bytes
from trace_event
asof inner join running_bytes
    on trace_event.device = running_bytes.device and trace_event.event_ix >= running_bytes.event_ix
