-- One allocation with all that is known of it, for a person who asks why it is there.
-- layer: report
-- grain: allocation_id
-- reads: allocation, allocation_bucket, allocation_layer, allocation_module, allocation_op, allocation_tensor, allocator_setting, bucket_rule, bucket, pool_label, stack_label
--   allocation_id: the allocation
--   device: the device
--   stream: the stream it was allocated on
--   pool: its pool
--   pool_kind: whose pool it is: default, graph or program, see pool_label
--   address: first address of its block
--   segment_address: first address of its segment
--   requested_bytes: what was asked for
--   held_bytes: the block given out
--   slack_bytes: what the block has beyond that
--   rounding_bytes: of the slack, what rounding up to a multiple of 512 bytes adds
--   unsplit_bytes: of the slack, the rest: the block was handed out whole because what would have been left was too little to split off, or a setting rounds further
--   is_held_known: whether held_bytes is the block's own size
--   is_rounded_further: whether roundup_power2_divisions was set, so that unsplit_bytes may be rounding as well
--   birth_event_ix: its alloc event; null when older than the recording
--   free_requested_event_ix: when the program dropped it; null when it never did
--   death_event_ix: when its block went back to the pool; null when it never did
--   birth_us: time of its alloc event
--   death_us: time its block went back to the pool
--   step: the step it was born in
--   phase: the phase it was born in
--   phase_evidence: what says so
--   free_step: the step it was dropped in
--   free_phase: the phase it was dropped in
--   requested_by: who asked
--   autograd_node: the autograd node that asked
--   operator: the operator that asked, by its stack or else by the recorder's op log
--   user_frame: the line of the user's own code
--   module: the module it was born in or belongs to, where the recording names modules
--   tensor_role: parameter, buffer, gradient or optimizer_state, where the recorder's roll names it
--   tensor_name: its name there
--   tensor_count: tensors of the roll that share it
--   shape: its shape, as JSON, where the recorder's roll or op log says it
--   dtype: its dtype, where they do
--   logged_operator: the call that made it, where the recorder's op log has it: aten.mm.default
--   input_shapes: shapes of the tensors given to that call, as JSON
--   layer_ix: the number of its layer, told by the order of equal stacks; null outside of repeated layers
--   layer_count: the number of such layers
--   freed_by: who dropped it, where the recorder kept that
--   bucket: its bucket
--   bucket_meaning: what belongs in that bucket
--   rule_id: the rule that put it there
--   rule_why: why that rule says so
--   evidence: what the rule rests on
--   sibling_count: allocations with the same stack, itself included
--   sibling_bytes: what they asked for together
--   stack_id: the stack that allocated it
--   free_stack_id: the stack that dropped it
with sibling as (
    select
        device,
        stack_id,
        count(*) as sibling_count,
        sum(requested_bytes) as sibling_bytes
    from allocation
    group by device, stack_id
)

select
    allocation.allocation_id,
    allocation.device,
    allocation.stream,
    allocation.pool,
    pool_label.pool_kind,
    allocation.address,
    allocation.segment_address,
    allocation.requested_bytes,
    allocation.held_bytes,
    allocation.held_bytes - allocation.requested_bytes as slack_bytes,
    least(
        allocation.held_bytes - allocation.requested_bytes,
        greatest((allocation.requested_bytes + 511) // 512 * 512, 512) - allocation.requested_bytes
    ) as rounding_bytes,
    greatest(
        allocation.held_bytes - greatest((allocation.requested_bytes + 511) // 512 * 512, 512), 0
    ) as unsplit_bytes,
    allocation.is_held_known,
    exists (
        select 1
        from allocator_setting
        where allocator_setting.key = 'roundup_power2_divisions' and regexp_matches(allocator_setting.value, ':\s*"?[1-9]')
    ) as is_rounded_further,
    allocation.birth_event_ix,
    allocation.free_requested_event_ix,
    allocation.death_event_ix,
    allocation.birth_us,
    allocation.death_us,
    allocation.step,
    allocation.phase,
    allocation.phase_evidence,
    allocation.free_step,
    allocation.free_phase,
    stack_label.requested_by,
    stack_label.autograd_node,
    coalesce(stack_label.operator, allocation_op.operator_name) as operator,
    stack_label.user_frame,
    allocation_module.module,
    allocation_tensor.role as tensor_role,
    allocation_tensor.name as tensor_name,
    allocation_tensor.tensor_count,
    coalesce(allocation_tensor.shape, allocation_op.shape) as shape,
    coalesce(allocation_tensor.dtype, allocation_op.dtype) as dtype,
    allocation_op.operator as logged_operator,
    allocation_op.input_shapes,
    allocation_layer.layer_ix,
    allocation_layer.layer_count,
    case
        when allocation.free_stack_id is distinct from allocation.stack_id
            then coalesce(
                free_label.released_node,
                case when list_contains(free_label.roles, 'input_buffer') then 'InputBuffer::add' end,
                free_label.requested_by,
                case when list_contains(free_label.roles, 'engine') then 'the autograd engine' end
            )
    end as freed_by,
    allocation_bucket.bucket,
    bucket.meaning as bucket_meaning,
    allocation_bucket.rule_id,
    bucket_rule.why as rule_why,
    allocation_bucket.evidence,
    sibling.sibling_count,
    sibling.sibling_bytes::bigint as sibling_bytes,
    allocation.stack_id,
    allocation.free_stack_id
from allocation
inner join allocation_bucket on allocation.allocation_id = allocation_bucket.allocation_id
inner join bucket_rule on allocation_bucket.rule_id = bucket_rule.rule_id
inner join bucket on allocation_bucket.bucket = bucket.bucket
inner join sibling
    on allocation.device = sibling.device and allocation.stack_id is not distinct from sibling.stack_id
left join pool_label on allocation.pool = pool_label.pool
left join allocation_module on allocation.allocation_id = allocation_module.allocation_id
left join allocation_op on allocation.allocation_id = allocation_op.allocation_id
left join allocation_tensor on allocation.allocation_id = allocation_tensor.allocation_id
left join allocation_layer on allocation.allocation_id = allocation_layer.allocation_id
left join stack_label on allocation.stack_id = stack_label.stack_id
left join stack_label as free_label on allocation.free_stack_id = free_label.stack_id
