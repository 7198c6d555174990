-- How many bytes of the account of one device after any event rest on one kind of evidence.
-- layer: ledger
-- grain: evidence
-- reads: allocation_bucket
-- parameters: of_device, at_event_ix
--   evidence: what the bucket rules rest on, see allocation_bucket
--   requested_bytes: bytes asked for
--   held_bytes: bytes of their blocks
--   allocation_count: number of allocations
select
    evidence,
    sum(requested_bytes)::bigint as requested_bytes,
    sum(held_bytes)::bigint as held_bytes,
    count(*) as allocation_count
from allocation_bucket
where
    device = of_device
    and coalesce(birth_event_ix, -1) <= at_event_ix
    and not is_pending_at_start
    and (free_requested_event_ix is null or free_requested_event_ix > at_event_ix)
    and (death_event_ix is null or death_event_ix > at_event_ix)
group by evidence
order by requested_bytes desc, evidence
