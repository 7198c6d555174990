-- One stack in a few words that are safe to draw: no control characters, and cut to a length that fits a page.
-- layer: report
-- grain: stack_id
-- reads: stack_label
--   stack_id: the stack
--   requested_by: who asked, see stack_label
--   user_frame: the nearest line of the user's own code, the path cut from the left
with cut as (
    -- a name may be a megabyte long, so it is cut before anything looks at its characters
    select
        stack_id,
        case when length(requested_by) > 80 then left(requested_by, 79) || '…' else requested_by end as requested_by,
        case when length(user_frame) > 80 then '…' || right(user_frame, 79) else user_frame end as user_frame
    from stack_label
)

select
    stack_id,
    regexp_replace(requested_by, '[\x00-\x1f\x7f-\x9f]', '�', 'g') as requested_by,
    regexp_replace(user_frame, '[\x00-\x1f\x7f-\x9f]', '�', 'g') as user_frame
from cut
