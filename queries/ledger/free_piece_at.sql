-- One free run of addresses inside a reserved segment of one device after any event, -1 being before the first.
-- layer: ledger
-- grain: address
-- reads: alive_at, segment_at
-- parameters: of_device, at_event_ix
--   address: first address of the free run
--   size_bytes: its bytes: the largest request it can serve
--   stream: the stream whose requests it can serve
--   pool: the pool whose requests it can serve
--   is_small: whether it serves requests of up to 1 MiB only, as the small pool does; the large pool serves larger ones
--   segment_address: first address of the segment (of the mapped run, where expandable)
--   segment_bytes: that segment's bytes
--   is_expandable: whether the segment is expandable
--   is_whole_segment: whether nothing else is in the segment, so that empty_cache would return it
--   below_allocation_id: the allocation just below it that pins the segment; null where there is none
--   above_allocation_id: the allocation just above it; null where there is none
with held_segment as (
    select * from segment_at(of_device, at_event_ix)
),

alive as (
    select
        allocation_id,
        address,
        held_bytes
    from alive_at(of_device, at_event_ix)
),

-- each segment's blocks in order, with its own begin and end as the borders of the first and last gap
border as (
    select
        held_segment.address as segment_address,
        held_segment.address as ends_at,
        null::bigint as allocation_id,
        held_segment.address as order_address,
        0 as order_kind
    from held_segment
    union all
    select
        held_segment.address as segment_address,
        alive.address + alive.held_bytes as ends_at,
        alive.allocation_id,
        alive.address as order_address,
        1 as order_kind
    from alive
    asof inner join held_segment on alive.address >= held_segment.address
    where alive.address < held_segment.address + held_segment.size_bytes
),

gap as (
    select
        segment_address,
        ends_at as begins_at,
        lead(order_address) over in_segment as next_address,
        allocation_id as below_allocation_id,
        lead(allocation_id) over in_segment as above_allocation_id
    from border
    window in_segment as (partition by segment_address order by order_address, order_kind)
)

select
    gap.begins_at as address,
    (coalesce(gap.next_address, held_segment.address + held_segment.size_bytes) - gap.begins_at)::bigint as size_bytes,
    held_segment.stream,
    held_segment.pool,
    held_segment.is_small,
    held_segment.address as segment_address,
    held_segment.size_bytes as segment_bytes,
    held_segment.is_expandable,
    gap.below_allocation_id is null and gap.above_allocation_id is null as is_whole_segment,
    gap.below_allocation_id,
    gap.above_allocation_id
from gap
inner join held_segment on gap.segment_address = held_segment.address
where coalesce(gap.next_address, held_segment.address + held_segment.size_bytes) > gap.begins_at
order by address
