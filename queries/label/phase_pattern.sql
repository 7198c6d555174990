-- One event at which a phase begins, told by the repeating pattern of allocations alone: for devices whose events carry
-- no stack and whose annotations name neither a forward nor a backward. A step ends with the longest runs of frees
-- (zero_grad drops every gradient), and the next one begins with the sizes that the first one began with.
-- layer: label
-- grain: device, event_ix
-- reads: trace_event, stack, annotation_window, placement
--   device: the device
--   event_ix: the first event of the phase
--   phase: load, forward, backward, optimizer or zero_grad
with spoken as (
    select trace_event.device
    from trace_event
    inner join stack on trace_event.stack_id = stack.stack_id
    where stack.depth_count > 0
    group by trace_event.device
    union
    select device
    from annotation_window
    where phase in ('forward', 'backward')
),

moved as (
    select
        trace_event.device,
        trace_event.event_ix,
        trace_event.action,
        trace_event.size_bytes,
        count(*) filter (where trace_event.action = 'alloc') over so_far as alloc_ix,
        sum(case when trace_event.action = 'alloc' then trace_event.size_bytes else -trace_event.size_bytes end) over so_far as live_bytes
    from trace_event
    anti join spoken on trace_event.device = spoken.device
    where trace_event.action in ('alloc', 'free_requested')
    window so_far as (partition by trace_event.device order by trace_event.event_ix)
),

-- eight sizes in a row are a signature of a place in the program; three do for the first step, where workspaces come
-- between
signed as (
    select
        device,
        event_ix,
        alloc_ix,
        concat_ws(' ', size_bytes, lead(size_bytes, 1) over in_order, lead(size_bytes, 2) over in_order) as short_signature,
        concat_ws(
            ' ',
            size_bytes,
            lead(size_bytes, 1) over in_order, lead(size_bytes, 2) over in_order, lead(size_bytes, 3) over in_order,
            lead(size_bytes, 4) over in_order, lead(size_bytes, 5) over in_order, lead(size_bytes, 6) over in_order,
            lead(size_bytes, 7) over in_order
        ) as signature
    from moved
    where action = 'alloc'
    window in_order as (partition by device order by event_ix)
),

run as (
    select
        device,
        alloc_ix,
        count(*) as free_count,
        min(event_ix) as first_event_ix,
        max(event_ix) as last_event_ix,
        max(alloc_ix) over (partition by device) = alloc_ix as is_last
    from moved
    where action = 'free_requested'
    group by device, alloc_ix
),

-- the last run of a program may drop the whole model, so the others say what is long
long_run as (
    select run.*
    from run
    inner join (
        select
            device,
            max(free_count) as free_count
        from run
        where not is_last
        group by device
    ) as longest on run.device = longest.device
    where run.free_count * 2 >= longest.free_count and run.free_count >= 4
),

-- what follows a long run is a step's beginning if it was seen before the first one, too
repeated as (
    select
        long_run.device,
        arg_min(signed.signature, signed.event_ix) as signature,
        arg_min(signed.short_signature, signed.event_ix) as short_signature,
        min(long_run.first_event_ix) as first_run_event_ix
    from long_run
    inner join signed on long_run.device = signed.device and long_run.alloc_ix + 1 = signed.alloc_ix
    group by long_run.device
),

first_begun as (
    select
        signed.device,
        min(signed.event_ix) as event_ix,
        min(signed.alloc_ix) as alloc_ix
    from signed
    inner join repeated
        on
            signed.device = repeated.device
            and signed.short_signature = repeated.short_signature
            and signed.event_ix < repeated.first_run_event_ix
    group by signed.device
),

begun as (
    select
        device,
        event_ix,
        alloc_ix
    from first_begun
    union
    select
        signed.device,
        signed.event_ix,
        signed.alloc_ix
    from signed
    inner join repeated on signed.device = repeated.device and signed.signature = repeated.signature
),

-- one pass is a forward and a backward; a step has several where gradients accumulate
step as (
    select
        device,
        event_ix as begin_event_ix,
        alloc_ix as begin_alloc_ix,
        lead(event_ix) over (partition by device order by event_ix) as next_event_ix
    from begun
    where device in (select begun.device from begun group by begun.device having count(*) > 1)
),

ended as (
    select
        step.device,
        step.begin_event_ix,
        step.begin_alloc_ix,
        any_value(step.next_event_ix) as next_event_ix,
        max(long_run.first_event_ix) as run_event_ix,
        max(long_run.last_event_ix) as run_end_event_ix
    from step
    left join long_run
        on
            step.device = long_run.device
            and long_run.first_event_ix > step.begin_event_ix
            and long_run.last_event_ix < coalesce(step.next_event_ix, long_run.last_event_ix + 1)
    group by step.device, step.begin_event_ix, step.begin_alloc_ix
),

peak as (
    select
        ended.device,
        ended.begin_event_ix,
        arg_max(moved.event_ix, moved.live_bytes) as event_ix
    from ended
    inner join moved
        on ended.device = moved.device and moved.event_ix between ended.begin_event_ix and coalesce(ended.run_event_ix, ended.next_event_ix - 1)
    group by ended.device, ended.begin_event_ix
),

