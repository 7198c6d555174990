-- One kept event of one device with its account by bucket, ready to be drawn as a stack whose top is the reserved
-- bytes.
-- layer: report
-- grain: event_ix
-- reads: timeline_event, account_at, trace_event, allocation_bucket, span, stack_shown
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

began as (
    select min(time_us) as time_us from trace_event
    where device = of_device
),

happened as (
    select
        trace_event.event_ix,
        trace_event.action,
        trace_event.size_bytes,
        trace_event.stack_id,
        trace_event.time_us - began.time_us as since_us
    from trace_event
    cross join began
    where trace_event.device = of_device and trace_event.event_ix in (select kept.event_ix from kept)
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
inner join account_at(of_device, (select list(kept.event_ix) from kept)) as listed on placed.event_ix = listed.event_ix
left join subject on placed.event_ix = subject.event_ix
left join happened on placed.event_ix = happened.event_ix
left join stack_shown on happened.stack_id = stack_shown.stack_id
order by placed.event_ix
