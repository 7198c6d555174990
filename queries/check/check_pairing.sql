-- An allocation whose birth and death are not the events that follow each other at its address: the events paired once more, by SQL alone.
-- layer: check
-- grain: device, event_ix
-- reads: trace_event, placement
--   device: the device
--   event_ix: the alloc event
--   address: its address
--   fault: what is wrong, in words
with touched as (
    select
        device,
        event_ix,
        action,
        address,
        lead(action) over same_address as next_action,
        lead(event_ix) over same_address as next_event_ix,
        lead(action, 2) over same_address as second_action,
        lead(event_ix, 2) over same_address as second_event_ix
    from trace_event
    where action in ('alloc', 'free_requested', 'free_completed')
    window same_address as (partition by device, address order by event_ix)
),

paired as (
    select
        device,
        event_ix,
        address,
        -- a completion whose request was not recorded is the drop as well
        case when next_action in ('free_requested', 'free_completed') then next_event_ix end as free_requested_event_ix,
        case
            when next_action = 'free_completed' then next_event_ix
            when next_action = 'free_requested' and second_action = 'free_completed' then second_event_ix
        end as death_event_ix
    from touched
    where action = 'alloc'
)

select
    paired.device,
    paired.event_ix,
    paired.address,
    case
        when placement.placement_id is null then 'the alloc event has no allocation'
        else 'the allocation is dropped or dies at another event than its address says'
    end as fault
from paired
left join placement on paired.device = placement.device and paired.event_ix = placement.birth_event_ix
where
    placement.placement_id is null
    or placement.free_requested_event_ix is distinct from paired.free_requested_event_ix
    or placement.death_event_ix is distinct from paired.death_event_ix
order by paired.device, paired.event_ix
