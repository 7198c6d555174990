-- One segment of one device after any event, -1 being before the first; mapped pages side by side are one.
-- layer: ledger
-- grain: address
-- reads: reserved_at
-- parameters: of_device, at_event_ix
--   address: first address
--   size_bytes: its bytes
--   stream: the stream whose requests it serves
--   pool: the pool it belongs to
--   is_small: whether it is of the small pool, which serves requests of up to 1 MiB
--   is_expandable: whether it is mapped pages of an expandable segment
with range as (
    select
        address,
        size_bytes,
        stream,
        pool,
        is_small,
        is_expandable,
        -- mapped pages side by side are one segment, segments side by side are not
        coalesce(
            is_expandable
            and lag(address + size_bytes) over neighbours = address
            and lag(stream) over neighbours = stream
            and lag(pool) over neighbours = pool
            and lag(is_small) over neighbours = is_small
            and lag(is_expandable) over neighbours,
            false
        ) as continues
    from reserved_at(of_device, at_event_ix)
    window neighbours as (order by address)
),

numbered as (
    select
        *,
        sum((not continues)::bigint) over (order by address) as segment_number
    from range
)

select
    min(address) as address,
    sum(size_bytes)::bigint as size_bytes,
    any_value(stream) as stream,
    any_value(pool) as pool,
    any_value(is_small) as is_small,
    any_value(is_expandable) as is_expandable
from numbered
group by segment_number
order by address
