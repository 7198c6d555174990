-- One piece of a drawn segment of one device after any event: a block, the slack at its end, a free piece, or several too
-- small to be drawn apart.
-- layer: report
-- grain: segment_ix, from_bytes
-- reads: alive_at, allocation, free_piece_at, segment_shown_at, stack_shown
-- parameters: of_device, at_event_ix
--   segment_ix: the segment, see segment_shown_at
--   from_bytes: where it begins, counted from the segment's first address
--   to_bytes: where it ends
--   size_bytes: its bytes
--   piece: bucket of the block; block_slack, pending_free or cached (free); several where unlike ones are drawn together
--   piece_count: pieces that it stands for
--   free_bytes: free bytes among them
--   allocation_id: the allocation, where it is a block
--   requested_by: who asked for it
--   user_frame: the nearest line of the user's own code
with drawn as materialized (
    select * from segment_shown_at(of_device, at_event_ix)
),

alive as (
    select
        alive.allocation_id,
        alive.address,
        alive.requested_bytes,
        alive.held_bytes,
        case when alive.is_pending then 'pending_free' else alive.bucket end as piece,
        alive.is_pending,
        allocation.stack_id
    from alive_at(of_device, at_event_ix) as alive
    inner join allocation on alive.allocation_id = allocation.allocation_id
),

block as (
    select
        drawn.segment_ix,
        drawn.cell_bytes,
        alive.address - drawn.address as from_bytes,
        alive.*
    from alive
    asof inner join drawn on alive.address >= drawn.address
    where alive.address < drawn.address + drawn.size_bytes
),

piece as (
    -- slack that is wide enough has a piece of its own
    select
        segment_ix,
        cell_bytes,
        from_bytes,
        from_bytes + case when held_bytes - requested_bytes >= cell_bytes and not is_pending then requested_bytes else held_bytes end as to_bytes,
        piece,
        allocation_id,
        stack_id,
        false as is_free
    from block
    union all
    select
        segment_ix,
        cell_bytes,
        from_bytes + requested_bytes as from_bytes,
        from_bytes + held_bytes as to_bytes,
        'block_slack' as piece,
        allocation_id,
        stack_id,
        false as is_free
    from block
    where held_bytes - requested_bytes >= cell_bytes and not is_pending
    union all
    select
        drawn.segment_ix,
        drawn.cell_bytes,
        free.address - drawn.address as from_bytes,
        free.address - drawn.address + free.size_bytes as to_bytes,
        'cached' as piece,
        null as allocation_id,
        null as stack_id,
        true as is_free
    from free_piece_at(of_device, at_event_ix) as free
    inner join drawn on free.segment_address = drawn.address
),

bordered as (
    select
        *,
        to_bytes - from_bytes < cell_bytes as is_narrow,
        coalesce(
            to_bytes - from_bytes < cell_bytes and lag(to_bytes - from_bytes) over in_segment < cell_bytes, false
        ) as continues
    from piece
    window in_segment as (partition by segment_ix order by from_bytes)
),

numbered as (
    select
        *,
        sum((not continues)::bigint) over (partition by segment_ix order by from_bytes) as piece_ix
    from bordered
),

together as (
    select
        segment_ix,
        min(from_bytes) as from_bytes,
        max(to_bytes) as to_bytes,
        case when count(distinct piece) = 1 then any_value(piece) else 'several' end as piece,
        count(*) as piece_count,
        coalesce(sum(to_bytes - from_bytes) filter (where is_free), 0) as free_bytes,
        case when count(*) = 1 then any_value(allocation_id) end as allocation_id,
        case when count(*) = 1 then any_value(stack_id) end as stack_id
    from numbered
    group by segment_ix, piece_ix
)

select
    together.segment_ix,
    together.from_bytes::bigint as from_bytes,
    together.to_bytes::bigint as to_bytes,
    (together.to_bytes - together.from_bytes)::bigint as size_bytes,
    together.piece,
    together.piece_count,
    together.free_bytes::bigint as free_bytes,
    together.allocation_id,
    stack_shown.requested_by,
    stack_shown.user_frame
from together
left join stack_shown on together.stack_id = stack_shown.stack_id
order by together.segment_ix, together.from_bytes
