-- One other allocation that lay in the same segment as a given one when that one was born.
-- layer: report
-- grain: allocation_id
-- reads: allocation, allocation_bucket, stack_label
-- parameters: of_allocation_id
--   allocation_id: the other allocation
--   address: first address of its block
--   distance_bytes: its address less that of the given one: negative before it, positive behind it
--   is_adjacent: whether the two blocks touch
--   requested_bytes: what was asked for
--   held_bytes: the block given out
--   bucket: its bucket
--   requested_by: who asked
with given as (
    select
        allocation_id,
        device,
        segment_address,
        address,
        held_bytes,
        coalesce(birth_event_ix, -1) as event_ix
    from allocation
    where allocation_id = of_allocation_id
)

select
    allocation.allocation_id,
    allocation.address,
    allocation.address - given.address as distance_bytes,
    allocation.address = given.address + given.held_bytes
    or allocation.address + allocation.held_bytes = given.address as is_adjacent,
    allocation.requested_bytes,
    allocation.held_bytes,
    allocation_bucket.bucket,
    stack_label.requested_by
from given
inner join allocation
    on
        given.device = allocation.device
        and given.segment_address = allocation.segment_address
        and given.allocation_id <> allocation.allocation_id
inner join allocation_bucket on allocation.allocation_id = allocation_bucket.allocation_id
left join stack_label on allocation.stack_id = stack_label.stack_id
where
    coalesce(allocation.birth_event_ix, -1) <= given.event_ix
    and (allocation.death_event_ix is null or allocation.death_event_ix > given.event_ix)
order by allocation.address
