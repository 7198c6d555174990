-- How many bytes of the account of one device after any event rest on one kind of evidence.
-- layer: ledger
-- grain: evidence
-- reads: alive_at
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
from alive_at(of_device, at_event_ix)
where not is_pending
group by evidence
order by requested_bytes desc, evidence
