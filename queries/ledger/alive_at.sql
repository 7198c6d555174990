-- One allocation whose block is not back in the pool after any event of one device, -1 being before the first.
-- layer: ledger
-- grain: allocation_id
-- reads: allocation_bucket
-- parameters: of_device, at_event_ix
--   allocation_id: the allocation
--   address: first address of its block
--   requested_bytes: what was asked for
--   held_bytes: the block given out
--   bucket: its bucket
--   rule_id: the rule that put it there
--   evidence: what the rule rests on
--   is_pending: whether the program has dropped it already, so that it only waits for another stream
select
    allocation_id,
    address,
    requested_bytes,
    held_bytes,
    bucket,
    rule_id,
    evidence,
    is_pending_at_start or coalesce(free_requested_event_ix <= at_event_ix, false) as is_pending
from allocation_bucket
where
    device = of_device
    and coalesce(birth_event_ix, -1) <= at_event_ix
    and (death_event_ix is null or death_event_ix > at_event_ix)
