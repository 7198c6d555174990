-- One moment that compares with the others of its device: the beginning of a training step, all but the first one.
-- layer: ledger
-- grain: device, step
-- reads: span
--   device: the device
--   step: the step that begins
--   moment_ix: its place among the device's comparable moments, counted from 0
--   moment_count: how many the device has
--   event_ix: the step's first event; the moment is the state before it
with begun as (
    select
        device,
        step,
        min(begin_event_ix) as event_ix
    from span
    where step is not null
    group by device, step
)

-- the first step of a recording begins before anything was trained, or in the middle of one
select
    device,
    step,
    row_number() over by_step - 2 as moment_ix,
    count(*) over (partition by device) - 1 as moment_count,
    event_ix
from begun
window by_step as (partition by device order by event_ix)
qualify row_number() over by_step > 1
