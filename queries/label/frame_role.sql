-- One pattern that tells what a frame is doing; a frame plays a role where its name and its file both match.
-- layer: label
-- grain: frame_role_id
-- reads: -
--   frame_role_id: the row's name
--   role: what a frame that matches is doing
--   name_pattern: regular expression its name must match in part; null where any will do
--   file_pattern: regular expression its file, with forward slashes, must match in part; null where any will do
--   why: what the match rests on
select frame_role_id, role, name_pattern, file_pattern, why
from (
    values
    -- the autograd engine and what it does with gradients
    ('engine', 'engine', '^torch::autograd::Engine::', null, 'the autograd engine runs a node'),
    ('engine_python', 'backward_call', '^(backward|grad|_engine_run_backward|_make_grads)$', '(^|/)torch/(autograd/(__init__|graph)|_tensor)\.py$', 'the program called backward()'),
    ('release_saved', 'release_saved', '::release_variables\(|^torch::autograd::SavedVariable::reset_data', null, 'a node lets go of what it had saved for backward'),
    ('accumulate_grad', 'accumulate_grad', '^torch::autograd::AccumulateGrad::', null, 'a gradient reaches .grad'),
    ('input_buffer', 'input_buffer', '^torch::autograd::(InputBuffer::add|accumulate)\b', null, 'the engine adds up the gradients of one tensor used twice'),
    ('missing_gradient', 'missing_gradient', '^torch::autograd::VariableInfo::zeros', null, 'zeros stand in for the gradient of an output that nobody used'),
    ('set_grad', 'set_grad', '^THPVariable_set_grad|^torch::autograd::THPVariable_set_grad', null, 'the program set .grad, to None as a rule'),
    -- checkpointing runs a forward again inside backward
    ('checkpoint_hook', 'recompute', '^(recompute_fn|unpack_hook|inner_unpack|unpack|recompute_and_unpack|backward)$', '(^|/)torch/utils/checkpoint\.py$', 'a checkpointed forward is run again'),
    -- modules
    ('module_call', 'module_call', '^(_call_impl|_wrapped_call_impl|_slow_forward)$', '(^|/)torch/nn/modules/module\.py$', 'a module is called'),
    ('module_convert', 'module_convert', '^(convert|<lambda>)$', '(^|/)torch/nn/modules/module\.py$', 'a module is moved to the device or to a dtype'),
    ('module_apply', 'module_apply', '^(_apply|_apply_to_param)$', '(^|/)torch/nn/modules/module\.py$', 'something is done to every tensor of a module'),
    ('module_init', 'module_init', '^(__init__|reset_parameters|_init_weights|from_pretrained|load_state_dict|_load_from_state_dict)$', '(^|/)(torch/nn/modules/|transformers/|torchvision/|timm/|diffusers/)', 'a module is built'),
    ('deepcopy', 'deepcopy', '^(deepcopy|_deepcopy_\w+|__deepcopy__)$', '(^|/)(copy|torch/_tensor|torch/nn/parameter)\.py$', 'the program copies a module or a tensor whole'),
    ('fsdp_shard', 'module_shard', '^(_init_sharded_param|_init_flat_param\w*|flatten_tensors_into_flat_param|_shard_parameters|init_dtype_attrs)$', '(^|/)torch/distributed/', 'FSDP makes the shard that it keeps of a parameter'),
    ('state_load', 'module_init', '^(load|_load|load_file|load_checkpoint)$', '(^|/)(torch/serialization|safetensors/torch)\.py$', 'weights are read'),
    -- optimizers
    -- all but swa_utils.py, which keeps averages and no state
    ('optimizer_file', 'optimizer', null, '(^|/)torch/optim/([^s/]|s[^w/])[^/]*\.py$', 'an optimizer of torch is running'),
    ('foreach_cpp', 'foreach', '^at::_ops::_foreach_', null, 'one operator over a list of tensors'),
    ('foreach_python', 'foreach', '^_multi_tensor_', '(^|/)torch/optim/', 'an optimizer works on lists of tensors'),
    ('optimizer_other', 'optimizer', '^(step|_step|update|_init_group|_init_state)$', '(?i)(^|/)[^/]*optim[^/]*(\.py$|/)', 'an optimizer of another package is running'),
    ('optimizer_init', 'optimizer_init', '^_?(init_group|init_state|lazy_init)', '(?i)optim', 'an optimizer makes its state'),
    ('optimizer_kernel', 'optimizer', '^at::_ops::_(fused|foreach)_(adamw?|sgd|adagrad)', null, 'a fused optimizer kernel'),
    ('zero_grad', 'zero_grad', '^zero_grad$', null, 'gradients are dropped'),
    ('clip_grad', 'clip_grad', null, '(^|/)torch/nn/utils/clip_grad\.py$', 'gradients are clipped'),
    ('grad_scaler', 'clip_grad', null, '(^|/)torch/(amp|cuda/amp)/grad_scaler\.py$', 'gradients are unscaled'),
    -- libraries' own memory
    ('cublas', 'cublas_workspace', '^at::cuda::(getNewWorkspace|setWorkspaceForHandle|allocateCUDABlasWorkspace|getCurrentCUDABlasHandle)', null, 'cuBLAS is given a workspace for a handle and a stream'),
    ('cublaslt', 'cublaslt_workspace', 'CUDABlasLtWorkspace|^at::cuda::blas::gemm_and_bias', null, 'cublasLt is given a workspace'),
    ('cudnn', 'cudnn', 'cudnn|run_conv_plan|Conv_v[78]', null, 'cuDNN is running'),
    ('tensor', 'tensor', '^at::detail::empty_|^at::native::(empty|resize_)|^at::_ops::(empty|resize)', null, 'the bytes become a tensor'),
    -- casts, losses, communication, data, tuning
    ('autocast', 'autocast', '^at::autocast::cached_cast', null, 'autocast makes a copy in the lower precision'),
    ('loss_cpp', 'loss', '^at::_ops::(cross_entropy_loss|_log_softmax|log_softmax_int|nll_loss|linear_cross_entropy)', null, 'a cross-entropy loss'),
    ('loss_python', 'loss', '^(cross_entropy|nll_loss)$', '(^|/)torch/nn/functional\.py$', 'a cross-entropy loss'),
    ('loss_node', 'loss', '^torch::autograd::generated::(LogSoftmax|NllLoss2?[dD]?|CrossEntropyLoss)Backward\d+::apply', null, 'the backward of a cross-entropy loss'),
    ('reducer', 'communication', '^c10d::(Reducer|broadcast_coalesced|newLikeFlat)|^torch::distributed|^c10d::', null, 'gradients or parameters are exchanged between ranks'),
    ('nccl', 'communication', '(?i)^(ncclMem|torch::cuda::nccl|c10d::ProcessGroup)', null, 'NCCL'),
    ('nccl_library', 'nccl', '(?i)^(ncclMem|torch::cuda::nccl|c10d::ProcessGroupNCCL)', null, 'NCCL is called'),
    ('triton', 'triton', null, '(^|/)triton/', 'Triton is running, to choose or launch a kernel'),
    ('inductor', 'inductor', null, '/torchinductor_|(^|/)torch/_inductor/', 'code that torch.compile generated is running'),
    ('ddp_bucket', 'ddp_bucket', '^c10d::Reducer', null, 'DDP makes the buckets through which gradients are exchanged'),
    ('fsdp_buffer', 'fsdp_buffer', null, '(^|/)torch/distributed/(fsdp|_composable)/', 'FSDP is running'),
    ('fsdp', 'communication', '^(unshard|all_gather|_all_gather|foreach_all_gather|foreach_reduce|reduce_scatter|allocate_storage|alloc_storage|init_all_gather_outputs|_alloc_storage)\w*$', '(^|/)torch/distributed/', 'FSDP gathers or scatters a shard'),
    ('data_loader', 'data_loader', null, '(^|/)torch/utils/data/', 'the data loader'),
    ('autotune', 'autotune', '^(do_bench\w*|benchmark\w*|autotune\w*|_bench|pad_mm_benchmark|should_pad\w*)$', '(^|/)(triton|torch/_inductor)/', 'a kernel is being chosen by trial'),
    ('kv_cache', 'kv_cache', '^(update|lazy_initialization|get_seq_length|append)$', '(?i)(cache_utils|kv_?cache)', 'keys and values are kept for the next token')
) as listed (frame_role_id, role, name_pattern, file_pattern, why)
