-- One line of the account of one device after any event, by one or two of the columns of held_at; the second may be
-- null: from ledger_by(0, 3815, 'phase', 'bucket').
-- layer: ledger
-- grain: first_value, second_value
-- reads: held_at
-- parameters: of_device, at_event_ix, first_column, second_column
--   first_value: the value of the first column; null where the recording does not say
--   second_value: the value of the second column; null where there is none, or the recording does not say
--   requested_bytes: bytes asked for
--   held_bytes: bytes of their blocks
--   allocation_count: number of allocations
with valued as (
    select
        case first_column
            when 'bucket' then bucket
            when 'evidence' then evidence
            when 'rule' then rule
            when 'phase' then phase
            when 'step' then step
            when 'module' then module
            when 'name' then name
            when 'layer' then layer
            when 'operator' then operator
            when 'node' then node
            when 'user_line' then user_line
            when 'stack' then stack
            when 'library' then library
            when 'stream' then stream
            when 'pool' then pool
        end as first_value,
        case second_column
            when 'bucket' then bucket
            when 'evidence' then evidence
            when 'rule' then rule
            when 'phase' then phase
            when 'step' then step
            when 'module' then module
            when 'name' then name
            when 'layer' then layer
            when 'operator' then operator
            when 'node' then node
            when 'user_line' then user_line
            when 'stack' then stack
            when 'library' then library
            when 'stream' then stream
            when 'pool' then pool
        end as second_value,
        requested_bytes,
        held_bytes
    from held_at(of_device, at_event_ix)
)

select
    first_value,
    second_value,
    sum(requested_bytes)::bigint as requested_bytes,
    sum(held_bytes)::bigint as held_bytes,
    count(*) as allocation_count
from valued
group by first_value, second_value
order by requested_bytes desc, try_cast(first_value as bigint), first_value, second_value
