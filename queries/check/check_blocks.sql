-- A block of the final snapshot, or an allocation alive at the end, that the other side does not know: opening balance + allocs - frees must be the closing balance, block by block.
-- layer: check
-- grain: device, address
-- reads: block, placement
--   device: the device
--   address: the address
--   block_id: the block; null where the snapshot has none there
--   placement_id: the allocation; null where none is alive there
--   fault: what is wrong, in words
with held as (
    select
        block_id,
        device,
        address,
        size_bytes,
        requested_size_bytes,
        state
    from block
    where state <> 'inactive'
),

alive as (
    select
        placement_id,
        device,
        address,
        requested_bytes,
        held_bytes,
        case
            when free_requested_event_ix is null and not is_pending_at_start then 'active_allocated'
            else 'active_pending_free'
        end as state
    from placement
    where death_event_ix is null
)

select
    coalesce(held.device, alive.device) as device,
    coalesce(held.address, alive.address) as address,
    held.block_id,
    alive.placement_id,
    case
        when held.block_id is null then 'the events leave an allocation alive that the snapshot does not have'
        when alive.placement_id is null then 'the snapshot holds a block that the events do not leave alive'
        when held.state <> alive.state then 'the snapshot says ' || held.state || ', the events say ' || alive.state
        when held.requested_size_bytes <> alive.requested_bytes
            then 'the snapshot says ' || held.requested_size_bytes || ' bytes were requested, the events say ' || alive.requested_bytes
        else 'the snapshot says the block has ' || held.size_bytes || ' bytes, the replay says ' || alive.held_bytes
    end as fault
from held
full join alive on held.device = alive.device and held.address = alive.address
where
    held.block_id is null
    or alive.placement_id is null
    or held.state <> alive.state
    or held.requested_size_bytes <> alive.requested_bytes
    or held.size_bytes <> alive.held_bytes
order by device, address
