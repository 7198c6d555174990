-- One line of the account of one device after any event, with its share and its meaning; lines of nothing are left out.
-- layer: report
-- grain: bucket
-- reads: ledger_at, bucket
-- parameters: of_device, at_event_ix
--   bucket: the bucket, see the view bucket
--   bucket_order: its place in a printed ledger
--   entry_bytes: what the line adds to the account; the lines add up to the reserved bytes
--   share_ratio: its part of the reserved bytes
--   allocation_count: number of its allocations
--   meaning: what the bucket is, in a sentence
select
    line.bucket,
    bucket.bucket_order,
    line.entry_bytes,
    line.entry_bytes / sum(line.entry_bytes) over () as share_ratio,
    line.allocation_count,
    bucket.meaning
from ledger_at(of_device, at_event_ix) as line
inner join bucket on line.bucket = bucket.bucket
where line.entry_bytes <> 0
order by bucket.bucket_order
