-- What one stack's allocations hold from step to step, and what can be said of it: no row where fewer than three
-- moments compare.
-- layer: report
-- grain: device, stack_id, size_bytes
-- reads: held_at_step, stack_label
--   device: the device
--   stack_id: the stack that allocated them; null where none was recorded
--   size_bytes: what each of them asked for, where no stack tells them apart
--   verdict: stays (the same at every moment), grows (never falls, and still rises in the later half), settles (rises in the earlier half only), shrinks, bursts (gains allocations at least twice in a row, and falls again) or varies
--   moment_count: moments compared
--   first_bytes: bytes of their blocks at the first moment
--   last_bytes: bytes of their blocks at the last moment
--   largest_bytes: the most at any moment
--   growth_bytes: what it rises from one moment to the next, on average from the first to the last
--   first_count: allocations at the first moment
--   last_count: allocations at the last moment
--   requested_by: who asked
--   user_frame: the line of the user's own code
with changed as (
    select
        *,
        held_bytes - lag(held_bytes) over by_moment as rise_bytes,
        allocation_count - lag(allocation_count) over by_moment as rise_count,
        lag(allocation_count) over by_moment - lag(allocation_count, 2) over by_moment as earlier_rise_count
    from held_at_step
    where moment_count >= 3
    window by_moment as (partition by device, stack_id, size_bytes order by moment_ix)
),

summed as (
    select
        device,
        stack_id,
        size_bytes,
        any_value(moment_count) as moment_count,
        arg_min(held_bytes, moment_ix) as first_bytes,
        arg_max(held_bytes, moment_ix) as last_bytes,
        max(held_bytes) as largest_bytes,
        arg_min(allocation_count, moment_ix) as first_count,
        arg_max(allocation_count, moment_ix) as last_count,
        coalesce(bool_or(rise_bytes > 0), false) as has_rise,
        coalesce(bool_or(rise_bytes < 0), false) as has_fall,
        coalesce(bool_or(rise_count > 0 and earlier_rise_count > 0), false) as has_long_rise,
        coalesce(bool_or(rise_bytes > 0 and moment_ix * 2 >= moment_count), false) as has_late_rise
    from changed
    group by device, stack_id, size_bytes
)

select
    summed.device,
    summed.stack_id,
    summed.size_bytes,
    case
        when not summed.has_rise and not summed.has_fall then 'stays'
        when not summed.has_rise then 'shrinks'
        when not summed.has_fall and summed.has_late_rise then 'grows'
        when not summed.has_fall then 'settles'
        when summed.has_long_rise then 'bursts'
        else 'varies'
    end as verdict,
    summed.moment_count,
    summed.first_bytes,
    summed.last_bytes,
    summed.largest_bytes,
    ((summed.last_bytes - summed.first_bytes) // (summed.moment_count - 1))::bigint as growth_bytes,
    summed.first_count,
    summed.last_count,
    stack_label.requested_by,
    stack_label.user_frame
from summed
left join stack_label on summed.stack_id = stack_label.stack_id
order by summed.device, growth_bytes desc, summed.largest_bytes desc, summed.stack_id, summed.size_bytes
