-- One bucket of one device: the most that its allocations ever asked for at once, and when.
-- layer: report
-- grain: bucket
-- reads: allocation_bucket, bucket
-- parameters: of_device
--   bucket: the bucket
--   highest_bytes: the most bytes asked for by allocations that the program held at once
--   highest_event_ix: the first event after which it was so; -1 is the opening state
--   allocation_count: allocations over the whole recording
--   meaning: what the bucket is, in a sentence
with owned as (
    select * from allocation_bucket
    where device = of_device and not is_pending_at_start
),

change as (
    select
        bucket,
        -1 as event_ix,
        sum(requested_bytes) as requested_bytes
    from owned
    where birth_event_ix is null
    group by bucket
    union all
    select
        bucket,
        birth_event_ix as event_ix,
        requested_bytes
    from owned
    where birth_event_ix is not null
    union all
    select
        bucket,
        coalesce(free_requested_event_ix, death_event_ix) as event_ix,
        -requested_bytes as requested_bytes
    from owned
    where coalesce(free_requested_event_ix, death_event_ix) is not null
),

running as materialized (
    select
        bucket,
        event_ix,
        sum(requested_bytes) over (partition by bucket order by event_ix rows unbounded preceding) as live_bytes
    from change
),

counted as (
    select
        bucket,
        count(*) as allocation_count
    from owned
    group by bucket
),

most as (
    select
        bucket,
        max(live_bytes) as live_bytes
    from running
    group by bucket
),

highest as (
    select
        most.bucket,
        any_value(most.live_bytes) as highest_bytes,
        min(running.event_ix) as highest_event_ix
    from running
    inner join most on running.bucket = most.bucket and running.live_bytes = most.live_bytes
    group by most.bucket
)

select
    highest.bucket,
    highest.highest_bytes::bigint as highest_bytes,
    highest.highest_event_ix::bigint as highest_event_ix,
    counted.allocation_count,
    bucket.meaning
from highest
inner join counted on highest.bucket = counted.bucket
inner join bucket on highest.bucket = bucket.bucket
order by bucket.bucket_order
