-- One allocation that was made in a named module or belongs to one, by the recording's own word.
-- layer: label
-- grain: allocation_id
-- reads: allocation, allocation_tensor, trace_event, event_mark, annotation_window
--   allocation_id: the allocation
--   module: the module's path, such as transformer.h.0.attn
--   pass: forward, recompute or backward: whose pass through the module it was; null where it only belongs to it
--   op_ix: the operator's number in the op log, where the recording has one
--   module_evidence: what says so: user_metadata, annotation for a range named module:PATH, or roll for a tensor that the recorder names
with marked as (
    select
        allocation.allocation_id,
        event_mark.module,
        event_mark.pass,
        event_mark.op_ix
    from allocation
    inner join trace_event
        on allocation.device = trace_event.device and allocation.birth_event_ix = trace_event.event_ix
    inner join event_mark on trace_event.user_metadata = event_mark.user_metadata
    where event_mark.module is not null
),

module_window as (
    select
        device,
        begin_annotation_ix,
        begin_event_ix,
        end_event_ix,
        regexp_extract(name, '^module:(.+)$', 1) as module
    from annotation_window
    where name like 'module:%' and begin_event_ix is not null
),

-- of the ranges open at its birth the innermost is the one that began last
ranged as (
    select
        allocation.allocation_id,
        arg_max(module_window.module, module_window.begin_annotation_ix) as module
    from allocation
    inner join module_window
        on
            allocation.device = module_window.device
            and allocation.birth_event_ix >= module_window.begin_event_ix
            and allocation.birth_event_ix < coalesce(module_window.end_event_ix, allocation.birth_event_ix + 1)
    group by allocation.allocation_id
)

select
    allocation_id,
    module,
    pass,
    op_ix,
    'user_metadata' as module_evidence
from marked
union all
select
    ranged.allocation_id,
    ranged.module,
    'forward' as pass,
    null as op_ix,
    'annotation' as module_evidence
from ranged
anti join marked on ranged.allocation_id = marked.allocation_id
union all
select
    allocation_tensor.allocation_id,
    allocation_tensor.module,
    null as pass,
    null as op_ix,
    'roll' as module_evidence
from allocation_tensor
anti join marked on allocation_tensor.allocation_id = marked.allocation_id
anti join ranged on allocation_tensor.allocation_id = ranged.allocation_id
where allocation_tensor.module is not null
