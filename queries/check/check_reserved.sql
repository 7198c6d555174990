-- A device whose last line does not add up: reserved bytes are requested live + block slack + pending + cached, each as the final segments and blocks say.
-- layer: check
-- grain: device, line
-- reads: ledger, block, segment, bucket
--   device: the device
--   line: the line of the account at the end
--   ledger_bytes: what the ledger says
--   segment_bytes: what the segments and blocks of the snapshot say
with said as (
    select
        ledger.device,
        case when bucket.is_allocation then 'requested' else ledger.bucket end as line,
        sum(ledger.entry_bytes) as ledger_bytes
    from ledger
    inner join bucket on ledger.bucket = bucket.bucket
    where ledger.moment = 'end'
    group by all
    union all
    select
        device,
        'reserved' as line,
        sum(entry_bytes) as ledger_bytes
    from ledger
    where moment = 'end'
    group by device
),

found as (
    select
        device,
        'requested' as line,
        sum(requested_size_bytes) filter (where state = 'active_allocated') as segment_bytes
    from block
    group by device
    union all
    select
        device,
        'block_slack' as line,
        sum(size_bytes - requested_size_bytes) filter (where state = 'active_allocated') as segment_bytes
    from block
    group by device
    union all
    select
        device,
        'pending_free' as line,
        sum(size_bytes) filter (where state = 'active_pending_free') as segment_bytes
    from block
    group by device
    union all
    select
        device,
        'cached' as line,
        sum(size_bytes) filter (where state = 'inactive') as segment_bytes
    from block
    group by device
    union all
    select
        device,
        'reserved' as line,
        sum(total_size_bytes) as segment_bytes
    from segment
    group by device
)

select
    found.device,
    found.line,
    coalesce(said.ledger_bytes, 0)::bigint as ledger_bytes,
    coalesce(found.segment_bytes, 0)::bigint as segment_bytes
from found
left join said on found.device = said.device and found.line = said.line
where coalesce(said.ledger_bytes, 0) <> coalesce(found.segment_bytes, 0)
order by found.device, found.line
