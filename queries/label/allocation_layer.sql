-- One allocation of a repeated layer, numbered from the order of equal stacks within one pass, so that layers need no
-- names: a stack seen 24 times in a pass of 12 layers is twice in each.
-- layer: label
-- grain: allocation_id
-- reads: allocation, span, stack
--   allocation_id: the allocation
--   layer_ix: the layer, counted from 0 in the order of the forward; backward and its stacks count down
--   layer_count: layers of the pass
with born as (
    -- every allocation first: DuckDB joins a few rows with a loop, and would take these for a few after a filter
    select
        allocation.allocation_id,
        allocation.device,
        allocation.stack_id,
        allocation.birth_event_ix,
        allocation.requested_bytes,
        span.phase,
        span.begin_event_ix
    from allocation
    asof left join span
        on allocation.device = span.device and allocation.birth_event_ix >= span.begin_event_ix
),

passed as (
    select born.*
    from born
    inner join stack on born.stack_id = stack.stack_id
    where stack.depth_count > 0 and born.phase in ('forward', 'backward')
),

seen as (
    select
        device,
        begin_event_ix,
        stack_id,
        count(*) as seen_count,
        sum(requested_bytes) as requested_bytes
    from passed
    group by device, begin_event_ix, stack_id
    having count(*) > 1
),

seen_often as (
    select
        device,
        begin_event_ix,
        seen_count,
        sum(requested_bytes) as requested_bytes
    from seen
    group by device, begin_event_ix, seen_count
),

-- a number of layers explains the stacks that are seen that often, or a multiple of it
explained as (
    select
        candidate.device,
        candidate.begin_event_ix,
        candidate.seen_count as layer_count,
        sum(seen_often.requested_bytes) as requested_bytes
    from seen_often as candidate
    inner join seen_often
        on
            candidate.device = seen_often.device
            and candidate.begin_event_ix = seen_often.begin_event_ix
            and seen_often.seen_count % candidate.seen_count = 0
    group by all
),

-- the largest number that explains nearly as many bytes as the best one: 2 explains what 12 does
chosen as (
    select
        device,
        begin_event_ix,
        max(layer_count) as layer_count
    from (
        select
            *,
            max(requested_bytes) over (partition by device, begin_event_ix) as best_bytes
        from explained
    )
    where requested_bytes * 10 >= best_bytes * 9
    group by device, begin_event_ix
),

ordered as (
    select
        passed.allocation_id,
        passed.phase,
        chosen.layer_count,
        seen.seen_count,
        row_number() over (
            partition by passed.device, passed.begin_event_ix, passed.stack_id
            order by passed.birth_event_ix
        ) - 1 as seen_ix
    from passed
    inner join seen
        on passed.device = seen.device and passed.begin_event_ix = seen.begin_event_ix and passed.stack_id = seen.stack_id
    inner join chosen on passed.device = chosen.device and passed.begin_event_ix = chosen.begin_event_ix
    where seen.seen_count % chosen.layer_count = 0
)

select
    allocation_id,
    (
        case
            when phase = 'forward' then seen_ix // (seen_count // layer_count)
            else layer_count - 1 - seen_ix // (seen_count // layer_count)
        end
    )::bigint as layer_ix,
    layer_count::bigint as layer_count
from ordered
