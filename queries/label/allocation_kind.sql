-- One kind of allocation: a distinct set of what bucket rules look at, and the rule that wins it.
-- layer: label
-- grain: allocation_kind_id
-- reads: allocation_life, stack_label, bucket_rule, stack_frame, frame, frame_label
-- stored: yes
--   allocation_kind_id: dense number
--   stack_id: the stack that allocated it
--   free_stack_id: the stack that dropped it; null where the recorder kept none of its own
--   origin: see allocation_life
--   phase: see allocation_life
--   free_phase: see allocation_life
--   lifetime: see allocation_life
--   size_like: see allocation_life
--   tensor_role: see allocation_life
--   roles: what the frames of its stack are doing, see frame_role
--   free_roles: what the frames of the stack that dropped it are doing
--   library: see stack_label
--   autograd_node: the innermost autograd node running
--   operator: the innermost aten operator that does more than make room
--   loaded_as: see allocation_life.module_part
--   module_part: parameter or buffer, for a module that is moved told by the line of torch's Module._apply; else loaded_as
--   allocation_count: allocations of this kind
--   rule_id: the rule that wins it, see bucket_rule
with kind as (
    select
        stack_id,
        free_stack_id,
        origin,
        phase,
        free_phase,
        lifetime,
        size_like,
        tensor_role,
        module_part as loaded_as,
        count(*) as allocation_count
    from allocation_life
    group by all
),

-- torch's Module._apply treats a module's children first, then its parameters, then its buffers: of the lines seen in
-- one recording, the lowest made parameters and a higher one buffers
apply_line as (
    select min(stack_label.apply_line) as parameter_line
    from kind
    inner join stack_label on kind.stack_id = stack_label.stack_id
    where list_contains(stack_label.roles, 'module_convert')
),

told as (
    select
        row_number() over (
            order by
                kind.stack_id, kind.free_stack_id, kind.origin, kind.phase, kind.free_phase, kind.lifetime, kind.size_like,
                kind.tensor_role, kind.loaded_as
        ) - 1 as allocation_kind_id,
        kind.*,
        coalesce(stack_label.roles, []) as roles,
        coalesce(free_label.roles, []) as free_roles,
        stack_label.library,
        stack_label.autograd_node,
        stack_label.operator,
        case
            when list_contains(stack_label.roles, 'module_convert')
                then case when stack_label.apply_line > apply_line.parameter_line then 'buffer' else 'parameter' end
            else kind.loaded_as
        end as module_part
    from kind
    cross join apply_line
    left join stack_label on kind.stack_id = stack_label.stack_id
    left join stack_label as free_label on kind.free_stack_id = free_label.stack_id
),

-- stacks with a frame that a rule asks for
framed as (
    select distinct
        bucket_rule.rule_id,
        stack_frame.stack_id
    from bucket_rule
    inner join frame_label
        on bucket_rule.frame is not null
    inner join frame on frame_label.frame_id = frame.frame_id
    inner join stack_frame on frame.frame_id = stack_frame.frame_id
    where
        regexp_matches(
            case
                when frame_label.language = 'python' then format('{}:{} {}', frame_label.file, coalesce(frame.line, 0), frame.name)
                else frame.name
            end,
            bucket_rule.frame
        )
),

judged as (
    select
        told.allocation_kind_id,
        arg_min(bucket_rule.rule_id, bucket_rule.priority) as rule_id
    from told
    inner join bucket_rule
        on
            (bucket_rule.role is null or list_has_any(told.roles, string_split(bucket_rule.role, '|')))
            and (bucket_rule.free_role is null or list_has_any(told.free_roles, string_split(bucket_rule.free_role, '|')))
            and (bucket_rule.tensor_role is null or regexp_full_match(told.tensor_role, bucket_rule.tensor_role))
            and (bucket_rule.library is null or regexp_full_match(told.library, bucket_rule.library))
            and (bucket_rule.phase is null or regexp_full_match(told.phase, bucket_rule.phase))
            and (bucket_rule.free_phase is null or regexp_full_match(told.free_phase, bucket_rule.free_phase))
            and (bucket_rule.lifetime is null or regexp_full_match(told.lifetime, bucket_rule.lifetime))
            and (bucket_rule.operator is null or regexp_full_match(told.operator, bucket_rule.operator))
            and (bucket_rule.module_part is null or regexp_full_match(told.module_part, bucket_rule.module_part))
            and (bucket_rule.size_like is null or regexp_full_match(told.size_like, bucket_rule.size_like))
            and (bucket_rule.origin is null or regexp_full_match(told.origin, bucket_rule.origin))
            and (bucket_rule.autograd_node is null or regexp_full_match(told.autograd_node, bucket_rule.autograd_node))
    left join framed on bucket_rule.rule_id = framed.rule_id and told.stack_id = framed.stack_id
    where bucket_rule.frame is null or framed.stack_id is not null
    group by told.allocation_kind_id
)

select
    told.allocation_kind_id,
    told.stack_id,
    told.free_stack_id,
    told.origin,
    told.phase,
    told.free_phase,
    told.lifetime,
    told.size_like,
    told.tensor_role,
    told.roles,
    told.free_roles,
    told.library,
    told.autograd_node,
    told.operator,
    told.loaded_as,
    told.module_part,
    told.allocation_count,
    judged.rule_id
from told
inner join judged on told.allocation_kind_id = judged.allocation_kind_id
order by told.allocation_kind_id
