-- One bucket of the ledger, and what belongs in it.
-- layer: label
-- grain: bucket
-- reads: bucket_rule
--   bucket: its name
--   bucket_order: its place in a printed ledger
--   is_allocation: whether it holds allocations; the others are what the allocator keeps beside them
--   meaning: a sentence for the person
with listed as (
    select bucket, bucket_order, is_allocation, meaning
    from (
        values
        ('parameter', 1, true, 'weights of the model'),
        ('buffer', 2, true, 'tensors of the model that are not trained, such as masks and running means'),
        ('gradient', 3, true, 'what reached .grad'),
        ('gradient_in_flight', 4, true, 'a gradient that the autograd engine holds before it reaches .grad'),
        ('optimizer_state', 5, true, 'what the optimizer keeps between steps, such as Adam''s two moments'),
        ('optimizer_temporary', 6, true, 'what an optimizer step allocates and frees again'),
        ('activation', 7, true, 'saved by the forward for the backward'),
        ('logits_and_loss', 8, true, 'the vocabulary-sized tensors around the loss'),
        ('forward_temporary', 9, true, 'born and freed in the forward'),
        ('backward_temporary', 10, true, 'born and freed in the backward'),
        ('autocast_cast', 11, true, 'copies of weights in the lower precision that autocast keeps'),
        ('weight_copy', 12, true, 'copies of the weights that the program keeps, such as running averages'),
        ('library_workspace', 13, true, 'scratch memory of cuBLAS, cublasLt and cuDNN'),
        ('communication', 14, true, 'buffers through which ranks exchange gradients and parameters'),
        ('kv_cache', 15, true, 'keys and values kept for the next token'),
        ('input', 16, true, 'batches of data'),
        ('autotune', 17, true, 'trial runs that choose a kernel'),
        ('before_recording', 18, true, 'older than the recording: the file does not say who asked'),
        ('unattributed', 19, true, 'no rule explains it'),
        ('block_slack', 20, false, 'bytes of the blocks above beyond what was asked for: rounding, and blocks handed out unsplit'),
        ('pending_free', 21, false, 'freed by the program, kept until another stream is done with it'),
        ('cached', 22, false, 'free inside segments: reserved from the device, held by nothing')
    ) as listed (bucket, bucket_order, is_allocation, meaning)
),

-- a rule may name a bucket of its own: it stands after the listed ones that say who asked
further as (
    select
        bucket_rule.bucket,
        arg_min(bucket_rule.why, bucket_rule.priority) as meaning
    from bucket_rule
    anti join listed on bucket_rule.bucket = listed.bucket
    group by bucket_rule.bucket
),

every_bucket as (
    select bucket, bucket_order as first_order, is_allocation, meaning from listed
    union all
    select bucket, 17.5 as first_order, true as is_allocation, meaning from further
)

select
    bucket,
    row_number() over (order by first_order, bucket) as bucket_order,
    is_allocation,
    meaning
from every_bucket
order by bucket_order
