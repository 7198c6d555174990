-- One size of what a backward leaves behind on a device, and how many of it a step leaves at most: gradients, so that as
-- many parameters have that size.
-- layer: label
-- grain: device, requested_bytes
-- reads: allocation
--   device: the device
--   requested_bytes: bytes asked for
--   gradient_count: allocations of that size born in one step's backward and alive after it, in the step that has most
with gradient as (
    select
        device,
        step,
        requested_bytes,
        count(*) as gradient_count
    from allocation
    where phase = 'backward' and (free_phase is distinct from 'backward' or free_step is distinct from step)
    group by device, step, requested_bytes
)

select
    device,
    requested_bytes,
    max(gradient_count) as gradient_count
from gradient
group by device, requested_bytes
