-- What one stack's allocations hold at the beginning of one step.
-- layer: ledger
-- grain: device, stack_id, size_bytes, step
-- reads: allocation, stack, step_begin
--   device: the device
--   stack_id: the stack that allocated them; null where none was recorded
--   size_bytes: what each of them asked for, where no stack tells them apart; null otherwise
--   step: the step that begins
--   moment_ix: see step_begin
--   moment_count: see step_begin
--   requested_bytes: bytes asked for
--   held_bytes: bytes of their blocks
--   allocation_count: number of allocations; 0 where the stack holds nothing then
with survivor as (
    select
        allocation.device,
        case when stack.depth_count > 0 then allocation.stack_id end as stack_id,
        case when coalesce(stack.depth_count, 0) = 0 then allocation.requested_bytes end as size_bytes,
        coalesce(allocation.birth_event_ix, -1) as birth_event_ix,
        allocation.free_requested_event_ix,
        allocation.requested_bytes,
        allocation.held_bytes
    from allocation
    left join stack on allocation.stack_id = stack.stack_id
    where
        not allocation.is_pending_at_start
        and (
            allocation.free_requested_event_ix is null or allocation.birth_event_ix is null
            or allocation.free_step is distinct from allocation.step or allocation.step is null
        )
),

held as (
    select
        survivor.device,
        survivor.stack_id,
        survivor.size_bytes,
        step_begin.step,
        sum(survivor.requested_bytes) as requested_bytes,
        sum(survivor.held_bytes) as held_bytes,
        count(*) as allocation_count
    from survivor
    inner join step_begin
        on
            survivor.device = step_begin.device
            and survivor.birth_event_ix < step_begin.event_ix
            and coalesce(survivor.free_requested_event_ix, step_begin.event_ix) >= step_begin.event_ix
    group by all
),

-- a stack that holds nothing at some of the moments stands there with 0
every_moment as (
    select
        holder.device,
        holder.stack_id,
        holder.size_bytes,
        step_begin.step,
        step_begin.moment_ix,
        step_begin.moment_count
    from (select distinct device, stack_id, size_bytes from held) as holder
    inner join step_begin on holder.device = step_begin.device
)

select
    every_moment.device,
    every_moment.stack_id,
    every_moment.size_bytes,
    every_moment.step,
    every_moment.moment_ix,
    every_moment.moment_count,
    coalesce(held.requested_bytes, 0)::bigint as requested_bytes,
    coalesce(held.held_bytes, 0)::bigint as held_bytes,
    coalesce(held.allocation_count, 0) as allocation_count
from every_moment
left join held
    on
        every_moment.device = held.device
        and every_moment.stack_id is not distinct from held.stack_id
        and every_moment.size_bytes is not distinct from held.size_bytes
        and every_moment.step = held.step
order by every_moment.device, every_moment.stack_id, every_moment.size_bytes, every_moment.step
