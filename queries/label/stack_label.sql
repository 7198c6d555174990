-- One stack, and what its frames tell together.
-- layer: label
-- grain: stack_id
-- reads: stack, stack_frame, frame, frame_label
-- stored: yes
--   stack_id: the stack
--   requested_by: who asked, in one word: the autograd node, else the operator, else the Python frame
--   autograd_node: the innermost autograd node running, such as LogSoftmaxBackward0; null outside backward
--   released_node: the autograd node that lets go of what it had saved for backward
--   operator: the innermost aten operator that does more than make room, such as addmm; null where no C++ frame tells
--   outer_operator: the outermost aten operator, the one that the program or the node called
--   user_frame: the nearest frame of the user's own code, as file:line function
--   python_frame: the nearest Python frame of any origin, as file:line function
--   library: who made the request beneath the framework: cublas, cublaslt or cudnn for a workspace of their own; nccl, triton or inductor for what their code allocates
--   is_recomputed: whether a checkpointed forward is being run again
--   roles: what its frames are doing, see frame_role
--   apply_line: for a module that is moved, the line in torch's Module._apply that did it
--   phase: what the program was doing, as far as the stack alone can tell; unplaced for a call of the user's outside a module
--   has_python: whether it has a Python frame
--   has_cpp: whether it has a C++ frame
with flat as (
    select
        stack_frame.stack_id,
        stack_frame.depth_ix,
        frame.name,
        frame.line,
        frame_label.file,
        frame_label.language,
        frame_label.origin,
        frame_label.autograd_node,
        frame_label.released_node,
        frame_label.operator,
        frame_label.roles
    from stack_frame
    inner join frame on stack_frame.frame_id = frame.frame_id
    inner join frame_label on stack_frame.frame_id = frame_label.frame_id
),

told as (
    select
        stack_id,
        arg_min(autograd_node, depth_ix) filter (where autograd_node is not null) as autograd_node,
        any_value(released_node) as released_node,
        arg_min(operator, depth_ix) filter (
            where operator is not null
            and not regexp_matches(operator, '^(empty|resize|new_empty|zeros|ones|zero_|fill_|clone|contiguous|reshape|_to_copy|to_)')
        ) as working_operator,
        arg_min(operator, depth_ix) filter (where operator is not null and not regexp_matches(operator, '^(empty|resize)')) as any_operator,
        arg_max(operator, depth_ix) filter (where operator is not null) as outer_operator,
        arg_min(format('{}:{} {}', file, coalesce(line, 0), name), depth_ix) filter (where origin = 'user') as user_frame,
        arg_min(format('{}:{} {}', file, coalesce(line, 0), name), depth_ix) filter (where language = 'python') as python_frame,
        arg_min(line, depth_ix) filter (where list_contains(roles, 'module_apply')) as apply_line,
        bool_or(language = 'python') as has_python,
        bool_or(language = 'c++') as has_cpp
    from flat
    group by stack_id
),

played as (
    select
        stack_id,
        list(distinct role order by role) as roles
    from (select stack_id, unnest(roles) as role from flat)
    group by stack_id
),

recording as (
    select coalesce(bool_or(has_cpp), false) as has_cpp
    from told
)

select
    stack.stack_id,
    coalesce(told.autograd_node, told.working_operator, told.any_operator, told.user_frame, told.python_frame) as requested_by,
    told.autograd_node,
    told.released_node,
    coalesce(told.working_operator, told.any_operator) as operator,
    told.outer_operator,
    told.user_frame,
    told.python_frame,
    case
        when list_contains(coalesce(played.roles, []), 'cublas_workspace') then 'cublas'
        when list_contains(coalesce(played.roles, []), 'cublaslt_workspace') and not list_contains(played.roles, 'tensor') then 'cublaslt'
        when list_contains(coalesce(played.roles, []), 'cudnn') and not list_contains(played.roles, 'tensor') then 'cudnn'
        when list_contains(coalesce(played.roles, []), 'nccl') then 'nccl'
        when list_contains(coalesce(played.roles, []), 'triton') then 'triton'
        when list_contains(coalesce(played.roles, []), 'inductor') then 'inductor'
    end as library,
    list_contains(coalesce(played.roles, []), 'recompute') as is_recomputed,
    coalesce(played.roles, []) as roles,
    told.apply_line,
    case
        when list_contains(coalesce(played.roles, []), 'zero_grad') then 'zero_grad'
        when list_has_any(coalesce(played.roles, []), ['engine', 'recompute']) then 'backward'
        when list_has_any(coalesce(played.roles, []), ['optimizer', 'clip_grad']) then 'optimizer'
        when list_contains(coalesce(played.roles, []), 'backward_call') then 'backward'
        when list_contains(coalesce(played.roles, []), 'data_loader') then 'data'
        when list_contains(coalesce(played.roles, []), 'module_call') then 'forward'
        when list_has_any(coalesce(played.roles, []), ['module_convert', 'module_apply', 'module_init', 'module_shard']) then 'load'
        -- with Python stacks only, what has a stack without a frame ran on the autograd engine's own thread
        when stack.depth_count = 0 and not recording.has_cpp then 'backward'
        when told.has_python then 'unplaced'
    end as phase,
    coalesce(told.has_python, false) as has_python,
    coalesce(told.has_cpp, false) as has_cpp
from stack
cross join recording
left join told on stack.stack_id = told.stack_id
left join played on stack.stack_id = played.stack_id
order by stack.stack_id
