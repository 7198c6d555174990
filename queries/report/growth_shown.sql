-- What one line of a drawn growth holds at the beginning of one step: the twelve stacks that change most, and the rest
-- together; of very many steps, as many as a picture can hold.
-- layer: report
-- grain: line_ix, step
-- reads: held_at_step, growth, stack_shown
-- parameters: of_device
--   line_ix: the line's place, that which changes most first
--   line: who asked and where, or how many stacks stand together
--   verdict: see the view growth; too few moments where fewer than three compare
--   stack_count: stacks that the line stands for
--   step: the step that begins
--   held_bytes: bytes of the blocks held then
--   change_bytes: held_bytes less those of the first moment
--   allocation_count: number of allocations held then
with held as materialized (
    select
        stack_id,
        size_bytes,
        step,
        moment_ix,
        moment_count,
        held_bytes,
        allocation_count
    from held_at_step
    where device = of_device
),

ranked as (
    select
        stack_id,
        size_bytes,
        arg_min(held_bytes, moment_ix) as first_bytes,
        row_number() over (
            order by max(held_bytes) - min(held_bytes) desc, max(held_bytes) desc, stack_id, size_bytes
        ) as place
    from held
    group by stack_id, size_bytes
),

named as (
    select
        ranked.stack_id,
        ranked.size_bytes,
        ranked.first_bytes,
        case when ranked.place <= 12 then ranked.place else 13 end as line_ix,
        case
            when ranked.place > 12 then null
            when ranked.stack_id is null then format('{:,} bytes each, no stack', ranked.size_bytes)
            else concat_ws(', ', stack_shown.requested_by, nullif(stack_shown.user_frame, stack_shown.requested_by))
        end as line,
        case when ranked.place <= 12 then coalesce(growth.verdict, 'too few moments') else 'the rest' end as verdict
    from ranked
    left join stack_shown on ranked.stack_id = stack_shown.stack_id
    left join growth
        on
            growth.device = of_device
            and ranked.stack_id is not distinct from growth.stack_id
            and ranked.size_bytes is not distinct from growth.size_bytes
)

select
    named.line_ix::bigint as line_ix,
    coalesce(any_value(named.line), format('{:,} more', count(*))) as line,
    any_value(named.verdict) as verdict,
    count(*) as stack_count,
    held.step,
    sum(held.held_bytes)::bigint as held_bytes,
    sum(held.held_bytes - named.first_bytes)::bigint as change_bytes,
    sum(held.allocation_count)::bigint as allocation_count
from held
inner join named
    on held.stack_id is not distinct from named.stack_id and held.size_bytes is not distinct from named.size_bytes
where held.moment_ix % (held.moment_count // 300 + 1) = 0 or held.moment_ix = held.moment_count - 1
group by named.line_ix, held.step
order by line_ix, held.step
