-- One distinct text that the program had set on events (user_metadata), and what it says.
-- layer: label
-- grain: user_metadata
-- reads: trace_event
--   user_metadata: the text
--   pass: forward, recompute or backward, where it is a module mark
--   module: the module's path, where it is a module mark
--   op_ix: the operator's number in the op log, where it is a module mark with one
--   step: the step's number, where the text is one such as step=2
with mark as (
    select distinct user_metadata
    from trace_event
    where user_metadata is not null
),

parsed as (
    select
        user_metadata,
        -- a module mark is a list in JSON: pass, path and perhaps the operator's number
        case when user_metadata like '[%' and json_valid(user_metadata) then user_metadata::json end as told
    from mark
)

select
    user_metadata,
    json_extract_string(told, '$[0]') as pass,
    nullif(json_extract_string(told, '$[1]'), '') as module,
    try_cast(json_extract_string(told, '$[2]') as bigint) as op_ix,
    try_cast(nullif(regexp_extract(user_metadata, '(?i)^\s*(?:step|iteration|iter)\s*[#:_= -]*\s*(\d+)\s*$', 1), '') as bigint) as step
from parsed
