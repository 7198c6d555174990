-- One event of a list, with the account of one device after it by bucket, as lists ready to be drawn as a stack whose top
-- is the reserved bytes: from account_at(0, [-1, 3815]).
-- layer: report
-- grain: event_ix
-- reads: allocation_bucket, bucket, opening, reserved_change
-- parameters: of_device, of_events
--   event_ix: the event; -1 is the opening state
--   allocated_bytes: bytes in blocks that the program holds after it
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments
--   buckets: the buckets that hold anything at any event of the list, in the ledger's order; the same list in every row
--   bucket_bytes: requested bytes of each of them, slack, pending and cached bytes for the lines of that name; they add up to the reserved bytes
with asked as materialized (
    select distinct unnest(of_events)::bigint as event_ix
),

owned as materialized (
    select * from allocation_bucket
    where device = of_device
),

-- born, dropped by the program, back in the pool; one that another stream still works on is pending between the last two
change as (
    select
        case when is_pending_at_start then -1 else coalesce(birth_event_ix, -1) end as event_ix,
        bucket,
        case when is_pending_at_start then 0 else requested_bytes end as entry_bytes,
        case when is_pending_at_start then 0 else held_bytes - requested_bytes end as slack_bytes,
        case when is_pending_at_start then held_bytes else 0 end as pending_bytes
    from owned
    union all
    select
        coalesce(free_requested_event_ix, death_event_ix) as event_ix,
        bucket,
        -requested_bytes as entry_bytes,
        requested_bytes - held_bytes as slack_bytes,
        case when coalesce(free_requested_event_ix, death_event_ix) is distinct from death_event_ix then held_bytes else 0 end as pending_bytes
    from owned
    where not is_pending_at_start and coalesce(free_requested_event_ix, death_event_ix) is not null
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
        asked.event_ix,
        change.bucket,
        sum(change.entry_bytes) as entry_bytes,
        sum(change.slack_bytes) as slack_bytes,
        sum(change.pending_bytes) as pending_bytes
    from change
    asof inner join asked on change.event_ix <= asked.event_ix
    where change.event_ix <= (select max(asked.event_ix) from asked)
    group by asked.event_ix, change.bucket
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

running as materialized (
    select
        asked.event_ix,
        used.bucket,
        used.bucket_order,
        sum(coalesce(line.entry_bytes, 0)) over (partition by used.bucket order by asked.event_ix) as entry_bytes
    from asked
    cross join used
    left join line on asked.event_ix = line.event_ix and used.bucket = line.bucket
),

reserved as (
    select
        event_ix,
        sum(reserved_bytes) over (order by event_ix rows unbounded preceding) as reserved_bytes
    from (
        select -1 as event_ix, reserved_bytes from opening where device = of_device
        union all
        select event_ix, reserved_bytes from reserved_change where device = of_device
    )
),

state as materialized (
    select
        asked.event_ix,
        reserved.reserved_bytes
    from asked
    asof inner join reserved on asked.event_ix >= reserved.event_ix
),

held as (
    select
        event_ix,
        sum(entry_bytes) as active_bytes,
        sum(entry_bytes) filter (where bucket <> 'pending_free') as allocated_bytes
    from running
    group by event_ix
),

entry as (
    select event_ix, bucket, bucket_order, entry_bytes from running
    union all
    select
        state.event_ix,
        bucket.bucket,
        bucket.bucket_order,
        state.reserved_bytes - coalesce(held.active_bytes, 0) as entry_bytes
    from state
    inner join bucket on bucket.bucket = 'cached'
    left join held on state.event_ix = held.event_ix
),

listed as (
    select
        event_ix,
        list(bucket order by bucket_order) as buckets,
        list(entry_bytes::bigint order by bucket_order) as bucket_bytes
    from entry
    group by event_ix
)

select
    state.event_ix,
    coalesce(held.allocated_bytes, 0)::bigint as allocated_bytes,
    coalesce(held.active_bytes, 0)::bigint as active_bytes,
    state.reserved_bytes::bigint as reserved_bytes,
    listed.buckets,
    listed.bucket_bytes
from state
left join held on state.event_ix = held.event_ix
inner join listed on state.event_ix = listed.event_ix
order by state.event_ix
