-- A segment whose own counters disagree with its blocks.
-- layer: check
-- grain: segment_id
-- reads: segment, block
--   device: the device
--   segment_id: the segment
--   address: its first address
--   fault: which counter disagrees, in words
with counted as (
    select
        segment_id,
        coalesce(sum(size_bytes) filter (where state = 'active_allocated'), 0)::bigint as allocated_bytes,
        coalesce(sum(size_bytes) filter (where state <> 'inactive'), 0)::bigint as active_bytes,
        coalesce(sum(requested_size_bytes) filter (where state <> 'inactive'), 0)::bigint as requested_bytes
    from block
    group by segment_id
)

select
    segment.device,
    segment.segment_id,
    segment.address,
    concat_ws(
        '; ',
        case
            when segment.allocated_size_bytes <> coalesce(counted.allocated_bytes, 0)
                then 'allocated_size is ' || segment.allocated_size_bytes || ', its blocks say ' || coalesce(counted.allocated_bytes, 0)
        end,
        case
            when segment.active_size_bytes <> coalesce(counted.active_bytes, 0)
                then 'active_size is ' || segment.active_size_bytes || ', its blocks say ' || coalesce(counted.active_bytes, 0)
        end,
        case
            when segment.requested_size_bytes <> coalesce(counted.requested_bytes, 0)
                then 'requested_size is ' || segment.requested_size_bytes || ', its blocks say ' || coalesce(counted.requested_bytes, 0)
        end
    ) as fault
from segment
left join counted on segment.segment_id = counted.segment_id
where
    segment.allocated_size_bytes <> coalesce(counted.allocated_bytes, 0)
    or segment.active_size_bytes <> coalesce(counted.active_bytes, 0)
    or segment.requested_size_bytes <> coalesce(counted.requested_bytes, 0)
order by segment.segment_id
