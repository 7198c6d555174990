-- What the allocations of one bucket of one device hold beside the largest ones, after one of at most 250 events spread
-- evenly over the recording.
-- layer: report
-- grain: bucket, event_ix
-- reads: allocation_bucket, allocation_largest, bucket, device
-- parameters: of_device, most
--   bucket: the bucket
--   bucket_order: its place in a printed ledger
--   event_ix: the event; -1 is the opening state
--   held_bytes: bytes of their blocks that are not back in the pool
--   allocation_count: allocations of the bucket that the line stands for, over the whole recording
--   largest_bytes: the largest of them
with rest as materialized (
    select
        bucket,
        coalesce(birth_event_ix, -1) as birth_event_ix,
        death_event_ix,
        held_bytes
    from allocation_bucket
    where
        device = of_device
        and allocation_id not in (select drawn.allocation_id from allocation_largest(of_device, most) as drawn)
),

asked as materialized (
    select distinct least(unnest(range(0, 250)) * (device.event_count + 249) // 249, device.event_count) - 1 as event_ix
    from device
    where device.device = of_device
),

change as (
    select bucket, birth_event_ix as event_ix, held_bytes from rest
    union all
    select bucket, death_event_ix as event_ix, -held_bytes as held_bytes from rest
    where death_event_ix is not null
),

net as (
    select
        asked.event_ix,
        change.bucket,
        sum(change.held_bytes) as held_bytes
    from change
    asof inner join asked on change.event_ix <= asked.event_ix
    group by asked.event_ix, change.bucket
),

counted as (
    select
        rest.bucket,
        any_value(bucket.bucket_order) as bucket_order,
        count(*) as allocation_count,
        max(rest.held_bytes) as largest_bytes
    from rest
    inner join bucket on rest.bucket = bucket.bucket
    group by rest.bucket
)

select
    counted.bucket,
    counted.bucket_order,
    asked.event_ix::bigint as event_ix,
    (sum(coalesce(net.held_bytes, 0)) over (partition by counted.bucket order by asked.event_ix))::bigint as held_bytes,
    counted.allocation_count,
    counted.largest_bytes
from asked
cross join counted
left join net on asked.event_ix = net.event_ix and counted.bucket = net.bucket
order by counted.bucket_order, asked.event_ix
