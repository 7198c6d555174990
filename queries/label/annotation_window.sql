-- One range marked by record_function, from its START to its END, in events of its device's trace.
-- layer: label
-- grain: device, begin_annotation_ix
-- reads: annotation, trace_event
-- stored: yes
--   device: the device
--   begin_annotation_ix: its START mark
--   name: the range's name
--   begin_us: time of its START
--   end_us: time of its END; null where the recording has none
--   begin_event_ix: the first event at or after its START
--   end_event_ix: the first event at or after its END; null where there is none
--   phase: the phase its name speaks of, null where it speaks of none
--   step: the step number in its name, null where there is none
with mark as (
    select
        device,
        annotation_ix,
        name,
        stage,
        time_us,
        lead(stage) over same_name as next_stage,
        lead(time_us) over same_name as next_us
    from annotation
    window same_name as (partition by device, name order by annotation_ix)
),

opened as (
    select
        device,
        annotation_ix as begin_annotation_ix,
        name,
        time_us as begin_us,
        case when next_stage = 'END' then next_us end as end_us
    from mark
    where stage = 'START'
),

-- times tie, and a clock may step back: the first event of each new time, so that order is that of the events
event_time as (
    select
        device,
        event_ix,
        time_us
    from trace_event
    where time_us is not null
    qualify
        time_us > coalesce(
            max(time_us) over (
                partition by device order by event_ix rows between unbounded preceding and 1 preceding
            ),
            time_us - 1
        )
),

begun as (
    select
        opened.*,
        event_time.event_ix as begin_event_ix
    from opened
    asof left join event_time
        on opened.device = event_time.device and opened.begin_us <= event_time.time_us
),

ended as (
    select
        begun.*,
        event_time.event_ix as end_event_ix
    from begun
    asof left join event_time
        on begun.device = event_time.device and begun.end_us <= event_time.time_us
)

select
    device,
    begin_annotation_ix,
    name,
    begin_us,
    end_us,
    begin_event_ix,
    end_event_ix,
    case
        when regexp_matches(name, '(?i)zero_?grad') then 'zero_grad'
        when regexp_matches(name, '(?i)^optimizer\.step#|^(##\s*)?(optimizer|optim|opt)([_. ]?step)?\s*(##)?$') then 'optimizer'
        when regexp_matches(name, '(?i)^(##\s*)?(backward|bwd)([_ ]?pass)?\s*(##)?$') then 'backward'
        when regexp_matches(name, '(?i)^(##\s*)?(forward|fwd)([_ ]?pass)?\s*(##)?$') then 'forward'
        when regexp_matches(name, '(?i)^enumerate\(dataloader\)|^(##\s*)?(data|dataloader|data_loading|load_data|batch)\s*(##)?$') then 'data'
        when regexp_matches(name, '(?i)^model\.(cuda|to)\b|^(load|init|build)_?model$') then 'load'
    end as phase,
    try_cast(nullif(regexp_extract(name, '(?i)(?:^|[^a-z])(?:profiler)?(?:step|iteration|iter)\s*[#:_= -]*\s*(\d+)\s*$', 1), '') as bigint) as step
from ended
order by device, begin_annotation_ix
