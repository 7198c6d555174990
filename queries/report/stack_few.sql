-- One of the first twelve telling frames of one stack, safe to draw.
-- layer: report
-- grain: stack_id, line_ix
-- reads: stack_line
--   stack_id: the stack
--   line_ix: its place among the stack's telling frames, 0 being the innermost
--   shown: the frame in one line, without control characters and cut to a length that fits a page
--   left_out_count: telling frames of the stack that are not among the twelve
with telling as (
    select
        stack_id,
        row_number() over (partition by stack_id order by depth_ix) - 1 as line_ix,
        case when length(shown) > 120 then '…' || right(shown, 119) else shown end as shown,
        greatest(count(*) over (partition by stack_id) - 12, 0) as left_out_count
    from stack_line
    where is_telling
)

select
    stack_id,
    line_ix,
    regexp_replace(shown, '[\x00-\x1f\x7f-\x9f]', '�', 'g') as shown,
    left_out_count
from telling
where line_ix < 12
order by stack_id, line_ix
