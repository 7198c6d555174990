-- One segment of one device after any event, in its place of a drawn address space: the forty largest, the largest first.
-- layer: report
-- grain: segment_ix
-- reads: segment_at
-- parameters: of_device, at_event_ix
--   segment_ix: its place, counted from 0
--   address: first address
--   size_bytes: its bytes
--   stream: the stream whose requests it serves
--   pool: the pool it belongs to
--   is_small: whether it is of the small pool
--   is_expandable: whether it is expandable
--   cell_bytes: what is drawn of its own: pieces of less are drawn together
--   segment_count: segments of the device, of which those beyond the fortieth are not drawn
--   left_out_bytes: bytes of the segments that are not drawn
with ranked as (
    select
        *,
        row_number() over (order by size_bytes desc, address) - 1 as segment_ix,
        count(*) over () as segment_count,
        sum(size_bytes) over () as all_bytes
    from segment_at(of_device, at_event_ix)
)

select
    segment_ix,
    address,
    size_bytes,
    stream,
    pool,
    is_small,
    is_expandable,
    -- a thousandth of the widest row; of very many wide rows, so much that all pieces together stay few
    greatest(max(size_bytes) over () // 1000, sum(size_bytes) over () // 1000, 1)::bigint as cell_bytes,
    segment_count,
    (all_bytes - sum(size_bytes) over ())::bigint as left_out_bytes
from ranked
where segment_ix < 40
order by segment_ix
