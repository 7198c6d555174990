-- What one event changed in the account; events that changed nothing have no row.
-- layer: fact
-- grain: device, event_ix
-- reads: placement, reserved_change
--   device: the device
--   event_ix: the event
--   requested_bytes: change of bytes asked for and not yet back in the pool
--   allocated_bytes: change of bytes in blocks held by the program
--   active_bytes: change of bytes in blocks held by the program or waiting for another stream
--   reserved_bytes: change of bytes in segments
select
    device,
    birth_event_ix as event_ix,
    coalesce(requested_bytes, held_bytes, 0) as requested_bytes,
    coalesce(held_bytes, requested_bytes, 0) as allocated_bytes,
    coalesce(held_bytes, requested_bytes, 0) as active_bytes,
    0::bigint as reserved_bytes
from placement
where birth_event_ix is not null
union all
select
    device,
    free_requested_event_ix as event_ix,
    0::bigint as requested_bytes,
    -coalesce(held_bytes, requested_bytes, 0) as allocated_bytes,
    0::bigint as active_bytes,
    0::bigint as reserved_bytes
from placement
where free_requested_event_ix is not null and free_requested_event_ix is distinct from death_event_ix
union all
select
    device,
    death_event_ix as event_ix,
    -coalesce(requested_bytes, held_bytes, 0) as requested_bytes,
    case
        -- a completion whose request was not recorded is the drop as well
        when coalesce(free_requested_event_ix, death_event_ix) = death_event_ix and not is_pending_at_start then -coalesce(held_bytes, requested_bytes, 0)
        else 0
    end as allocated_bytes,
    -coalesce(held_bytes, requested_bytes, 0) as active_bytes,
    0::bigint as reserved_bytes
from placement
where death_event_ix is not null
union all
select
    device,
    event_ix,
    0::bigint as requested_bytes,
    0::bigint as allocated_bytes,
    0::bigint as active_bytes,
    reserved_bytes
from reserved_change