-- backward begins with the gradient of the loss itself: a single number; what has none before its peak trains nothing
turned as (
    select
        peak.device,
        peak.begin_event_ix,
        max(moved.event_ix) as event_ix,
        max(moved.alloc_ix) as alloc_ix
    from peak
    inner join moved
        on
            peak.device = moved.device
            and moved.action = 'alloc' and moved.size_bytes <= 8
            and moved.event_ix between peak.begin_event_ix and peak.event_ix
    group by peak.device, peak.begin_event_ix
),

-- a step that the recording cuts off turns after as many allocations as the first whole one
usual as (
    select
        turned.device,
        arg_min(turned.alloc_ix - ended.begin_alloc_ix, turned.begin_event_ix) as alloc_count
    from turned
    inner join ended on turned.device = ended.device and turned.begin_event_ix = ended.begin_event_ix
    group by turned.device
),

cut_off as (
    select
        ended.device,
        ended.begin_event_ix,
        moved.event_ix
    from ended
    inner join usual on ended.device = usual.device
    inner join moved
        on
            ended.device = moved.device
            and moved.action = 'alloc'
            and ended.begin_alloc_ix + usual.alloc_count = moved.alloc_ix
    where ended.run_event_ix is null and ended.next_event_ix is null
),

-- the optimizer begins after the last free before the long run
optimized as (
    select
        ended.device,
        ended.begin_event_ix,
        any_value(ended.run_event_ix) as run_event_ix,
        any_value(ended.run_end_event_ix) as run_end_event_ix,
        max(moved.event_ix) + 1 as event_ix
    from ended
    inner join turned on ended.device = turned.device and ended.begin_event_ix = turned.begin_event_ix
    inner join moved
        on
            ended.device = moved.device
            and moved.action = 'free_requested'
            and moved.event_ix > turned.event_ix and moved.event_ix < ended.run_event_ix
    group by ended.device, ended.begin_event_ix
),

-- zero_grad begins with the first free of something older than the optimizer's step
zeroed as (
    select
        optimized.device,
        optimized.begin_event_ix,
        min(placement.free_requested_event_ix) as event_ix
    from optimized
    inner join placement
        on
            optimized.device = placement.device
            and placement.free_requested_event_ix between optimized.run_event_ix and optimized.run_end_event_ix
            and placement.birth_event_ix < optimized.event_ix
    group by optimized.device, optimized.begin_event_ix
),

-- in a forward live bytes rise, in a backward they fall, and passes are alike: where they do not, nothing is told
course as (
    select
        moved.device,
        turned.begin_event_ix,
        moved.action,
        moved.event_ix < turned.event_ix as is_forward,
        moved.live_bytes,
        max(moved.live_bytes) over in_part as highest_bytes,
        min(moved.live_bytes) over in_part as lowest_bytes,
        max(moved.live_bytes) over in_pass - first_value(moved.live_bytes) over in_pass as height_bytes
    from turned
    inner join ended on turned.device = ended.device and turned.begin_event_ix = ended.begin_event_ix
    left join optimized on turned.device = optimized.device and turned.begin_event_ix = optimized.begin_event_ix
    inner join moved
        on
            turned.device = moved.device
            and moved.event_ix >= turned.begin_event_ix
            and moved.event_ix < coalesce(optimized.event_ix, ended.next_event_ix)
    window
        in_part as (partition by moved.device, turned.begin_event_ix, moved.event_ix < turned.event_ix order by moved.event_ix),
        in_pass as (
            partition by moved.device, turned.begin_event_ix order by moved.event_ix
            rows between unbounded preceding and unbounded following
        )
),

passed as (
    select
        device,
        begin_event_ix,
        count(*) filter (where action = 'alloc') as alloc_count,
        bool_or(
            case when is_forward then highest_bytes - live_bytes else live_bytes - lowest_bytes end * 2 > height_bytes
        ) as is_doubtful
    from course
    group by device, begin_event_ix
),

sure as (
    select device
    from passed
    group by device
    having not bool_or(is_doubtful) and max(alloc_count) <= 2 * min(alloc_count)
),

told as (
    -- what comes before the first step made the model, where that step is in the recording
    select
        moved.device,
        min(moved.event_ix) as event_ix,
        'load' as phase
    from moved
    inner join first_begun on moved.device = first_begun.device
    group by moved.device
    union all
    select device, begin_event_ix as event_ix, 'forward' as phase from step
    union all
    select device, event_ix, 'backward' as phase from turned
    union all
    select device, event_ix, 'backward' as phase from cut_off
    union all
    select device, event_ix, 'optimizer' as phase from optimized
    union all
    select device, event_ix, 'zero_grad' as phase from zeroed
)

-- a phase without an event of its own gives way to the next one
select
    device,
    event_ix,
    arg_max(phase, case phase when 'load' then 0 when 'forward' then 1 when 'backward' then 2 when 'optimizer' then 3 else 4 end) as phase
from told
where device in (select sure.device from sure)
group by device, event_ix
order by device, event_ix
