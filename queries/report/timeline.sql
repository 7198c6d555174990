-- One kept event of one device with its account by bucket, ready to be drawn as a stack whose top is the reserved
-- bytes.
-- layer: report
-- grain: event_ix
-- reads: timeline_event, trace_event, allocation_bucket, bucket, span, stack_shown
-- parameters: of_device, bin_count
--   event_ix: the event; -1 is the opening state
--   time_us: microseconds since the device's first event; null where the recording has no times
--   step: the training step then
--   phase: the phase then
--   action: what happened, in torch's word; null for the opening state
--   size_bytes: the bytes that the event is about
--   event_bucket: the bucket of the allocation that it made or dropped
--   requested_by: who asked
--   user_frame: the nearest line of the user's own code
--   allocated_bytes: bytes in blocks that the program holds after it
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments
--   high_water_bytes: the most allocated so far
--   buckets: the buckets that hold anything at any kept event, in the ledger's order; the same list in every row
--   bucket_bytes: requested bytes of each of them, slack, pending and cached bytes for the lines of that name; they add up to the reserved bytes
with kept as materialized (
    select * from timeline_event(of_device, bin_count)
),

owned as materialized (
    select * from allocation_bucket
    where device = of_device
),

change as (
    select
        coalesce(birth_event_ix, -1) as event_ix,
        bucket,
        requested_bytes as entry_bytes,
        held_bytes - requested_bytes as slack_bytes,
        0 as pending_bytes
    from owned
    where not is_pending_at_start
    union all
    select
        coalesce(free_requested_event_ix, death_event_ix) as event_ix,
        bucket,
        -requested_bytes as entry_bytes,
        requested_bytes - held_bytes as slack_bytes,
        0 as pending_bytes
    from owned
    where not is_pending_at_start and coalesce(free_requested_event_ix, death_event_ix) is not null
    union all
    select
        case when is_pending_at_start then -1 else free_requested_event_ix end as event_ix,
        bucket,
        0 as entry_bytes,
        0 as slack_bytes,
        held_bytes as pending_bytes
    from owned
    where is_pending_at_start or free_requested_event_ix is distinct from death_event_ix and free_requested_event_ix is not null
    union all
    select
        death_event_ix as event_ix,
        bucket,
        0 as entry_bytes,
        0 as slack_bytes,
        -held_bytes as pending_bytes
    from owned
    where
        death_event_ix is not null
        and (is_pending_at_start or free_requested_event_ix is distinct from death_event_ix and free_requested_event_ix is not null)
),

net as materialized (
    select
        kept.event_ix,
        change.bucket,
        sum(change.entry_bytes) as entry_bytes,
        sum(change.slack_bytes) as slack_bytes,
        sum(change.pending_bytes) as pending_bytes
    from change
    asof inner join kept on change.event_ix <= kept.event_ix
    group by kept.event_ix, change.bucket
),

line as (
    select event_ix, bucket, entry_bytes from net
    union all
    select event_ix, 'block_slack' as bucket, sum(slack_bytes) as entry_bytes from net group by event_ix
    union all
    select event_ix, 'pending_free' as bucket, sum(pending_bytes) as entry_bytes from net group by event_ix
),

used as (
    select
        line.bucket,
        any_value(bucket.bucket_order) as bucket_order
    from line
    inner join bucket on line.bucket = bucket.bucket
    where line.entry_bytes <> 0
    group by line.bucket
),

running as (
    select
        kept.event_ix,
        used.bucket,
        used.bucket_order,
        sum(coalesce(line.entry_bytes, 0)) over (partition by used.bucket order by kept.event_ix) as entry_bytes
    from kept
    cross join used
    left join line on kept.event_ix = line.event_ix and used.bucket = line.bucket
),

entry as (
    select event_ix, bucket, bucket_order, entry_bytes from running
    union all
    select
        kept.event_ix,
        bucket.bucket,
        bucket.bucket_order,
        kept.reserved_bytes - kept.active_bytes as entry_bytes
    from kept
    inner join bucket on bucket.bucket = 'cached'
),

listed as (
    select
        event_ix,
        list(bucket order by bucket_order) as buckets,
        list(entry_bytes::bigint order by bucket_order) as bucket_bytes
    from entry
    group by event_ix
),

subject as (
    select birth_event_ix as event_ix, bucket from owned
    where birth_event_ix in (select kept.event_ix from kept)
    union all
    select free_requested_event_ix as event_ix, bucket from owned
    where free_requested_event_ix in (select kept.event_ix from kept)
    union all
    select death_event_ix as event_ix, bucket from owned
    where death_event_ix is distinct from free_requested_event_ix and death_event_ix in (select kept.event_ix from kept)
),

placed as (
    select
        kept.*,
        span.step,
        span.phase
    from kept
    asof left join (select * from span where device = of_device) as span on kept.event_ix >= span.begin_event_ix
),

happened as (
    select
        trace_event.*,
        trace_event.time_us - min(trace_event.time_us) over () as since_us
    from trace_event
    where trace_event.device = of_device
)

select
    placed.event_ix,
    happened.since_us as time_us,
    placed.step,
    placed.phase,
    happened.action,
    happened.size_bytes,
    subject.bucket as event_bucket,
    stack_shown.requested_by,
    stack_shown.user_frame,
    placed.allocated_bytes,
    placed.active_bytes,
    placed.reserved_bytes,
    placed.high_water_bytes,
    listed.buckets,
    listed.bucket_bytes
from placed
left join listed on placed.event_ix = listed.event_ix
left join subject on placed.event_ix = subject.event_ix
left join happened on placed.event_ix = happened.event_ix
left join stack_shown on happened.stack_id = stack_shown.stack_id
order by placed.event_ix
