-- One mark of one training step of one device: a phase or a layer begins, or the recorder took a reading. What a reading
-- there shows, by bucket, and what the truth was since the mark before it.
-- layer: report
-- grain: mark_ix
-- reads: device, span, allocation, allocation_layer, mark, mark_seat, account_at, effect, opening, trace_event, stack_shown
-- parameters: of_device, of_step
--   mark_ix: its place in the step, counted from 0
--   event_ix: the last event before it: the reading is the state after that
--   mark: what begins or ends there, or what the program calls it
--   phase: the phase it lies in
--   layer_ix: the layer that begins; null for other marks
--   reading: names of the recorder's readings that were taken there; null where none was
--   reading_bytes: what torch itself had counted as allocated then
--   allocated_bytes: what a reading there shows
--   active_bytes: those, and blocks waiting for another stream
--   reserved_bytes: bytes in segments
--   highest_bytes: the most allocated since the mark before it; null for the first one
--   highest_event_ix: the first event that reached it
--   requested_by: who asked then
--   user_frame: the nearest line of the user's own code
--   buckets: the buckets that hold anything at any mark, in the ledger's order; the same list in every row
--   bucket_bytes: requested bytes of each of them, slack, pending and cached bytes for the lines of that name
with run as materialized (
    select
        span.begin_event_ix,
        coalesce(span.end_event_ix, device.event_count) as end_event_ix,
        span.phase
    from span
    inner join device on span.device = device.device
    where span.device = of_device and span.step = of_step
),

born as materialized (
    select
        allocation.birth_event_ix,
        allocation_layer.layer_ix,
        run.begin_event_ix,
        run.phase
    from allocation
    inner join run
        on allocation.birth_event_ix >= run.begin_event_ix and allocation.birth_event_ix < run.end_event_ix
    left join allocation_layer on allocation.allocation_id = allocation_layer.allocation_id
    where allocation.device = of_device
),

layered as (
    select
        begin_event_ix,
        phase,
        layer_ix,
        min(birth_event_ix) as first_event_ix,
        max(birth_event_ix) as last_event_ix
    from born
    where layer_ix is not null
    group by begin_event_ix, phase, layer_ix
),

-- the last layer ends where something is allocated that is of no layer
ended as (
    select
        born.begin_event_ix,
        born.phase,
        min(born.birth_event_ix) as first_event_ix
    from born
    inner join (select begin_event_ix, max(last_event_ix) as last_event_ix from layered group by begin_event_ix) as last_layer
        on born.begin_event_ix = last_layer.begin_event_ix and born.birth_event_ix > last_layer.last_event_ix
    group by born.begin_event_ix, born.phase
),

-- what the recorder read within the step; a name may be a megabyte long, so it is cut before anything looks at it
reading as (
    select
        mark_seat.event_ix,
        mark_seat.mark_ix,
        regexp_replace(left(mark_seat.name, 60), '[\x00-\x1f\x7f-\x9f]', '�', 'g') as name,
        mark.allocated_bytes
    from mark_seat
    inner join mark on mark_seat.mark_ix = mark.mark_ix
    where
        mark_seat.device = of_device
        and mark_seat.event_ix between (select min(run.begin_event_ix) - 1 from run) and (select max(run.end_event_ix) - 1 from run)
),

-- the recorder names a reading by the phase that ends there; any other name is the program's own
named as (
    select
        *,
        not regexp_matches(name, '^(begin|load_model|(\d+\.)?(data|forward|backward|optimizer|zero_grad|end))$') as is_own,
        regexp_replace(regexp_replace(name, '^\d+\.', ''), '^(data|forward|backward|optimizer|zero_grad)$', 'end of \1') as mark
    from reading
),

read_at as (
    select
        event_ix,
        left(string_agg(name, ', ' order by mark_ix), 200) as reading,
        max(allocated_bytes) as reading_bytes,
        arg_max(mark, {'is_own': is_own, 'mark_ix': mark_ix}) as mark,
        bool_or(is_own) as is_own
    from named
    group by event_ix
),

