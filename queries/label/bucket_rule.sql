-- One rule that puts allocations in a bucket. Every condition that is not null must hold; of the rules that hold,
-- the one with the lowest priority number wins. Text conditions are regular expressions for the whole value; role and
-- free_role hold where any of the names separated by | is among the allocation's. The user's own rules go before.
-- layer: label
-- grain: rule_id
-- reads: user_rule
--   rule_id: the rule's name
--   priority: the lowest number wins
--   bucket: the bucket it puts allocations in
--   evidence: what it rests on: identity (the recorder's roll), stack, lifetime or size
--   tensor_role: condition on allocation_kind.tensor_role
--   role: condition on allocation_kind.roles
--   free_role: condition on allocation_kind.free_roles
--   library: condition on allocation_kind.library
--   phase: condition on allocation_kind.phase
--   free_phase: condition on allocation_kind.free_phase
--   lifetime: condition on allocation_kind.lifetime
--   operator: condition on allocation_kind.operator
--   module_part: condition on allocation_kind.module_part
--   size_like: condition on allocation_kind.size_like
--   origin: condition on allocation_kind.origin
--   autograd_node: condition on allocation_kind.autograd_node
--   frame: regular expression that some frame of the stack that allocated it must match in part, as stack_line shows it
--   why: a sentence for the person
select
    rule_id, priority::bigint as priority, bucket, 'identity' as evidence, tensor_role, null as role, null as free_role,
    null as library, null as phase, null as free_phase, null as lifetime, null as operator, null as module_part,
    null as size_like, null as origin, null as autograd_node, null as frame, why
from (
    values
    -- what the recorder's roll names, whatever a stack says
    ('named_parameter', 10, 'parameter', 'parameter', 'the recorder found a parameter of the model in it'),
    ('named_buffer', 20, 'buffer', 'buffer', 'the recorder found a buffer of the model in it'),
    ('named_optimizer_state', 30, 'optimizer_state', 'optimizer_state', 'the recorder found it in the optimizer''s state'),
    ('named_gradient', 40, 'gradient', 'gradient', 'the recorder found it in a parameter''s .grad')
) as named (rule_id, priority, bucket, tensor_role, why)
union all
select
    rule_id, priority::bigint as priority, bucket, evidence, null as tensor_role, role, free_role, library, phase, free_phase,
    lifetime, operator, module_part, size_like, origin, null as autograd_node, null as frame, why
from (
    values
    -- what a library or a tool asked for, whenever it was
    ('cublas_backward_workspace', 90, 'library_workspace', 'stack', null, null, 'cublas', 'backward', null, null, null, null, null, null, 'the cuBLAS workspace of the backward thread, which has a handle of its own: 8,519,680 bytes, 33,554,432 on a Hopper'),
    ('cublas_workspace', 95, 'library_workspace', 'stack', null, null, 'cublas', null, null, null, null, null, null, null, 'the cuBLAS workspace of a handle and a stream, made by its first product and kept: 8,519,680 bytes, 33,554,432 on a Hopper'),
    ('cublaslt_workspace', 100, 'library_workspace', 'stack', null, null, 'cublaslt', null, null, null, null, null, null, null, 'the workspace of cublasLt, made by its first product with an epilogue such as addmm, and kept'),
    ('cudnn_trial_workspace', 103, 'library_workspace', 'stack', null, null, 'cudnn', null, null, 'momentary', null, null, null, null, 'scratch memory of cuDNN, asked for to try or run one way of computing a convolution, and given back'),
    ('cudnn_workspace', 106, 'library_workspace', 'stack', null, null, 'cudnn', null, null, null, null, null, null, null, 'allocated by cuDNN for itself, and kept'),
    ('workspace_size', 110, 'library_workspace', 'size', null, null, null, null, null, 'kept', null, null, 'workspace', 'recorded', 'has the size of a cuBLAS workspace, no like in its phase, and is kept'),
    ('autotune', 120, 'autotune', 'stack', 'autotune', null, null, null, null, null, null, null, null, null, 'allocated by a trial run that chooses a kernel'),
    ('reduced_gradient', 125, 'gradient', 'stack', 'communication', null, null, 'backward', 'zero_grad', 'later_phase|later_step', null, null, null, null, 'made by a collective in backward and dropped by zero_grad: a gradient as the ranks reduced it'),
    ('ddp_bucket', 127, 'communication', 'stack', 'ddp_bucket', null, null, null, null, 'kept|later_phase|later_step|unknown', null, null, null, null, 'a bucket of DDP, in which gradients are gathered to be exchanged: together as large as the gradients'),
    ('fsdp_buffer', 128, 'communication', 'stack', 'fsdp_buffer', null, null, 'forward|backward', null, null, null, null, null, null, 'a parameter or gradient that FSDP gathered or is about to scatter'),
    ('communication', 130, 'communication', 'stack', 'communication', null, null, null, null, null, null, null, null, null, 'allocated by DDP, FSDP or a collective'),
    ('autocast_cast', 140, 'autocast_cast', 'stack', 'autocast', null, null, null, null, null, null, null, null, null, 'a copy of a weight in the lower precision, made and kept by autocast'),
    ('kv_cache', 150, 'kv_cache', 'stack', 'kv_cache', null, null, null, null, 'kept|later_phase|later_step', null, null, null, null, 'kept by a key-value cache'),

    -- the model
    ('module_buffer', 200, 'buffer', 'stack', 'module_convert', null, null, null, null, 'kept|later_phase|later_step|unknown', null, 'buffer', null, null, 'moved to the device with its module, as a buffer'),
    ('module_parameter', 210, 'parameter', 'stack', 'module_convert', null, null, null, null, 'kept|later_phase|later_step|unknown', null, 'parameter', null, null, 'moved to the device with its module, as a parameter'),
    ('module_shard', 215, 'parameter', 'stack', 'module_shard', null, null, null, null, 'kept|later_phase|later_step|unknown', null, null, null, null, 'the shard of a parameter that FSDP keeps on this rank'),
    ('weight_copy', 216, 'weight_copy', 'stack', null, null, null, null, null, null, null, 'copy', null, null, 'copied from what was there, and kept, and no gradient is made for it: an average of the weights, or a model to compare with'),
    ('built_parameter', 217, 'parameter', 'lifetime', null, null, null, null, null, 'kept|later_phase|later_step', null, 'parameter', null, null, 'kept from before the first step, and the backward makes a gradient of its bytes that no other parameter accounts for; without a backward, made before the first forward where a model is made'),
    ('built_buffer', 218, 'buffer', 'lifetime', null, null, null, null, null, 'kept|later_phase|later_step', null, 'buffer', null, null, 'made beside parameters and kept; never gets a gradient or optimizer state'),
    ('module_filled', 220, 'buffer', 'stack', 'module_init', null, null, null, null, 'kept|later_phase|later_step', '(zeros|ones|arange|full|tensor|scalar_tensor|eye|tril|triu)\w*', null, null, null, 'built with its module, filled with a constant as buffers are'),
    ('module_built', 230, 'parameter', 'stack', 'module_init', null, null, null, null, 'kept|later_phase|later_step', null, null, null, null, 'built on the device with its module'),

    ('module_copied', 240, 'parameter', 'stack', 'deepcopy', null, null, 'load|data|other', null, 'kept|later_phase|later_step', null, null, null, null, 'a module that was copied whole, as layers are'),

    -- the optimizer
    ('optimizer_init', 300, 'optimizer_state', 'stack', 'optimizer_init', null, null, null, null, 'kept|later_phase|later_step|unknown', null, null, null, null, 'made where an optimizer makes its state, and kept'),
    ('optimizer_kept', 310, 'optimizer_state', 'lifetime', null, null, null, 'optimizer', null, 'kept|later_step', null, null, null, null, 'born in an optimizer step and kept beyond it'),
    ('foreach_temporary', 315, 'optimizer_temporary', 'stack', 'foreach', null, null, 'optimizer', null, null, null, null, null, null, 'made by an operator over all parameters at once (foreach): as many temporaries as parameters are alive together'),
    ('optimizer_rest', 320, 'optimizer_temporary', 'lifetime', null, null, null, 'optimizer', null, null, null, null, null, null, 'born in an optimizer step and freed with it'),

    -- the loss
    ('loss', 400, 'logits_and_loss', 'stack', 'loss', null, null, 'forward|backward|data|other', null, null, null, null, null, null, 'made by a cross-entropy loss or its backward'),
    ('logits', 410, 'logits_and_loss', 'size', null, null, null, 'forward|data|other', null, null, null, null, 'loss', null, 'has the bytes of the loss''s own tensors: the logits it was given'),
    ('logits_gradient', 420, 'logits_and_loss', 'size', null, null, null, 'backward', null, 'momentary', null, null, 'loss', null, 'has the bytes of the loss''s own tensors: the gradient of the logits'),

    -- the backward
    ('recomputed', 500, 'activation', 'stack', 'recompute', 'release_saved', null, 'backward', null, null, null, null, null, null, 'made again by a checkpointed forward, and let go by the node that had saved it'),
    ('gradient', 510, 'gradient', 'lifetime', null, null, null, 'backward', null, 'later_phase|later_step|kept', null, null, null, null, 'born in backward and alive after it'),
    ('accumulated', 520, 'gradient_in_flight', 'stack', null, 'accumulate_grad|input_buffer', null, 'backward', null, 'momentary', null, null, null, null, 'added to a gradient that was there, and let go by the engine'),
    ('missing_gradient', 525, 'gradient_in_flight', 'stack', 'missing_gradient', null, null, 'backward', null, 'momentary', null, null, null, null, 'zeros in place of the gradient of an output that the loss does not use'),
    ('summed_up', 530, 'gradient_in_flight', 'stack', 'input_buffer', null, null, 'backward', null, 'momentary', null, null, null, null, 'the sum of two gradients of one tensor, held by the engine'),
    ('summand', 535, 'gradient_in_flight', 'lifetime', null, null, null, 'backward', null, 'momentary', null, null, 'summand', null, 'the second of two gradients of one tensor, let go once the engine has added it to the first'),
    ('backward_rest', 540, 'backward_temporary', 'lifetime', null, null, null, 'backward', null, null, null, null, null, null, 'born and freed in the backward'),

    -- the forward
    ('saved', 600, 'activation', 'stack', null, 'release_saved', null, null, null, null, null, null, null, null, 'let go by the node that had saved it for backward'),
    ('held_until_backward', 610, 'activation', 'lifetime', null, null, null, 'forward|data|other', 'backward', 'later_phase|later_step', null, null, null, null, 'born in forward and freed in backward'),
    ('kept_beside_parameters', 615, 'optimizer_state', 'size', null, null, null, 'load|data|other|zero_grad', null, 'kept', null, null, 'parameter_set', null, 'one of a set with the bytes of the model''s parameters, made by one line of the program and kept: state of an optimizer of its own, or averages of the weights'),
    ('input', 620, 'input', 'lifetime', null, null, null, 'data', null, null, null, null, null, null, 'born between two steps, before the forward'),
    ('given_and_kept', 623, 'input', 'lifetime', null, null, null, null, null, 'kept|later_phase|later_step', null, 'input', null, null, 'made beside a model that is only run, before its first forward, and kept: what it is given'),
    ('given_to_forward', 625, 'input', 'lifetime', null, null, null, 'other', 'forward', 'later_phase|later_step', null, null, null, null, 'born outside of modules, and let go in a forward: what it was given'),
    ('held_output', 630, 'forward_temporary', 'lifetime', null, null, null, 'forward', null, null, null, null, null, null, 'born in forward, and not saved for backward'),

    -- the rest
    ('loaded', 700, 'parameter', 'lifetime', null, null, null, 'load', null, 'kept|later_phase|later_step', null, null, null, null, 'born while the model is loaded, and kept'),
    ('between', 710, 'forward_temporary', 'lifetime', null, null, null, 'load|other|zero_grad', null, 'momentary', null, null, null, null, 'born and freed between two phases'),
    ('before_recording', 900, 'before_recording', 'lifetime', null, null, null, null, null, null, null, null, null, 'opening', 'older than the recording, which does not say who asked'),
    ('unattributed', 999, 'unattributed', 'none', null, null, null, null, null, null, null, null, null, null, 'no rule explains it')
) as listed (
    rule_id, priority, bucket, evidence, role, free_role, library, phase, free_phase, lifetime, operator, module_part,
    size_like, origin, why
)
union all
select
    rule_id, rule_ix - 1000000 as priority, bucket, evidence, tensor_role, role, free_role, library, phase, free_phase, lifetime,
    operator, module_part, size_like, origin, autograd_node, frame, why
from user_rule
