-- One line of the fragmentation account of one device after any event: what each pool does with the bytes it reserved.
-- layer: ledger
-- grain: pool, stream, is_small, line
-- reads: alive_at, free_piece_at, pool_label, reserved_at
-- parameters: of_device, at_event_ix
--   pool: the pool, (0,0) being the default one; another one serves its own program part only, such as a CUDA graph
--   pool_kind: whose it is: default, graph or program, see pool_label
--   stream: the stream; what is free on one stream cannot serve another
--   is_small: whether it is the pool for requests of up to 1 MiB
--   line: allocated, pending_free, idle_segment (whole, returnable by empty_cache, in a graph's pool once the graph is gone) or free_piece (pinned by live blocks)
--   held_bytes: bytes of that line
--   piece_count: blocks, or free pieces
--   largest_bytes: the largest of them: for free ones, the largest request that needs no new segment
with range as (
    select
        address,
        stream,
        pool,
        is_small
    from reserved_at(of_device, at_event_ix)
),

alive as (
    select
        address,
        held_bytes,
        is_pending
    from alive_at(of_device, at_event_ix)
),

piece as (
    select
        range.pool,
        range.stream,
        range.is_small,
        case when alive.is_pending then 'pending_free' else 'allocated' end as line,
        alive.held_bytes
    from alive
    asof left join range on alive.address >= range.address
    union all
    select
        pool,
        stream,
        is_small,
        case when is_whole_segment then 'idle_segment' else 'free_piece' end as line,
        size_bytes as held_bytes
    from free_piece_at(of_device, at_event_ix)
)

select
    piece.pool,
    pool_label.pool_kind,
    piece.stream,
    piece.is_small,
    piece.line,
    sum(piece.held_bytes)::bigint as held_bytes,
    count(*) as piece_count,
    max(piece.held_bytes) as largest_bytes
from piece
left join pool_label on piece.pool = pool_label.pool
group by piece.pool, pool_label.pool_kind, piece.stream, piece.is_small, piece.line
order by piece.pool, piece.stream, piece.is_small, piece.line
