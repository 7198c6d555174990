-- One of the largest allocations of one device, from its birth to its death.
-- layer: report
-- grain: allocation_id
-- reads: allocation_bucket, allocation, device, stack_shown
-- parameters: of_device, most
--   allocation_id: the allocation
--   bucket: its bucket
--   begin_event_ix: its alloc event; -1 where it is older than the recording
--   end_event_ix: when its block went back to the pool; the number of events where it never did
--   is_older: whether it is older than the recording
--   is_kept: whether its block never went back to the pool
--   requested_bytes: what was asked for
--   held_bytes: the block given out
--   step: the training step it was born in
--   phase: the phase it was born in
--   stack_id: the stack that allocated it
--   requested_by: who asked
--   user_frame: the nearest line of the user's own code
with largest as (
    select *
    from allocation_bucket
    where device = of_device and coalesce(death_event_ix, birth_event_ix + 1, 0) > coalesce(birth_event_ix, -1)
    order by held_bytes desc, allocation_id
    limit most
)

select
    largest.allocation_id,
    largest.bucket,
    coalesce(largest.birth_event_ix, -1) as begin_event_ix,
    coalesce(largest.death_event_ix, device.event_count) as end_event_ix,
    largest.birth_event_ix is null as is_older,
    largest.death_event_ix is null as is_kept,
    largest.requested_bytes,
    largest.held_bytes,
    allocation.step,
    allocation.phase,
    allocation.stack_id,
    stack_shown.requested_by,
    stack_shown.user_frame
from largest
inner join allocation on largest.allocation_id = allocation.allocation_id
inner join device on largest.device = device.device
left join stack_shown on allocation.stack_id = stack_shown.stack_id
order by largest.held_bytes desc, largest.allocation_id
