-- One allocation's life as bucket rules see it: where it began, where it ended, and what it has the size of.
-- layer: label
-- grain: allocation_id
-- reads: allocation, allocation_tensor, stack, stack_label, load_part, built_part
-- stored: yes
--   allocation_id: the allocation
--   device: the device
--   stack_id: the stack that allocated it
--   free_stack_id: the stack that dropped it; null where the recorder kept none of its own
--   origin: recorded, or opening when it is older than the recording
--   phase: the phase it was born in
--   free_phase: the phase it was dropped in; of its twin in another step where the recording ends before it is
--   lifetime: momentary (dropped in the phase and step of its birth), later_phase (in the same step), later_step, kept (alive when the recording ends) or unknown (born before it began, without a stack)
--   is_twin_lifetime: whether free_phase and lifetime are those of its twin, the same allocation in another step
--   size_like: loss, where it has the bytes of the largest allocation of a loss in some step; workspace, where it has the bytes of a cuBLAS workspace, no telling stack, and no like in its phase; summand, where it is alive when the engine adds up two gradients of its bytes, and the last such to be born; parameter_set, where its stack made and kept as many as the model has parameters, of the same bytes each
--   tensor_role: parameter, buffer, gradient or optimizer_state, where the recorder's roll names it
--   module_part: parameter, buffer, copy or input, where its stack tells nothing and other allocations do, see load_part and built_part
with recorder as (
    -- below context="all" a free carries its allocation's stack, which tells nothing about the free
    select
        device,
        coalesce(bool_or(free_stack_id <> stack_id), false) as has_free_stacks
    from allocation
    group by device
),

lived as materialized (
    select
        allocation.allocation_id,
        allocation.device,
        allocation.stack_id,
        allocation.free_stack_id,
        allocation.requested_bytes,
        allocation.step,
        allocation.birth_event_ix,
        allocation.free_requested_event_ix,
        allocation.free_step,
        allocation.free_phase,
        -- one older than the recording has only its stack to tell the phase of its birth
        coalesce(allocation.phase, case when allocation.birth_event_ix is null then stack_label.phase end) as phase,
        case
            when allocation.free_requested_event_ix is null then 'kept'
            when allocation.birth_event_ix is null and stack_label.phase is null then 'unknown'
            when allocation.birth_event_ix is not null and allocation.free_step is distinct from allocation.step then 'later_step'
            when allocation.free_phase is distinct from coalesce(allocation.phase, stack_label.phase) then 'later_phase'
            else 'momentary'
        end as lifetime
    from allocation
    left join stack_label on allocation.stack_id = stack_label.stack_id
),

last_step as (
    select
        device,
        max(step) as step
    from lived
    group by device
),

cut_off as materialized (
    select lived.*
    from lived
    inner join last_step on lived.device = last_step.device and lived.step = last_step.step
    where lived.lifetime = 'kept'
),

-- the how-manyth allocation of its stack, size and phase in its step: its twin in another step has the same rank
ranked as materialized (
    select
        lived.allocation_id,
        lived.device,
        lived.phase,
        lived.stack_id,
        lived.requested_bytes,
        lived.step,
        lived.lifetime,
        lived.free_phase,
        row_number() over (
            partition by lived.device, lived.step, lived.phase, lived.stack_id, lived.requested_bytes
            order by lived.birth_event_ix
        ) as rank_in_step
    from lived
    semi join cut_off
        on
            lived.device = cut_off.device
            and lived.phase = cut_off.phase
            and lived.requested_bytes = cut_off.requested_bytes
            and lived.stack_id is not distinct from cut_off.stack_id
),

open_end as materialized (
    select ranked.*
    from ranked
    semi join cut_off on ranked.allocation_id = cut_off.allocation_id
),

-- what the recording's end cut off, told by the same allocation in an earlier step of the recording
twin as (
    select
        open_end.allocation_id,
        arg_max(ranked.free_phase, ranked.step) as free_phase,
        arg_max(ranked.lifetime, ranked.step) as lifetime
    from ranked
    inner join open_end
        on
            ranked.device = open_end.device
            and ranked.phase = open_end.phase
            and ranked.stack_id is not distinct from open_end.stack_id
            and ranked.requested_bytes = open_end.requested_bytes
            and ranked.rank_in_step = open_end.rank_in_step
            and ranked.step < open_end.step
    where ranked.lifetime in ('momentary', 'later_phase', 'later_step')
    group by open_end.allocation_id
),

loss_size as (
    select distinct
        device,
        requested_bytes
    from (
        select
            lived.device,
            lived.step,
            max(lived.requested_bytes) as requested_bytes
        from lived
        inner join stack_label on lived.stack_id = stack_label.stack_id
        where list_contains(stack_label.roles, 'loss') and lived.phase = 'forward'
        group by lived.device, lived.step
    )
),

-- a sum of two gradients that the engine made a new tensor for
sum_of_two as (
    select
        lived.device,
        lived.requested_bytes,
        lived.birth_event_ix
    from lived
    inner join stack_label on lived.stack_id = stack_label.stack_id
    where list_contains(stack_label.roles, 'input_buffer') and lived.birth_event_ix is not null
),

