-- One event that took a segment from the device or gave one back, or pages of an expandable one.
-- layer: fact
-- grain: device, event_ix
-- reads: trace_event
--   device: the device
--   event_ix: the event
--   reserved_bytes: change of bytes in segments
select
    device,
    event_ix,
    case when action in ('segment_alloc', 'segment_map') then size_bytes else -size_bytes end as reserved_bytes
from trace_event
where action in ('segment_alloc', 'segment_map', 'segment_free', 'segment_unmap')
