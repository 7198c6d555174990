-- One frame of one stack, ready to be read.
-- layer: report
-- grain: stack_id, depth_ix
-- reads: stack_frame, frame, frame_label
--   stack_id: the stack
--   depth_ix: position in it, 0 being the innermost
--   shown: the frame in one line: Python as file:line function, C++ as its name without parameters
--   origin: whose code it is: user, torch, library, standard_library or generated; null for C++
--   is_telling: whether it tells a person something: recorder, allocator and dispatch plumbing do not
select
    stack_frame.stack_id,
    stack_frame.depth_ix,
    case
        when frame_label.language = 'python' then format('{}:{} {}', frame_label.file, coalesce(frame.line, 0), coalesce(frame.name, '?'))
        else coalesce(nullif(regexp_replace(left(frame.name, 400), '\(.*$', ''), ''), left(frame.name, 200), '?')
    end as shown,
    frame_label.origin,
    frame_label.language = 'python'
    or (
        len(list_filter(frame_label.roles, lambda role: role <> 'tensor')) > 0
        or frame_label.autograd_node is not null
        or regexp_matches(frame.name, '^at::_ops::\w+::call\(')
    ) as is_telling
from stack_frame
inner join frame on stack_frame.frame_id = frame.frame_id
inner join frame_label on stack_frame.frame_id = frame_label.frame_id
order by stack_frame.stack_id, stack_frame.depth_ix
