-- One frame in its place of the tree of stacks of what the program of one device holds after any event: the outermost call
-- is a root, the operator that asked is a leaf. Frames of less than a thousandth of the bytes are left out, as is their
-- place: flame_at(0, 3815).
-- layer: report
-- grain: node_id
-- reads: alive_at, allocation, stack_line, stack_frame, frame_label, stack_shown
-- parameters: of_device, at_event_ix
--   node_id: dense number from the roots on
--   depth_ix: frames above it; 0 is the whole
--   frame: what is shown of it, without control characters and cut to a length that fits a page
--   label: the same without its folder
--   origin: whose code it is: user, torch, library, standard_library or generated; operator for the leaf, none for what has no stack
--   from_bytes: bytes to the left of it
--   to_bytes: from_bytes and its own requested bytes
--   requested_bytes: bytes asked for beneath it
--   allocation_count: number of allocations beneath it
--   bucket: the bucket of most of these bytes
with held as (
    select
        alive.bucket,
        alive.requested_bytes,
        allocation.stack_id
    from alive_at(of_device, at_event_ix) as alive
    inner join allocation on alive.allocation_id = allocation.allocation_id
    where not alive.is_pending
),

by_stack as (
    select
        stack_id,
        bucket,
        sum(requested_bytes)::bigint as requested_bytes,
        count(*) as allocation_count
    from held
    group by stack_id, bucket
),

used as (
    select distinct stack_id from by_stack
    where stack_id is not null
),

-- Python frames from the outermost inwards; torch's own way of calling a module is left out, and what C++ did is folded
-- into the operator or node that asked
python_frame as (
    select
        stack_line.stack_id,
        list(
            {
                'frame': regexp_replace(
                    case when length(stack_line.shown) > 120 then '…' || right(stack_line.shown, 119) else stack_line.shown end,
                    '[\x00-\x1f\x7f-\x9f]', '�', 'g'
                ),
                'origin': stack_line.origin
            }
            order by stack_line.depth_ix desc
        ) as frames
    from stack_line
    inner join used on stack_line.stack_id = used.stack_id
    inner join stack_frame on stack_line.stack_id = stack_frame.stack_id and stack_line.depth_ix = stack_frame.depth_ix
    inner join frame_label on stack_frame.frame_id = frame_label.frame_id
    where stack_line.origin is not null and not list_contains(frame_label.roles, 'module_call')
    group by stack_line.stack_id
),

-- a hundred frames are more than a picture can hold: of a deeper stack the innermost stand for it
path as (
    select
        by_stack.bucket,
        by_stack.requested_bytes,
        by_stack.allocation_count,
        case
            when by_stack.stack_id is null then [{'frame': 'no stack recorded', 'origin': 'none'}]
            else coalesce(python_frame.frames, [])[-100:]
                || case
                    -- a Python frame that asked itself is there already
                    when len(python_frame.frames) > 0 and stack_shown.requested_by = stack_shown.user_frame then []
                    else [{'frame': coalesce(stack_shown.requested_by, 'a stack without frames'), 'origin': 'operator'}]
                end
        end as frames
    from by_stack
    left join python_frame on by_stack.stack_id = python_frame.stack_id
    left join stack_shown on by_stack.stack_id = stack_shown.stack_id
),

whole as (
    select
        bucket,
        requested_bytes,
        allocation_count,
        [{'frame': 'all that is held', 'origin': 'none'}] || frames as frames,
        row_number() over () as path_id
    from path
),

prefix as materialized (
    select
        whole.path_id,
        whole.bucket,
        whole.requested_bytes,
        whole.allocation_count,
        depth.depth_ix,
        whole.frames[1:depth.depth_ix + 1] as frames
    from whole
    cross join lateral (select unnest(range(len(whole.frames))) as depth_ix) as depth
),

node as (
    select
        frames,
        depth_ix,
        sum(requested_bytes)::bigint as requested_bytes,
        sum(allocation_count)::bigint as allocation_count
    from prefix
    group by frames, depth_ix
),

main_bucket as (
    select
        frames,
        arg_max(bucket, requested_bytes) as bucket
    from (select frames, bucket, sum(requested_bytes) as requested_bytes from prefix group by frames, bucket)
    group by frames
),

-- siblings stand with the largest first: a path is compared by the bytes of each of its prefixes, from the root on
keyed as (
    select
        prefix.path_id,
        any_value(prefix.requested_bytes) as requested_bytes,
        list({'bytes': -node.requested_bytes, 'frame': node.frames[-1]} order by prefix.depth_ix) as sort_key
    from prefix
    inner join node on prefix.frames = node.frames
    group by prefix.path_id
),

placed as (
    select
        path_id,
        coalesce(sum(requested_bytes) over (order by sort_key, path_id rows between unbounded preceding and 1 preceding), 0) as from_bytes
    from keyed
),

begun as (
    select
        prefix.frames,
        min(placed.from_bytes) as from_bytes
    from prefix
    inner join placed on prefix.path_id = placed.path_id
    group by prefix.frames
)

select
    row_number() over (order by node.depth_ix, begun.from_bytes) - 1 as node_id,
    node.depth_ix,
    node.frames[-1].frame as frame,
    regexp_replace(node.frames[-1].frame, '^.*/([^/]*:\d+ )', '\1') as label,
    node.frames[-1].origin as origin,
    begun.from_bytes::bigint as from_bytes,
    (begun.from_bytes + node.requested_bytes)::bigint as to_bytes,
    node.requested_bytes,
    node.allocation_count,
    main_bucket.bucket
from node
inner join begun on node.frames = begun.frames
inner join main_bucket on node.frames = main_bucket.frames
where node.requested_bytes > 0
qualify node.requested_bytes * 1000 >= max(node.requested_bytes) over ()
order by node_id
limit 4000
