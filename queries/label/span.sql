-- One run of consecutive events in one phase of one training step.
-- layer: label
-- grain: device, begin_event_ix
-- reads: trace_event, stack_label, annotation_window, event_mark, mark_seat, phase_pattern
-- stored: yes
--   device: the device
--   begin_event_ix: its first event
--   end_event_ix: the event before which it ends; null for the last one
--   phase: load, data, forward, backward, optimizer, zero_grad or other; null where nothing tells
--   phase_evidence: what says so: annotation or stack; where there is neither, mark (of the recorder) or else pattern
--   step: the training step, counted from 1 where no annotation numbers it; null outside of steps
--   step_evidence: what says so: annotation, user_metadata such as step=2, mark (of the recorder), or what told the phases that steps are counted by
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

-- a call of the user's own outside any module belongs to what goes before it: after a forward it is the loss, after an
-- optimizer step it is the next batch; in a recording that calls modules and has no backward, nothing says what it is
last_known as (
    select
        device,
        event_ix,
        phase,
        last_value(case when phase <> 'unplaced' then phase end ignore nulls) over (
            partition by device order by event_ix rows between unbounded preceding and 1 preceding
        ) as before_it,
        bool_or(phase = 'forward') over (partition by device) as has_modules,
        bool_or(phase = 'backward') over (partition by device) as has_backward
    from changed
),

by_stack as (
    select
        device,
        event_ix,
        case
            when phase <> 'unplaced' then phase
            when not has_modules then 'forward'
            when before_it = 'backward' or not has_backward then 'other'
            when before_it = 'forward' then 'forward'
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

-- a mark of the recorder stands at the end of a phase, and the phase began after the mark before it
marked as (
    select
        device,
        lag(event_ix, 1, -1) over (partition by device order by mark_ix) + 1 as event_ix,
        event_ix + 1 as end_event_ix,
        step,
        case
            when name = 'load_model' then 'load'
            when regexp_matches(name, '^\d+\.(data|forward|backward|optimizer|zero_grad)$') then regexp_extract(name, '[a-z_]+$')
            else 'none'
        end as phase
    from mark_seat
    where event_ix is not null
),

by_mark as (
    select device, event_ix, phase, step from marked where event_ix < end_event_ix
    union all
    select device, max(end_event_ix) as event_ix, 'none' as phase, null as step from marked
    group by device having bool_or(phase <> 'none')
),

-- without stacks and annotations the recorder's marks tell, and without those the pattern of allocations
by_other as (
    select
        by_mark.device,
        by_mark.event_ix,
        by_mark.phase,
        by_mark.step,
        'mark' as evidence
    from by_mark
    where
        by_mark.device in (select marked.device from marked where marked.phase <> 'none')
        and by_mark.device not in (select by_stack.device from by_stack union all select annotated.device from annotated)
    union all
    select
        device,
        event_ix,
        phase,
        null as step,
        'pattern' as evidence
    from phase_pattern
    where device not in (select marked.device from marked where marked.phase <> 'none')
),

points as (
    select device, event_ix from by_stack
    union
    select device, event_ix from annotated
    union
    select device, event_ix from by_other
),

filled as (
    select
        points.device,
        points.event_ix,
        last_value(by_stack.phase ignore nulls) over so_far as stack_phase,
        nullif(last_value(annotated.phase ignore nulls) over so_far, 'none') as annotation_phase,
        nullif(last_value(by_other.phase ignore nulls) over so_far, 'none') as other_phase,
        last_value(by_other.evidence ignore nulls) over so_far as other_evidence
    from points
    left join by_stack on points.device = by_stack.device and points.event_ix = by_stack.event_ix
    left join annotated on points.device = annotated.device and points.event_ix = annotated.event_ix
    left join by_other on points.device = by_other.device and points.event_ix = by_other.event_ix
    window so_far as (partition by points.device order by points.event_ix)
),

phased as (
    select
        device,
        event_ix,
        coalesce(annotation_phase, stack_phase, other_phase) as phase,
        case
            when annotation_phase is not null then 'annotation'
            when stack_phase is not null then 'stack'
            when other_phase is not null then other_evidence
        end as phase_evidence
    from filled
    qualify
        coalesce(annotation_phase, stack_phase, other_phase)
        is distinct from lag(coalesce(annotation_phase, stack_phase, other_phase)) over (
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

annotated_step as (
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

-- a text such as step=2 is set by one thread, and the events of others go without: it holds until another number comes
metadata_step as (
    select
        trace_event.device,
        trace_event.event_ix,
        event_mark.step
    from trace_event
    inner join event_mark on trace_event.user_metadata = event_mark.user_metadata
    where event_mark.step is not null
    qualify event_mark.step is distinct from lag(event_mark.step) over (partition by trace_event.device order by trace_event.event_ix)
),

numbered as (
    select device, event_ix, step, 'annotation' as evidence from annotated_step
    union all
    select device, event_ix, step, 'user_metadata' as evidence from metadata_step
    where device not in (select annotated_step.device from annotated_step)
    union all
    select device, event_ix, step, 'mark' as evidence from by_other
    where
        evidence = 'mark'
        and device not in (select annotated_step.device from annotated_step union all select metadata_step.device from metadata_step)
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
        coalesce(bool_or(step >= 0), false) as is_numbered,
        arg_min(step, event_ix) filter (where step >= 0) as first_step
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
        coalesce(whole.is_numbered, false) as is_numbered,
        whole.first_step,
        (select any_value(numbered.evidence) from numbered where numbered.device = borders.device) as number_evidence
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
        case
            when numbered_step is not null then numbered_step
            -- the text may come with the second step only: those before it are counted
            when not is_numbered or (number_evidence = 'user_metadata' and counted_step < first_step) then nullif(counted_step, 0)
        end as step,
        case when numbered_step is not null then number_evidence else coalesce(by_other.evidence, 'stack') end as step_evidence
    from joined
    left join (select distinct device, evidence from by_other) as by_other using (device)
)

select
    device,
    event_ix as begin_event_ix,
    lead(event_ix) over (partition by device order by event_ix) as end_event_ix,
    phase,
    phase_evidence,
    step::bigint as step,
    case when step is not null then step_evidence end as step_evidence
from named
order by device, begin_event_ix
