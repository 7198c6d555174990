-- One request that failed, with the last event at which the allocator had not yet given anything back for it.
-- layer: report
-- grain: device, event_ix
-- reads: oom, trace_event
--   device: the device
--   moment: its moment: oom, oom:2 and so on
--   event_ix: the oom event
--   before_event_ix: the last event before it that gave no segment back; -1 is the opening state
--   asked_bytes: what was asked for
--   requested_by: who asked
select
    oom.device,
    oom.moment,
    oom.event_ix,
    coalesce(max(trace_event.event_ix), -1) as before_event_ix,
    oom.asked_bytes,
    oom.requested_by
from oom
left join trace_event
    on
        oom.device = trace_event.device
        and oom.event_ix > trace_event.event_ix
        and trace_event.action not in ('segment_free', 'segment_unmap')
group by oom.device, oom.moment, oom.event_ix, oom.asked_bytes, oom.requested_by
order by oom.device, oom.event_ix