listed as (
    select begin_event_ix - 1 as event_ix, coalesce(phase, 'other') as mark, phase, null as layer_ix, 1 as mark_order from run
    union all
    select first_event_ix - 1 as event_ix, 'layer ' || layer_ix as mark, phase, layer_ix, 2 as mark_order from layered
    union all
    select first_event_ix - 1 as event_ix, 'after the layers' as mark, phase, null as layer_ix, 3 as mark_order from ended
    union all
    select max(end_event_ix) - 1 as event_ix, 'end' as mark, null as phase, null as layer_ix, 0 as mark_order from run
    having count(*) > 0
    union all
    -- a name of the program's own says more than that of a boundary, and this more than the recorder's
    select read_at.event_ix, read_at.mark, run.phase, null as layer_ix, case when read_at.is_own then 4 else -1 end as mark_order
    from read_at
    asof inner join run on read_at.event_ix >= run.begin_event_ix - 1
),

-- marks at the same place are one
together as (
    select
        event_ix,
        arg_max(mark, mark_order) as mark,
        arg_max(phase, mark_order) as phase,
        arg_max(layer_ix, mark_order) as layer_ix
    from listed
    group by event_ix
),

-- of very many, as many as a picture can hold, and the highest that was read
placed as materialized (
    select
        together.*,
        read_at.reading,
        read_at.reading_bytes
    from together
    left join read_at on together.event_ix = read_at.event_ix
    qualify
        row_number() over (order by together.event_ix) % (count(*) over () // 1000 + 1) = 0
        or row_number() over (order by together.event_ix desc) = 1
        or row_number() over (order by read_at.reading_bytes desc nulls last, together.event_ix) = 1
),

numbered as materialized (
    select
        *,
        row_number() over (order by event_ix) - 1 as mark_ix,
        lag(event_ix) over (order by event_ix) as earlier_event_ix
    from placed
),

-- the running sum of what changed within the step, above what was allocated before it
change as (
    select
        (select min(numbered.event_ix) from numbered) as event_ix,
        allocated_bytes
    from opening
    where device = of_device
    union all
    select
        greatest(event_ix, (select min(numbered.event_ix) from numbered)) as event_ix,
        allocated_bytes
    from effect
    where device = of_device and event_ix <= (select max(numbered.event_ix) from numbered)
),

changed as (
    select
        event_ix,
        sum(allocated_bytes) as allocated_bytes
    from change
    group by event_ix
),

state as materialized (
    select
        running.event_ix,
        running.allocated_bytes,
        numbered.mark_ix
    from (
        select
            event_ix,
            (sum(allocated_bytes) over (order by event_ix rows unbounded preceding))::bigint as allocated_bytes
        from changed
    ) as running
    asof inner join numbered on running.event_ix <= numbered.event_ix
    where running.event_ix > numbered.earlier_event_ix
),

between_marks as (
    select
        state.mark_ix,
        any_value(most.allocated_bytes) as highest_bytes,
        min(state.event_ix) as highest_event_ix
    from state
    inner join (select mark_ix, max(allocated_bytes) as allocated_bytes from state group by mark_ix) as most
        on state.mark_ix = most.mark_ix and state.allocated_bytes = most.allocated_bytes
    group by state.mark_ix
)

select
    numbered.mark_ix,
    numbered.event_ix,
    numbered.mark,
    numbered.phase,
    numbered.layer_ix,
    numbered.reading,
    numbered.reading_bytes,
    account.allocated_bytes,
    account.active_bytes,
    account.reserved_bytes,
    between_marks.highest_bytes,
    between_marks.highest_event_ix,
    stack_shown.requested_by,
    stack_shown.user_frame,
    account.buckets,
    account.bucket_bytes
from numbered
inner join account_at(of_device, (select list(placed.event_ix) from placed)) as account on numbered.event_ix = account.event_ix
left join between_marks on numbered.mark_ix = between_marks.mark_ix
left join trace_event on trace_event.device = of_device and between_marks.highest_event_ix = trace_event.event_ix
left join stack_shown on trace_event.stack_id = stack_shown.stack_id
order by numbered.mark_ix
