-- One allocation, and everything a bucket rule may look at.
-- layer: label
-- grain: allocation_id
-- reads: allocation, stack_label
--   allocation_id: the allocation
--   device: the device
--   stack_id: the stack that allocated it
--   requested_bytes: what was asked for
--   origin: recorded, or opening when it is older than the recording
--   phase: the phase it was born in
--   free_phase: the phase it was dropped in; of its twin in another step where the recording ends before it is
--   lifetime: momentary (dropped in the phase and step of its birth), later_phase (in the same step), later_step, kept (alive when the recording ends) or unknown (born before it began, without a stack)
--   is_twin_lifetime: whether free_phase and lifetime are those of its twin, the same allocation in another step
--   has_stack: whether a stack was recorded for it
--   has_cpp: whether its stack has C++ frames
--   roles: what the frames of its stack are doing, see frame_role
--   free_roles: what the frames of the stack that dropped it are doing; empty where the recorder kept none of its own
--   library: whose workspace it is
--   autograd_node: the innermost autograd node running
--   operator: the innermost aten operator that does more than make room
--   outer_operator: the outermost aten operator
--   module_line: for a module that is moved: parameter or buffer, told by the line of torch's Module._apply
--   size_like: loss, where it has the bytes of the largest allocation of a loss; workspace, where it has the bytes of a cuBLAS workspace
with recorder as (
    -- below context="all" a free carries its allocation's stack, which tells nothing about the free
    select
        device,
        coalesce(bool_or(free_stack_id <> stack_id), false) as has_free_stacks
    from allocation
    group by device
),


ranked as (
    select
        allocation.*,
        -- the how-manyth allocation of its stack, size and phase in its step: its twin in another step has the same rank
        row_number() over (
            partition by
                allocation.device, allocation.step, allocation.phase, allocation.stack_id, allocation.requested_bytes
            order by allocation.birth_event_ix
        ) as rank_in_step
    from allocation
),

lived as (
    select
        ranked.* exclude (phase),
        -- one older than the recording has only its stack to tell the phase of its birth
        coalesce(ranked.phase, case when ranked.birth_event_ix is null then stack_label.phase end) as phase,
        case
            when ranked.free_requested_event_ix is null then 'kept'
            when ranked.birth_event_ix is null and stack_label.phase is null then 'unknown'
            when ranked.birth_event_ix is not null and ranked.free_step is distinct from ranked.step then 'later_step'
            when ranked.free_phase is distinct from coalesce(ranked.phase, stack_label.phase) then 'later_phase'
            else 'momentary'
        end as lifetime
    from ranked
    left join stack_label on ranked.stack_id = stack_label.stack_id
),

-- what the recording's end cut off, told by the same allocation in an earlier step of the recording
twin as (
    select
        device,
        phase,
        stack_id,
        requested_bytes,
        rank_in_step,
        arg_max(free_phase, step) as free_phase,
        arg_max(lifetime, step) as lifetime
    from lived
    where lifetime in ('momentary', 'later_phase', 'later_step') and step is not null
    group by all
),

last_step as (
    select
        device,
        max(step) as step
    from lived
    group by device
),

completed as (
    select
        lived.*,
        lived.lifetime = 'kept' and twin.lifetime is not null and lived.step = last_step.step as is_twin_lifetime,
        twin.free_phase as twin_free_phase,
        twin.lifetime as twin_lifetime
    from lived
    left join last_step on lived.device = last_step.device
    left join twin
        on
            lived.lifetime = 'kept'
            and lived.device = twin.device
            and lived.phase is not distinct from twin.phase
            and lived.stack_id is not distinct from twin.stack_id
            and lived.requested_bytes = twin.requested_bytes
            and lived.rank_in_step = twin.rank_in_step
),

-- torch's Module._apply treats a module's children first, then its parameters, then its buffers: of the lines seen
-- under one recording, the lower one made parameters and the higher one buffers
apply_lines as (
    select
        count(distinct stack_label.apply_line) as line_count,
        min(stack_label.apply_line) as parameter_line
    from completed
    inner join stack_label on completed.stack_id = stack_label.stack_id
    where list_contains(stack_label.roles, 'module_convert')
),

loss_size as (
    select distinct
        completed.device,
        max(completed.requested_bytes) over (partition by completed.device, completed.step) as requested_bytes
    from completed
    inner join stack_label on completed.stack_id = stack_label.stack_id
    where list_contains(stack_label.roles, 'loss') and completed.phase = 'forward'
)

select
    completed.allocation_id,
    completed.device,
    completed.stack_id,
    completed.requested_bytes,
    case when completed.birth_event_ix is null then 'opening' else 'recorded' end as origin,
    completed.phase,
    case when completed.is_twin_lifetime then completed.twin_free_phase else completed.free_phase end as free_phase,
    case when completed.is_twin_lifetime then completed.twin_lifetime else completed.lifetime end as lifetime,
    completed.is_twin_lifetime,
    completed.stack_id is not null as has_stack,
    coalesce(stack_label.has_cpp, false) as has_cpp,
    coalesce(stack_label.roles, []) as roles,
    case when recorder.has_free_stacks then coalesce(free_label.roles, []) else [] end as free_roles,
    stack_label.library,
    stack_label.autograd_node,
    stack_label.operator,
    stack_label.outer_operator,
    case
        when list_contains(stack_label.roles, 'module_convert')
            then case when stack_label.apply_line > apply_lines.parameter_line then 'buffer' else 'parameter' end
    end as module_line,
    case
        when loss_size.requested_bytes is not null then 'loss'
        when completed.requested_bytes in (8519680, 33554432) then 'workspace'
    end as size_like
from completed
inner join recorder on completed.device = recorder.device
cross join apply_lines
left join stack_label on completed.stack_id = stack_label.stack_id
left join stack_label as free_label on completed.free_stack_id = free_label.stack_id
left join loss_size on completed.device = loss_size.device and completed.requested_bytes = loss_size.requested_bytes
