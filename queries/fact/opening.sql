-- One device's account before its first event: what was there already.
-- layer: fact
-- grain: device
-- reads: device, segment, placement, reserved_change
--   device: the device
--   requested_bytes: bytes asked for
--   allocated_bytes: bytes in blocks held by the program
--   active_bytes: bytes in blocks held by the program or waiting for another stream
--   reserved_bytes: bytes in segments: those of the final snapshot less what the events changed
with held as (
    select
        device,
        sum(coalesce(requested_bytes, held_bytes, 0)) as requested_bytes,
        -- one that the program had dropped before the recording began only waits for another stream
        sum(case when is_pending_at_start then 0 else coalesce(held_bytes, requested_bytes, 0) end) as allocated_bytes,
        sum(coalesce(held_bytes, requested_bytes, 0)) as active_bytes
    from placement
    where birth_event_ix is null
    group by device
),

in_segments as (
    select
        device,
        sum(total_size_bytes) as reserved_bytes
    from segment
    group by device
),

changed as (
    select
        device,
        sum(reserved_bytes) as reserved_bytes
    from reserved_change
    group by device
)

select
    device.device,
    coalesce(held.requested_bytes, 0)::bigint as requested_bytes,
    coalesce(held.allocated_bytes, 0)::bigint as allocated_bytes,
    coalesce(held.active_bytes, 0)::bigint as active_bytes,
    (coalesce(in_segments.reserved_bytes, 0) - coalesce(changed.reserved_bytes, 0))::bigint as reserved_bytes
from device
left join held on device.device = held.device
left join in_segments on device.device = in_segments.device
left join changed on device.device = changed.device
