-- One run of consecutive events in one phase of one training step.
-- layer: label
-- grain: device, begin_event_ix
-- reads: trace_event, stack_label, annotation_window, phase_pattern
-- stored: yes
--   device: the device
--   begin_event_ix: its first event
--   end_event_ix: the event before which it ends; null for the last one
--   phase: load, data, forward, backward, optimizer, zero_grad or other; null where nothing tells
--   phase_evidence: what says so: annotation, stack, or pattern where there are no stacks
--   step: the training step, counted from 1 where no annotation numbers it; null outside of steps
--   step_evidence: what says so: annotation, stack, or pattern where there are no stacks
with told as (
    -- what each event's own stack tells
    select
        trace_event.device,
        trace_event.event_ix,
        stack_label.phase
    from trace_event
    inner join stack_label on trace_event.stack_id = stack_label.stack_id
    where
        stack_label.phase is not null
        and (
            trace_event.action = 'alloc'
            or (trace_event.action = 'free_requested' and stack_label.phase in ('zero_grad', 'optimizer', 'backward'))
        )
),

changed as (
    select
        device,
        event_ix,
        phase
    from told
    qualify phase is distinct from lag(phase) over (partition by device order by event_ix)
),

-- a call of the user's own outside any module belongs to what goes before it: after a forward it is the loss,
-- after an optimizer step it is the next batch
last_known as (
    select
        device,
        event_ix,
        phase,
        last_value(case when phase <> 'unplaced' then phase end ignore nulls) over (
            partition by device order by event_ix rows between unbounded preceding and 1 preceding
        ) as before_it,
        bool_or(phase = 'forward') over (partition by device) as has_modules
    from changed
),

by_stack as (
    select
        device,
        event_ix,
        case
            when phase <> 'unplaced' then phase
            when before_it = 'forward' then 'forward'
            when before_it = 'backward' then 'other'
            when not has_modules then 'forward'
            else 'data'
        end as phase
    from last_known
),

by_annotation as (
    select
        device,
        begin_event_ix as event_ix,
        phase,
        begin_us as order_us,
        begin_annotation_ix as order_ix
    from annotation_window
    where phase is not null and begin_event_ix is not null and end_us is not null
    union all
    select
        device,
        end_event_ix as event_ix,
        null as phase,
        end_us as order_us,
        begin_annotation_ix as order_ix
    from annotation_window
    where phase is not null and end_event_ix is not null
),

-- where several marks fall before the same event, the last one counts
annotated as (
    select
        device,
        event_ix,
        arg_max(coalesce(phase, 'none'), order_us * 2 + (phase is not null)::bigint) as phase
    from by_annotation
    group by device, event_ix
),

points as (
    select device, event_ix from by_stack
    union
    select device, event_ix from annotated
    union
    select device, event_ix from phase_pattern
),

filled as (
    select
        points.device,
        points.event_ix,
        last_value(by_stack.phase ignore nulls) over so_far as stack_phase,
        nullif(last_value(annotated.phase ignore nulls) over so_far, 'none') as annotation_phase,
        last_value(phase_pattern.phase ignore nulls) over so_far as pattern_phase
    from points
    left join by_stack on points.device = by_stack.device and points.event_ix = by_stack.event_ix
    left join annotated on points.device = annotated.device and points.event_ix = annotated.event_ix
    left join phase_pattern on points.device = phase_pattern.device and points.event_ix = phase_pattern.event_ix
    window so_far as (partition by points.device order by points.event_ix)
),

phased as (
    select
        device,
        event_ix,
        coalesce(annotation_phase, stack_phase, pattern_phase) as phase,
        case
            when annotation_phase is not null then 'annotation'
            when stack_phase is not null then 'stack'
            when pattern_phase is not null then 'pattern'
        end as phase_evidence
    from filled
    qualify
        coalesce(annotation_phase, stack_phase, pattern_phase)
        is distinct from lag(coalesce(annotation_phase, stack_phase, pattern_phase)) over (
            partition by device order by event_ix
        )
        or lag(event_ix) over (partition by device order by event_ix) is null
),

-- without numbered steps, a step begins at the first data or forward after an optimizer step,
-- and the first one at the first forward of a recording that trains
lagged as (
    select
        device,
        event_ix,
        phase,
        phase_evidence,
        bool_or(phase = 'backward') over (partition by device) as is_training,
        bool_or(phase = 'forward') over before_it as has_forward_before,
        last_value(case when phase in ('data', 'forward', 'optimizer') then phase end ignore nulls) over before_it as worked_before
    from phased
    window before_it as (partition by device order by event_ix rows between unbounded preceding and 1 preceding)
),

counted as (
    select
        device,
        event_ix,
        coalesce(phase, 'none') as phase,
        coalesce(phase_evidence, 'none') as phase_evidence,
        sum(
            (
                is_training and phase in ('data', 'forward')
                and (worked_before = 'optimizer' or (phase = 'forward' and not coalesce(has_forward_before, false)))
            )::bigint
        ) over (partition by device order by event_ix) as counted_step
    from lagged
),

numbered as (
    select
        device,
        begin_event_ix as event_ix,
        step
    from annotation_window
    where step is not null and begin_event_ix is not null
    union all
    select
        device,
        end_event_ix as event_ix,
        null as step
    from annotation_window
    where step is not null and end_event_ix is not null
),

step_marks as (
    select
        device,
        event_ix,
        coalesce(max(step), -1) as step
    from numbered
    group by device, event_ix
),

whole as (
    select
        device,
        coalesce(bool_or(step >= 0), false) as is_numbered
    from step_marks
    group by device
),

-- every device's trace is covered from its first event on
borders as (
    select device, event_ix from counted
    union
    select device, event_ix from step_marks
    union
    select device, min(event_ix) as event_ix from trace_event group by device
),

joined as (
    select
        borders.device,
        borders.event_ix,
        last_value(counted.phase ignore nulls) over so_far as phase,
        last_value(counted.phase_evidence ignore nulls) over so_far as phase_evidence,
        last_value(counted.counted_step ignore nulls) over so_far as counted_step,
        nullif(last_value(step_marks.step ignore nulls) over so_far, -1) as numbered_step,
        coalesce(whole.is_numbered, false) as is_numbered
    from borders
    left join counted on borders.device = counted.device and borders.event_ix = counted.event_ix
    left join step_marks on borders.device = step_marks.device and borders.event_ix = step_marks.event_ix
    left join whole on borders.device = whole.device
    window so_far as (partition by borders.device order by borders.event_ix)
),

named as (
    select
        device,
        event_ix,
        nullif(phase, 'none') as phase,
        nullif(phase_evidence, 'none') as phase_evidence,
        case when is_numbered then numbered_step else nullif(counted_step, 0) end as step,
        case
            when is_numbered and numbered_step is not null then 'annotation'
            when not is_numbered and counted_step > 0
                then case when device in (select phase_pattern.device from phase_pattern) then 'pattern' else 'stack' end
        end as step_evidence
    from joined
)

select
    device,
    event_ix as begin_event_ix,
    lead(event_ix) over (partition by device order by event_ix) as end_event_ix,
    phase,
    phase_evidence,
    step::bigint as step,
    step_evidence
from named
order by device, begin_event_ix
