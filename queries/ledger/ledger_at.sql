-- One line of the account of one device after any event, -1 being before the first: from ledger_at(0, 3815).
-- layer: ledger
-- grain: bucket
-- reads: alive_at, bucket, opening, reserved_change
-- parameters: of_device, at_event_ix
--   bucket: the bucket, see the view bucket
--   requested_bytes: bytes asked for by its allocations that the program holds then
--   held_bytes: bytes of their blocks; for block_slack, pending_free and cached, the bytes of that kind
--   allocation_count: number of those allocations
--   entry_bytes: what the line adds to the account; the lines add up to the reserved bytes
with alive as (
    select
        bucket,
        requested_bytes,
        held_bytes,
        is_pending
    from alive_at(of_device, at_event_ix)
),

reserved as (
    select
        (select opening.reserved_bytes from opening where opening.device = of_device)
        + coalesce(
            (
                select sum(reserved_change.reserved_bytes) from reserved_change
                where reserved_change.device = of_device and reserved_change.event_ix <= at_event_ix
            ),
            0
        ) as reserved_bytes
),

line as (
    select
        bucket,
        sum(requested_bytes) as requested_bytes,
        sum(held_bytes) as held_bytes,
        count(*) as allocation_count,
        sum(requested_bytes) as entry_bytes
    from alive
    where not is_pending
    group by bucket
    union all
    select
        'block_slack' as bucket,
        0 as requested_bytes,
        coalesce(sum(held_bytes - requested_bytes), 0) as held_bytes,
        0 as allocation_count,
        coalesce(sum(held_bytes - requested_bytes), 0) as entry_bytes
    from alive
    where not is_pending
    union all
    select
        'pending_free' as bucket,
        coalesce(sum(requested_bytes), 0) as requested_bytes,
        coalesce(sum(held_bytes), 0) as held_bytes,
        count(*) as allocation_count,
        coalesce(sum(held_bytes), 0) as entry_bytes
    from alive
    where is_pending
    union all
    select
        'cached' as bucket,
        0 as requested_bytes,
        reserved.reserved_bytes - coalesce((select sum(alive.held_bytes) from alive), 0) as held_bytes,
        0 as allocation_count,
        reserved.reserved_bytes - coalesce((select sum(alive.held_bytes) from alive), 0) as entry_bytes
    from reserved
)

select
    line.bucket,
    line.requested_bytes::bigint as requested_bytes,
    line.held_bytes::bigint as held_bytes,
    line.allocation_count::bigint as allocation_count,
    line.entry_bytes::bigint as entry_bytes
from line
inner join bucket on line.bucket = bucket.bucket
order by bucket.bucket_order
