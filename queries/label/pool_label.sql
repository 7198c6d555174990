-- One memory pool of the allocator, and whose it is: torch numbers the pools that a CUDA graph's capture makes in the
-- first place of the id, and those that a program makes in the second.
-- layer: label
-- grain: pool
-- reads: placement, reserved_range, segment
--   pool: its id as torch writes it, (0,0) being the default one
--   pool_kind: default, graph or program
--   meaning: a sentence for the person
with listed as (
    select pool from placement
    union
    select pool from reserved_range
    union
    select pool from segment
),

told as (
    select
        pool,
        try_cast(regexp_extract(pool, '^\((\d+),(\d+)\)$', 1) as bigint) as first_part,
        try_cast(regexp_extract(pool, '^\((\d+),(\d+)\)$', 2) as bigint) as second_part
    from listed
    where pool is not null
)

select
    pool,
    case when first_part > 0 then 'graph' when second_part > 0 then 'program' else 'default' end as pool_kind,
    case
        when first_part > 0 then 'the private pool of a CUDA graph: its capture made it, and what is free in it serves that graph alone, as long as the graph lives'
        when second_part > 0 then 'a pool that the program made (torch.cuda.MemPool, or graph_pool_handle to share between graphs): what is free in it serves only what is asked for under it'
        else 'the pool of every request that names no other'
    end as meaning
from told
order by pool