-- what the engine itself let go of, outside of any node: the gradients that it passed on
passed_on as (
    select
        lived.allocation_id,
        lived.device,
        lived.requested_bytes,
        lived.birth_event_ix,
        lived.free_requested_event_ix
    from lived
    inner join stack_label on lived.stack_id = stack_label.stack_id
    inner join stack_label as free_label on lived.free_stack_id = free_label.stack_id
    where
        lived.phase = 'backward' and lived.lifetime = 'momentary' and free_label.autograd_node is null
        and list_contains(free_label.roles, 'engine')
        and not list_has_any(free_label.roles, ['input_buffer', 'accumulate_grad'])
        and not list_contains(stack_label.roles, 'input_buffer')
        and exists (select 1 from sum_of_two)
),

-- of the two, the engine held the first one and lets go of it in the addition; the second was born last
summand as (
    select distinct passed_on.allocation_id
    from sum_of_two
    asof inner join passed_on
        on
            sum_of_two.device = passed_on.device
            and sum_of_two.requested_bytes = passed_on.requested_bytes
            and sum_of_two.birth_event_ix > passed_on.birth_event_ix
    where passed_on.free_requested_event_ix > sum_of_two.birth_event_ix
),

-- weights have such sizes too, 4,096 x 4,096 in two bytes for one: so the size tells only where no stack does, and of
-- what is kept alone, as a thread has one workspace a stream
workspace_size as (
    select lived.allocation_id
    from lived
    left join stack on lived.stack_id = stack.stack_id
    left join stack_label on lived.stack_id = stack_label.stack_id
    where
        lived.requested_bytes in (8519680, 33554432) and lived.birth_event_ix is not null and lived.lifetime = 'kept'
        and lived.phase is distinct from 'load' and lived.phase is distinct from 'optimizer'
        and not coalesce(stack_label.has_cpp, false)
        and not list_has_any(coalesce(stack_label.roles, []), ['module_convert', 'module_init', 'optimizer', 'data_loader'])
    qualify count(*) over (partition by lived.device, lived.requested_bytes, lived.phase, lived.stack_id) = 1
),

-- torch's Module._apply treats parameters before buffers, on a lower line
moved as (
    select
        lived.device,
        lived.requested_bytes,
        stack_label.apply_line = min(stack_label.apply_line) over (partition by lived.device) as is_parameter
    from lived
    inner join stack_label on lived.stack_id = stack_label.stack_id
    where lived.lifetime = 'kept' and list_contains(stack_label.roles, 'module_convert')
),

model as (
    select
        device,
        list(requested_bytes order by requested_bytes) as every_bytes
    from moved
    where is_parameter
    group by device
    having count(*) > 1
),

kept_by_stack as (
    select
        lived.device,
        lived.stack_id,
        list(lived.requested_bytes order by lived.requested_bytes) as every_bytes
    from lived
    inner join stack_label on lived.stack_id = stack_label.stack_id
    where lived.lifetime = 'kept' and not list_contains(stack_label.roles, 'module_convert')
    group by lived.device, lived.stack_id
),

-- state of an optimizer that the program wrote itself, which no role of a frame tells
parameter_set as (
    select
        kept_by_stack.device,
        kept_by_stack.stack_id
    from kept_by_stack
    inner join model on kept_by_stack.device = model.device and kept_by_stack.every_bytes = model.every_bytes
)

select
    lived.allocation_id,
    lived.device,
    lived.stack_id,
    case when recorder.has_free_stacks then lived.free_stack_id end as free_stack_id,
    case when lived.birth_event_ix is null then 'opening' else 'recorded' end as origin,
    lived.phase,
    case when twin.lifetime is null then lived.free_phase else twin.free_phase end as free_phase,
    coalesce(twin.lifetime, lived.lifetime) as lifetime,
    twin.lifetime is not null as is_twin_lifetime,
    case
        when loss_size.requested_bytes is not null then 'loss'
        when workspace_size.allocation_id is not null then 'workspace'
        when summand.allocation_id is not null then 'summand'
        when parameter_set.stack_id is not null and lived.lifetime = 'kept' then 'parameter_set'
    end as size_like,
    allocation_tensor.role as tensor_role,
    coalesce(load_part.module_part, built_part.built_as) as module_part
from lived
inner join recorder on lived.device = recorder.device
left join twin on lived.allocation_id = twin.allocation_id
left join loss_size on lived.device = loss_size.device and lived.requested_bytes = loss_size.requested_bytes
left join workspace_size on lived.allocation_id = workspace_size.allocation_id
left join summand on lived.allocation_id = summand.allocation_id
left join parameter_set on lived.device = parameter_set.device and lived.stack_id = parameter_set.stack_id
left join built_part on lived.allocation_id = built_part.allocation_id
left join load_part on lived.allocation_id = load_part.allocation_id
left join allocation_tensor on lived.allocation_id = allocation_tensor.allocation_id
order by lived.allocation_id
