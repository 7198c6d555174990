-- A moment at which the buckets do not add up to the live bytes, or an allocation that is not in exactly one bucket.
-- layer: check
-- grain: device, moment, allocation_id
-- reads: ledger, moment, bucket, allocation, allocation_bucket
--   device: the device
--   moment: the moment; null for an allocation
--   allocation_id: the allocation; null for a moment
--   fault: what is wrong, in words
with summed as (
    select
        moment.device,
        moment.moment,
        moment.allocated_bytes,
        moment.requested_bytes,
        moment.reserved_bytes,
        coalesce(sum(ledger.held_bytes) filter (where bucket.is_allocation), 0)::bigint as ledger_allocated_bytes,
        coalesce(sum(ledger.requested_bytes), 0)::bigint as ledger_requested_bytes,
        coalesce(sum(ledger.entry_bytes), 0)::bigint as ledger_reserved_bytes
    from moment
    left join ledger on moment.device = ledger.device and moment.moment = ledger.moment
    left join bucket on ledger.bucket = bucket.bucket
    group by moment.device, moment.moment, moment.allocated_bytes, moment.requested_bytes, moment.reserved_bytes
),

sorted as (
    select
        allocation.device,
        allocation.allocation_id,
        count(allocation_bucket.bucket) as bucket_count
    from allocation
    left join allocation_bucket on allocation.allocation_id = allocation_bucket.allocation_id
    group by allocation.device, allocation.allocation_id
)

select
    device,
    moment,
    null::bigint as allocation_id,
    concat_ws(
        '; ',
        case
            when ledger_allocated_bytes <> allocated_bytes
                then 'its buckets hold ' || ledger_allocated_bytes || ' bytes, ' || allocated_bytes || ' are allocated'
        end,
        case
            when ledger_requested_bytes <> requested_bytes
                then 'its lines request ' || ledger_requested_bytes || ' bytes, ' || requested_bytes || ' are requested'
        end,
        case
            when ledger_reserved_bytes <> reserved_bytes
                then 'its lines add up to ' || ledger_reserved_bytes || ' bytes, ' || reserved_bytes || ' are reserved'
        end
    ) as fault
from summed
where
    ledger_allocated_bytes <> allocated_bytes
    or ledger_requested_bytes <> requested_bytes
    or ledger_reserved_bytes <> reserved_bytes
union all
select
    device,
    null as moment,
    allocation_id,
    'it is in ' || bucket_count || ' buckets' as fault
from sorted
where bucket_count <> 1
order by device, moment, allocation_id
