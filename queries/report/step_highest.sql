-- One training step of one device, and how high it went.
-- layer: report
-- grain: device, step
-- reads: moment
--   device: the device
--   step: the step
--   event_ix: the first event of its highest point
--   allocated_bytes: bytes in blocks that the program held then
--   step_order: its place among the device's steps, the highest first
select
    device,
    try_cast(moment[6:] as bigint) as step,
    coalesce(event_ix, -1) as event_ix,
    allocated_bytes,
    row_number() over (partition by device order by allocated_bytes desc, event_ix) as step_order
from moment
where starts_with(moment, 'step:')
