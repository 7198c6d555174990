-- One allocation that the program of one device holds after an event and that has the bytes of a request, rounded.
-- layer: report
-- grain: allocation_id
-- reads: allocation, allocation_bucket, stack_label
-- parameters: of_device, at_event_ix, of_bytes
--   allocation_id: the allocation
--   requested_bytes: what was asked for
--   bucket: its bucket
--   birth_event_ix: its alloc event
--   phase: the phase it was born in
--   requested_by: who asked
--   user_frame: the line of the user's own code
select
    allocation.allocation_id,
    allocation.requested_bytes,
    allocation_bucket.bucket,
    allocation.birth_event_ix,
    allocation.phase,
    stack_label.requested_by,
    stack_label.user_frame
from allocation
inner join allocation_bucket on allocation.allocation_id = allocation_bucket.allocation_id
left join stack_label on allocation.stack_id = stack_label.stack_id
where
    allocation.device = of_device
    and coalesce(allocation.birth_event_ix, -1) <= at_event_ix
    and (allocation.free_requested_event_ix is null or allocation.free_requested_event_ix > at_event_ix)
    and (allocation.death_event_ix is null or allocation.death_event_ix > at_event_ix)
    and (allocation.requested_bytes + 511) // 512 = (of_bytes + 511) // 512
order by allocation.allocation_id
