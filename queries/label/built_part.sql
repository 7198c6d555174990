-- One allocation that was kept from before the first step on and that no module's move explains, and what it became: a
-- parameter where the backward makes more gradients of its bytes than other parameters account for; else a buffer where
-- a module's constructor or the line that made parameters made it too, and a copy where it was copied. Without a backward
-- a constructor's buffers are what it fills, and the rest is the model where nothing else is, and else what it is given.
-- layer: label
-- grain: allocation_id
-- reads: allocation, stack_label, stack_frame, frame, frame_label, gradient_size
--   allocation_id: the allocation
--   built_as: parameter, buffer, copy or input; null where the recording cannot tell
with worked as (
    select
        allocation.device,
        max(allocation.birth_event_ix) filter (where allocation.phase in ('forward', 'backward', 'optimizer')) as last_event_ix,
        min(allocation.step) as first_step,
        bool_or(list_contains(stack_label.roles, 'module_call')) as has_modules,
        bool_or(allocation.phase = 'backward') as is_training,
        min(allocation.birth_event_ix) filter (where list_contains(stack_label.roles, 'module_call')) as first_call_event_ix
    from allocation
    inner join stack_label on allocation.stack_id = stack_label.stack_id
    group by allocation.device
),

-- what lives until the work is done; the program may let go of everything after it
kept as (
    select
        allocation.device,
        allocation.allocation_id,
        allocation.requested_bytes,
        allocation.stack_id,
        stack_label.apply_line,
        list_contains(stack_label.roles, 'module_convert') as is_moved,
        list_contains(stack_label.roles, 'module_init') as is_in_constructor,
        list_contains(stack_label.roles, 'deepcopy') as is_copied,
        regexp_full_match(coalesce(stack_label.operator, ''), '(zeros|ones|arange|full|tensor|scalar_tensor|eye|tril|triu)\w*') as is_filled
    from allocation
    inner join worked on allocation.device = worked.device
    inner join stack_label on allocation.stack_id = stack_label.stack_id
    where
        allocation.birth_event_ix is not null
        -- a program without modules has its weights in what looks like its first forward
        and (
            allocation.step is null or list_contains(stack_label.roles, 'deepcopy')
            or (not worked.has_modules and allocation.step = worked.first_step)
        )
        and (worked.is_training or allocation.birth_event_ix < worked.first_call_event_ix)
        and coalesce(allocation.free_requested_event_ix > worked.last_event_ix, true)
        and allocation.phase in ('load', 'data', 'forward', 'zero_grad', 'other')
        and (stack_label.has_python or stack_label.has_cpp)
        and not list_has_any(
            stack_label.roles,
            [
                'module_shard', 'optimizer', 'optimizer_init', 'cublas_workspace', 'cublaslt_workspace', 'cudnn', 'communication',
                'ddp_bucket', 'fsdp_buffer', 'nccl', 'autotune', 'kv_cache', 'loss', 'engine', 'module_call'
            ]
        )
),

-- torch's Module._apply treats parameters before buffers, on a lower line; its modules make parameters without filling them
told as (
    select
        *,
        case
            when is_moved then apply_line = min(apply_line) over (partition by device, is_moved)
            else is_in_constructor and not is_filled
        end as is_known
    from kept
),

known as (
    select
        device,
        requested_bytes,
        count(*) as parameter_count
    from told
    where is_known
    group by device, requested_bytes
),

-- the rest: made by the program's own lines, filled in a module's constructor as buffers and some parameters are, or copied
open_end as (
    select
        device,
        allocation_id,
        requested_bytes,
        stack_id,
        is_in_constructor,
        is_copied,
        is_filled
    from told
    where not is_moved and not is_known
),

open_size as (
    select
        device,
        requested_bytes,
        count(*) filter (where not is_copied) as made_count,
        count(*) filter (where is_copied) as copied_count
    from open_end
    group by device, requested_bytes
),

-- gradients that no known parameter accounts for are of what was made, and only then of what was copied: layers are
-- copied too
sized as (
    select
        open_size.device,
        open_size.requested_bytes,
        open_size.made_count,
        open_size.copied_count,
        coalesce(gradient_size.gradient_count, 0) - coalesce(known.parameter_count, 0) as missing_count
    from open_size
    left join gradient_size on open_size.device = gradient_size.device and open_size.requested_bytes = gradient_size.requested_bytes
    left join known on open_size.device = known.device and open_size.requested_bytes = known.requested_bytes
),

-- a constructor of the program's own modules: one that calls constructors of torch's
constructor as (
    select distinct frame_label.file
    from stack_label
    inner join stack_frame on stack_label.stack_id = stack_frame.stack_id
    inner join frame on stack_frame.frame_id = frame.frame_id
    inner join frame_label on stack_frame.frame_id = frame_label.frame_id
    where list_contains(stack_label.roles, 'module_init') and frame_label.origin = 'user' and frame.name = '__init__'
),

constructed as (
    select distinct stack_frame.stack_id
    from stack_frame
    inner join frame on stack_frame.frame_id = frame.frame_id
    inner join frame_label on stack_frame.frame_id = frame_label.frame_id
    inner join constructor on frame_label.file = constructor.file
    where frame.name = '__init__'
),

judged as (
    select
        open_end.allocation_id,
        open_end.stack_id,
        open_end.is_in_constructor or constructed.stack_id is not null as is_constructed,
        case
            when worked.is_training and open_end.is_copied and sized.missing_count >= sized.made_count + sized.copied_count then 'parameter'
            when worked.is_training and open_end.is_copied and sized.missing_count <= sized.made_count then 'copy'
            when worked.is_training and not open_end.is_copied and sized.missing_count >= sized.made_count then 'parameter'
            when worked.is_training and not open_end.is_copied and sized.missing_count <= 0 then 'untrained'
            when worked.is_training or open_end.is_copied then null
            when open_end.is_in_constructor or constructed.stack_id is not null
                then case when open_end.is_filled then 'buffer' else 'parameter' end
            when open_end.device in (select known.device from known) then 'input'
            else 'parameter'
        end as verdict
    from open_end
    inner join worked on open_end.device = worked.device
    inner join sized on open_end.device = sized.device and open_end.requested_bytes = sized.requested_bytes
    left join constructed on open_end.stack_id = constructed.stack_id
)

select
    allocation_id,
    case
        when verdict <> 'untrained' then verdict
        when is_constructed or stack_id in (select beside.stack_id from judged as beside where beside.verdict = 'parameter') then 'buffer'
    end as built_as
from judged
order by allocation_id
