-- One range marked by record_function, from its START to its END, in events of its device's trace.
-- layer: label
-- grain: device, begin_annotation_ix
-- reads: annotation
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
        event_ix,
        lead(stage) over same_name as next_stage,
        lead(time_us) over same_name as next_us,
        lead(event_ix) over same_name as next_event_ix
    from annotation
    window same_name as (partition by device, name order by annotation_ix)
)

select
    device,
    annotation_ix as begin_annotation_ix,
    name,
    time_us as begin_us,
    case when next_stage = 'END' then next_us end as end_us,
    event_ix as begin_event_ix,
    case when next_stage = 'END' then next_event_ix end as end_event_ix,
    case
        when regexp_matches(name, '(?i)zero_?grad') then 'zero_grad'
        when regexp_matches(name, '(?i)^optimizer\.step#|^(##\s*)?(optimizer|optim|opt)([_. ]?step)?\s*(##)?$') then 'optimizer'
        when regexp_matches(name, '(?i)^(##\s*)?(backward|bwd)([_ ]?pass)?\s*(##)?$') then 'backward'
        when regexp_matches(name, '(?i)^(##\s*)?(forward|fwd)([_ ]?pass)?\s*(##)?$') then 'forward'
        when regexp_matches(name, '(?i)^enumerate\(dataloader\)|^(##\s*)?(data|dataloader|data_loading|load_data|batch)\s*(##)?$') then 'data'
        when regexp_matches(name, '(?i)^model\.(cuda|to)\b|^(load|init|build)_?model$') then 'load'
    end as phase,
    try_cast(nullif(regexp_extract(name, '(?i)(?:^|[^a-z])(?:profiler)?(?:step|iteration|iter)\s*[#:_= -]*\s*(\d+)\s*$', 1), '') as bigint) as step
from mark
where stage = 'START'
order by device, begin_annotation_ix
