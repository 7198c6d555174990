-- One allocation that the program of one device holds after any event, with all it can be grouped by, as text.
-- layer: ledger
-- grain: allocation_id
-- reads: alive_at, allocation, stack_label, allocation_module, allocation_layer, allocation_op, allocation_tensor, pool_label
-- parameters: of_device, at_event_ix
--   allocation_id: the allocation
--   requested_bytes: what was asked for
--   held_bytes: the block given out
--   bucket: its bucket
--   evidence: what its bucket rests on
--   rule: the rule that put it there
--   phase: the phase it was born in
--   step: the step it was born in
--   module: the module it was born in or belongs to, where the recording names modules
--   name: the name of the parameter, or other tensor, where the recorder's roll has it
--   layer: the number of its layer, told by the order of equal stacks
--   operator: the aten operator that asked, by its stack or else by the recorder's op log
--   node: the autograd node that asked
--   user_line: the nearest line of the user's own code
--   stack: who asked, and the stack's number
--   library: who made the request beneath the framework
--   stream: its stream
--   pool: its pool, and whose it is where it is not the default one
with held as (
    select
        alive.allocation_id,
        alive.requested_bytes,
        alive.held_bytes,
        allocation.phase,
        allocation.step,
        allocation.stack_id,
        allocation.stream,
        allocation.pool,
        alive.bucket,
        alive.evidence,
        alive.rule_id
    from alive_at(of_device, at_event_ix) as alive
    inner join allocation on alive.allocation_id = allocation.allocation_id
    where not alive.is_pending
)

select
    held.allocation_id,
    held.requested_bytes,
    held.held_bytes,
    held.bucket,
    held.evidence,
    held.rule_id as rule,
    held.phase,
    held.step::varchar as step,
    allocation_module.module,
    allocation_tensor.name,
    allocation_layer.layer_ix::varchar as layer,
    coalesce(stack_label.operator, allocation_op.operator_name) as operator,
    stack_label.autograd_node as node,
    stack_label.user_frame as user_line,
    case when held.stack_id is not null then format('{} (stack {})', coalesce(stack_label.requested_by, 'no frame'), held.stack_id) end as stack,
    stack_label.library,
    held.stream::varchar as stream,
    held.pool || case when pool_label.pool_kind <> 'default' then ' ' || pool_label.pool_kind else '' end as pool
from held
left join stack_label on held.stack_id = stack_label.stack_id
left join allocation_module on held.allocation_id = allocation_module.allocation_id
left join allocation_layer on held.allocation_id = allocation_layer.allocation_id
left join pool_label on held.pool = pool_label.pool
left join allocation_op on held.allocation_id = allocation_op.allocation_id
left join allocation_tensor on held.allocation_id = allocation_tensor.allocation_id
