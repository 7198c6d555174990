-- One line of the account at one moment.
-- layer: ledger
-- grain: device, moment, bucket
-- reads: moment, allocation_bucket, bucket
--   device: the device
--   moment: the moment, see the view moment
--   bucket: the bucket, see the view bucket
--   requested_bytes: bytes asked for by its allocations that the program holds at that moment
--   held_bytes: bytes of their blocks; for block_slack, pending_free and cached, the bytes of that kind
--   allocation_count: number of those allocations
--   entry_bytes: what the line adds to the account: requested bytes for allocations, held bytes for the others; the lines of a moment add up to its reserved bytes
with point as (
    select
        device,
        moment,
        coalesce(event_ix, -1) as event_ix,
        active_bytes,
        reserved_bytes
    from moment
),

-- each change of a bucket counts from the first moment at or after it
change as (
    select
        device,
        bucket,
        coalesce(birth_event_ix, -1) as event_ix,
        case when is_pending_at_start then 0 else requested_bytes end as requested_bytes,
        case when is_pending_at_start then 0 else held_bytes end as held_bytes,
        case when is_pending_at_start then 0 else 1 end as allocation_count,
        case when is_pending_at_start then requested_bytes else 0 end as pending_requested_bytes,
        case when is_pending_at_start then held_bytes else 0 end as pending_held_bytes,
        case when is_pending_at_start then 1 else 0 end as pending_count
    from allocation_bucket
    union all
    select
        device,
        bucket,
        free_requested_event_ix as event_ix,
        -requested_bytes as requested_bytes,
        -held_bytes as held_bytes,
        -1 as allocation_count,
        requested_bytes as pending_requested_bytes,
        held_bytes as pending_held_bytes,
        1 as pending_count
    from allocation_bucket
    where free_requested_event_ix is not null
    union all
    select
        device,
        bucket,
        death_event_ix as event_ix,
        case when is_dropped then 0 else -requested_bytes end as requested_bytes,
        case when is_dropped then 0 else -held_bytes end as held_bytes,
        case when is_dropped then 0 else -1 end as allocation_count,
        case when is_dropped then -requested_bytes else 0 end as pending_requested_bytes,
        case when is_dropped then -held_bytes else 0 end as pending_held_bytes,
        case when is_dropped then -1 else 0 end as pending_count
    from (
        select
            *,
            free_requested_event_ix is not null or is_pending_at_start as is_dropped
        from allocation_bucket
        where death_event_ix is not null
    )
),

distinct_point as (
    select distinct device, event_ix
    from point
),

net as (
    select
        change.device,
        distinct_point.event_ix,
        change.bucket,
        sum(change.requested_bytes) as requested_bytes,
        sum(change.held_bytes) as held_bytes,
        sum(change.allocation_count) as allocation_count,
        sum(change.pending_requested_bytes) as pending_requested_bytes,
        sum(change.pending_held_bytes) as pending_held_bytes,
        sum(change.pending_count) as pending_count
    from change
    asof inner join distinct_point
        on change.device = distinct_point.device and change.event_ix <= distinct_point.event_ix
    group by all
),

every_line as (
    select
        distinct_point.device,
        distinct_point.event_ix,
        used.bucket
    from distinct_point
    inner join (select distinct device, bucket from net) as used on distinct_point.device = used.device
),

running as (
    select
        every_line.device,
        every_line.event_ix,
        every_line.bucket,
        sum(coalesce(net.requested_bytes, 0)) over so_far as requested_bytes,
        sum(coalesce(net.held_bytes, 0)) over so_far as held_bytes,
        sum(coalesce(net.allocation_count, 0)) over so_far as allocation_count,
        sum(coalesce(net.pending_requested_bytes, 0)) over so_far as pending_requested_bytes,
        sum(coalesce(net.pending_held_bytes, 0)) over so_far as pending_held_bytes,
        sum(coalesce(net.pending_count, 0)) over so_far as pending_count
    from every_line
    left join net
        on
            every_line.device = net.device
            and every_line.event_ix = net.event_ix
            and every_line.bucket = net.bucket
    window so_far as (
        partition by every_line.device, every_line.bucket order by every_line.event_ix rows unbounded preceding
    )
),

total as (
    select
        device,
        event_ix,
        sum(held_bytes - requested_bytes) as slack_bytes,
        sum(pending_requested_bytes) as pending_requested_bytes,
        sum(pending_held_bytes) as pending_held_bytes,
        sum(pending_count) as pending_count
    from running
    group by device, event_ix
),

line as (
    select
        point.device,
        point.moment,
        running.bucket,
        running.requested_bytes,
        running.held_bytes,
        running.allocation_count,
        running.requested_bytes as entry_bytes
    from point
    inner join running on point.device = running.device and point.event_ix = running.event_ix
    where running.allocation_count > 0
    union all
    select
        point.device,
        point.moment,
        'block_slack' as bucket,
        0 as requested_bytes,
        coalesce(total.slack_bytes, 0) as held_bytes,
        0 as allocation_count,
        coalesce(total.slack_bytes, 0) as entry_bytes
    from point
    left join total on point.device = total.device and point.event_ix = total.event_ix
    union all
    select
        point.device,
        point.moment,
        'pending_free' as bucket,
        coalesce(total.pending_requested_bytes, 0) as requested_bytes,
        coalesce(total.pending_held_bytes, 0) as held_bytes,
        coalesce(total.pending_count, 0) as allocation_count,
        coalesce(total.pending_held_bytes, 0) as entry_bytes
    from point
    left join total on point.device = total.device and point.event_ix = total.event_ix
    union all
    select
        point.device,
        point.moment,
        'cached' as bucket,
        0 as requested_bytes,
        point.reserved_bytes - point.active_bytes as held_bytes,
        0 as allocation_count,
        point.reserved_bytes - point.active_bytes as entry_bytes
    from point
)

select
    line.device,
    line.moment,
    line.bucket,
    line.requested_bytes::bigint as requested_bytes,
    line.held_bytes::bigint as held_bytes,
    line.allocation_count::bigint as allocation_count,
    line.entry_bytes::bigint as entry_bytes
from line
inner join bucket on line.bucket = bucket.bucket
inner join moment on line.device = moment.device and line.moment = moment.moment
order by line.device, moment.moment_ix, bucket.bucket_order
