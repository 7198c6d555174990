-- One allocation that the recorder's op log tells the operator of, and, where it is one of that call's outputs, its shape.
-- layer: label
-- grain: allocation_id
-- reads: placement, trace_event, event_mark, op
-- stored: yes
--   allocation_id: the allocation
--   op_ix: number of the call
--   operator: the operator and its overload, as the log has it: aten.mm.default
--   operator_name: the same as stacks have it: mm, add_Tensor
--   input_shapes: shapes of the tensors given to it, as JSON
--   output_ix: which of its outputs; null for what it allocated and did not return
--   shape: that output's shape, as JSON
--   dtype: that output's dtype
--   op_evidence: what says so: user_metadata on its event, or time where the call's output had its address and bytes when it returned
with marked as (
    select
        placement.placement_id as allocation_id,
        placement.device,
        placement.address,
        event_mark.op_ix
    from placement
    inner join trace_event
        on placement.device = trace_event.device and placement.birth_event_ix = trace_event.event_ix
    inner join event_mark on trace_event.user_metadata = event_mark.user_metadata
    where event_mark.op_ix is not null
),

called as (
    select
        op_ix,
        min_by({'operator': operator, 'input_shapes': input_shapes}, op_row_ix) as call
    from op
    group by op_ix
),

returned as (
    select
        op.*
    from op
    where op.address is not null and op.device is not null
),

by_mark as (
    select
        marked.allocation_id,
        marked.op_ix,
        called.call.operator as operator,
        called.call.input_shapes as input_shapes,
        min_by({'output_ix': returned.output_ix, 'shape': returned.shape, 'dtype': returned.dtype}, returned.op_row_ix)
            filter (where returned.op_row_ix is not null) as output
    from marked
    inner join called on marked.op_ix = called.op_ix
    left join returned
        on marked.op_ix = returned.op_ix and marked.device = returned.device and marked.address = returned.address
    group by all
),

-- the newest allocation at the output's address when the call had returned, if it has its bytes and was still held
timed as (
    select
        placement.placement_id as allocation_id,
        returned.op_ix,
        returned.operator,
        returned.input_shapes,
        returned.op_row_ix,
        {'output_ix': returned.output_ix, 'shape': returned.shape, 'dtype': returned.dtype} as output
    from returned
    asof inner join placement
        on
            returned.device = placement.device
            and returned.address = placement.address
            and returned.end_us >= placement.birth_us
    where
        placement.requested_bytes = returned.storage_bytes
        and (placement.free_requested_us is null or placement.free_requested_us >= returned.end_us)
),

by_time as (
    select
        timed.allocation_id,
        min_by(timed, timed.op_row_ix) as told
    from timed
    anti join by_mark on timed.allocation_id = by_mark.allocation_id
    group by timed.allocation_id
),

joined as (
    select
        allocation_id,
        op_ix,
        operator,
        input_shapes,
        output,
        'user_metadata' as op_evidence
    from by_mark
    union all
    select
        allocation_id,
        told.op_ix,
        told.operator,
        told.input_shapes,
        told.output,
        'time' as op_evidence
    from by_time
)

select
    allocation_id,
    op_ix,
    operator,
    regexp_replace(regexp_replace(operator, '^aten\.(\w+)\.default$', '\1'), '^aten\.(\w+)\.(\w+)$', '\1_\2') as operator_name,
    input_shapes,
    output.output_ix as output_ix,
    output.shape as shape,
    output.dtype as dtype,
    op_evidence
from joined
order by allocation_id
