-- A segment whose blocks do not tile it: a gap, an overlap, or blocks that do not add up to it.
-- layer: check
-- grain: segment_id
-- reads: segment, block
--   device: the device
--   segment_id: the segment
--   address: its first address
--   total_size_bytes: the segment's bytes
--   block_bytes: the bytes of its blocks
--   fault: what is wrong, in words
with seated as (
    select
        segment_id,
        address,
        size_bytes,
        lag(address + size_bytes) over (partition by segment_id order by block_ix) as expected_address
    from block
),

told as (
    select
        segment.segment_id,
        segment.device,
        segment.address,
        segment.total_size_bytes,
        coalesce(sum(seated.size_bytes), 0)::bigint as block_bytes,
        min(seated.address) as first_address,
        coalesce(bool_or(seated.address > seated.expected_address), false) as has_gap,
        coalesce(bool_or(seated.address < seated.expected_address), false) as has_overlap
    from segment
    left join seated on segment.segment_id = seated.segment_id
    group by segment.segment_id, segment.device, segment.address, segment.total_size_bytes
)

select
    device,
    segment_id,
    address,
    total_size_bytes,
    block_bytes,
    concat_ws(
        '; ',
        case when block_bytes <> total_size_bytes then 'its blocks add up to ' || block_bytes || ' bytes, not ' || total_size_bytes end,
        case when first_address <> address then 'its first block does not begin where it begins' end,
        case when has_gap then 'there is a gap between its blocks' end,
        case when has_overlap then 'its blocks overlap' end
    ) as fault
from told
where block_bytes <> total_size_bytes or first_address <> address or has_gap or has_overlap
order by segment_id
