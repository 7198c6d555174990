-- One frame, and what its name and file tell.
-- layer: label
-- grain: frame_id
-- reads: frame, frame_role
-- stored: yes
--   frame_id: the frame
--   file: its file with forward slashes, null where none was recorded
--   language: python or c++
--   origin: whose code it is: user, torch, library (site-packages), standard_library or generated; null for C++
--   autograd_node: the autograd node that it runs, such as AddmmBackward0; PyNode for a Python-defined function
--   released_node: the autograd node that lets go here of what it had saved for backward
--   operator: the aten operator that it calls, such as addmm
--   roles: what it is doing, see frame_role
with named as (
    select
        frame_id,
        name,
        replace(filename, '\', '/') as file
    from frame
),

placed as (
    select
        frame_id,
        name,
        file,
        case
            when regexp_matches(file, '\.pyx?$|^<.*>(\.\d+)?$') then 'python'
            else 'c++'
        end as language
    from named
),

matched as (
    select
        placed.frame_id,
        list(distinct frame_role.role order by frame_role.role) as roles
    from placed
    inner join frame_role
        on
            (frame_role.name_pattern is null or regexp_matches(placed.name, frame_role.name_pattern))
            and (frame_role.file_pattern is null or regexp_matches(placed.file, frame_role.file_pattern))
    group by placed.frame_id
)

select
    placed.frame_id,
    placed.file,
    placed.language,
    case
        when placed.language = 'c++' then null
        when regexp_matches(placed.file, '^<(ipython-input|stdin)') then 'user'
        when placed.file like '<frozen %' then 'standard_library'
        when regexp_matches(placed.file, '/torchinductor_|/torch_?inductor/|^<eval_with_key>|<.*>') then 'generated'
        when regexp_matches(placed.file, '(^|/)(site|dist)-packages/torch/|^torch/') then 'torch'
        when regexp_matches(placed.file, '(^|/)(site|dist)-packages/') then 'library'
        when regexp_matches(placed.file, '(?i)/lib/python\d(\.\d+)?/|^[a-z]:/(program files/)?python\d+/lib/') then 'standard_library'
        when regexp_matches(placed.file, '(^|/)torch/(nn/modules/module|optim/optimizer|autograd/__init__|_tensor|_dynamo/\w+)\.py$') then 'torch'
        else 'user'
    end as origin,
    nullif(regexp_extract(placed.name, '^torch::autograd::(?:generated::)?(\w+)::apply\(', 1), '') as autograd_node,
    nullif(regexp_extract(placed.name, '^torch::autograd::(?:generated::)?(\w+)::release_variables\(', 1), '') as released_node,
    nullif(regexp_extract(placed.name, '^at::_ops::(\w+)::(?:call|redispatch)\(', 1), '') as operator,
    coalesce(matched.roles, []) as roles
from placed
left join matched on placed.frame_id = matched.frame_id
order by placed.frame_id
