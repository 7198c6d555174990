-- The account after each event that changed it, and before the first one as event -1.
-- layer: fact
-- grain: device, event_ix
-- reads: effect, opening
--   device: the device
--   event_ix: the event; -1 is the opening state
--   requested_bytes: bytes asked for, until their block is back in the pool
--   allocated_bytes: bytes in blocks from alloc to free_requested, as memory_allocated counts them
--   active_bytes: bytes in blocks from alloc to free_completed
--   reserved_bytes: bytes in segments, as memory_reserved counts them
--   is_growth: whether the event gave out a block, as only such an event can set a peak; so does the opening state
with change as (
    select
        device,
        -1 as event_ix,
        requested_bytes,
        allocated_bytes,
        active_bytes,
        reserved_bytes,
        true as is_growth
    from opening
    union all
    select
        device,
        event_ix,
        requested_bytes,
        allocated_bytes,
        active_bytes,
        reserved_bytes,
        active_bytes > 0 as is_growth
    from effect
)

select
    device,
    event_ix,
    (sum(requested_bytes) over so_far)::bigint as requested_bytes,
    (sum(allocated_bytes) over so_far)::bigint as allocated_bytes,
    (sum(active_bytes) over so_far)::bigint as active_bytes,
    (sum(reserved_bytes) over so_far)::bigint as reserved_bytes,
    is_growth
from change
window so_far as (partition by device order by event_ix rows unbounded preceding)
