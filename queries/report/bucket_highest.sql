-- One bucket of one device: the most that its allocations ever asked for at once, and when.
-- layer: report
-- grain: device, bucket
-- reads: allocation_bucket, bucket
-- stored: yes
--   device: the device
--   bucket: the bucket
--   highest_bytes: the most bytes asked for by allocations that the program held at once
--   highest_event_ix: the first event after which it was so; -1 is the opening state
--   allocation_count: allocations over the whole recording
--   meaning: what the bucket is, in a sentence
with owned as (
    select * from allocation_bucket
    where not is_pending_at_start
),

change as (
    select
        device,
        bucket,
        -1 as event_ix,
        sum(requested_bytes) as requested_bytes
    from owned
    where birth_event_ix is null
    group by device, bucket
    union all
    select
        device,
        bucket,
        birth_event_ix as event_ix,
        requested_bytes
    from owned
    where birth_event_ix is not null
    union all
    select
        device,
        bucket,
        coalesce(free_requested_event_ix, death_event_ix) as event_ix,
        -requested_bytes as requested_bytes
    from owned
    where coalesce(free_requested_event_ix, death_event_ix) is not null
),

running as (
    select
        device,
        bucket,
        event_ix,
        sum(requested_bytes) over (partition by device, bucket order by event_ix rows unbounded preceding) as live_bytes
    from change
),

-- the first event of the largest value, as one number; see moment
highest as (
    select
        device,
        bucket,
        max(live_bytes * 4294967296 + 4294967294 - event_ix) as highest_key
    from running
    group by device, bucket
),

counted as (
    select
        device,
        bucket,
        count(*) as allocation_count
    from owned
    group by device, bucket
)

select
    highest.device,
    highest.bucket,
    (highest.highest_key // 4294967296)::bigint as highest_bytes,
    (4294967294 - highest.highest_key % 4294967296)::bigint as highest_event_ix,
    counted.allocation_count,
    bucket.meaning
from highest
inner join counted on highest.device = counted.device and highest.bucket = counted.bucket
inner join bucket on highest.bucket = bucket.bucket
order by highest.device, bucket.bucket_order
