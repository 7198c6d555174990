-- One allocation of the load that no stack explains, and whether it became a parameter or a buffer: a parameter gets a
-- gradient of its size and, in the same order, optimizer state of its size; a buffer gets neither.
-- layer: label
-- grain: allocation_id
-- reads: allocation, stack, gradient_size
--   allocation_id: the allocation
--   module_part: parameter or buffer; null where the recording cannot tell
with loaded as (
    select
        allocation.device,
        allocation.allocation_id,
        allocation.requested_bytes,
        row_number() over (partition by allocation.device order by allocation.birth_event_ix) as load_ix
    from allocation
    left join stack on allocation.stack_id = stack.stack_id
    where
        allocation.phase = 'load' and coalesce(stack.depth_count, 0) = 0
        and allocation.free_phase is distinct from 'load'
),

trained_size as (
    select gradient_size.*
    from gradient_size
    where gradient_size.requested_bytes in (select loaded.requested_bytes from loaded)
),

state as (
    select
        allocation.device,
        allocation.requested_bytes,
        row_number() over (partition by allocation.device order by allocation.birth_event_ix) as state_ix,
        count(*) over (partition by allocation.device) as state_count
    from allocation
    inner join trained_size
        on allocation.device = trained_size.device and allocation.requested_bytes = trained_size.requested_bytes
    where
        allocation.phase = 'optimizer'
        and (allocation.free_phase is distinct from 'optimizer' or allocation.free_step is distinct from allocation.step)
),

trained as (
    select
        device,
        sum(gradient_count) as parameter_count
    from trained_size
    group by device
),

-- an optimizer keeps as many tensors for each parameter, one after the other: Adam two, SGD with momentum one
parameter as (
    select
        state.device,
        state.requested_bytes,
        state.state_ix // (state.state_count // trained.parameter_count) as parameter_ix
    from state
    inner join trained on state.device = trained.device
    where
        state.state_count % trained.parameter_count = 0
        and state.state_ix % (state.state_count // trained.parameter_count) = 0
),

-- both lists side by side: what was loaded and is not the next parameter is a buffer
walk as (
    with recursive step as (
        select distinct
            device,
            0::bigint as load_ix,
            0::bigint as parameter_ix,
            false as is_parameter
        from loaded
        union all
        select
            loaded.device,
            loaded.load_ix,
            step.parameter_ix + coalesce(loaded.requested_bytes = parameter.requested_bytes, false)::bigint as parameter_ix,
            coalesce(loaded.requested_bytes = parameter.requested_bytes, false) as is_parameter
        from step
        inner join loaded on step.device = loaded.device and step.load_ix + 1 = loaded.load_ix
        left join parameter on step.device = parameter.device and step.parameter_ix + 1 = parameter.parameter_ix
    )

    select
        device,
        load_ix,
        parameter_ix,
        is_parameter
    from step
),

-- the walk counts where it meets every parameter; parameter groups may have another order, and then only sizes tell
walked as (
    select
        walk.device,
        max(walk.parameter_ix) = max(trained.parameter_count) as is_whole
    from walk
    inner join trained on walk.device = trained.device
    group by walk.device
),

loaded_size as (
    select
        device,
        requested_bytes,
        count(*) as loaded_count
    from loaded
    group by device, requested_bytes
)

select
    loaded.allocation_id,
    case
        when walked.is_whole then case when walk.is_parameter then 'parameter' else 'buffer' end
        when walked.device is not null and trained_size.gradient_count is null then 'buffer'
        when trained_size.gradient_count >= loaded_size.loaded_count then 'parameter'
    end as module_part
from loaded
inner join walk on loaded.device = walk.device and loaded.load_ix = walk.load_ix
inner join loaded_size on loaded.device = loaded_size.device and loaded.requested_bytes = loaded_size.requested_bytes
left join walked on loaded.device = walked.device
left join trained_size on loaded.device = trained_size.device and loaded.requested_bytes = trained_size.requested_bytes
