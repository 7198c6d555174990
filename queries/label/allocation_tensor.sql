-- One allocation that the recorder's roll names: the storage of a parameter, a buffer, a gradient or an optimizer state.
-- layer: label
-- grain: allocation_id
-- reads: placement, tensor, roll_seat
-- stored: yes
--   allocation_id: the allocation
--   role: parameter, buffer, gradient or optimizer_state
--   name: the parameter's or buffer's path in the model, of optimizer state its key after that; the first where several tensors share the storage
--   module: the path of the module that it belongs to; null where the name does not say
--   shape: the tensor's shape, as JSON
--   dtype: its dtype
--   tensor_count: tensors of different names or roles that share the storage
--   seat_evidence: what says which allocation had the address then: count or time, see roll_seat
with alive as (
    select
        roll_seat.device,
        roll_seat.alloc_count,
        roll_seat.time_us,
        roll_seat.seat_evidence,
        placement.placement_id,
        placement.address,
        placement.requested_bytes,
        coalesce(placement.held_bytes, placement.requested_bytes) as held_bytes
    from roll_seat
    inner join placement
        on
            roll_seat.device = placement.device
            and roll_seat.event_ix >= coalesce(placement.birth_event_ix, -1)
            and roll_seat.event_ix < coalesce(placement.free_requested_event_ix, placement.death_event_ix, 9223372036854775807)
    where not placement.is_pending_at_start
),

named as (
    select
        alive.placement_id as allocation_id,
        alive.seat_evidence,
        tensor.role,
        tensor.name,
        tensor.shape,
        tensor.dtype,
        tensor.tensor_ix,
        case tensor.role when 'parameter' then 1 when 'buffer' then 2 when 'optimizer_state' then 3 when 'gradient' then 4 end as role_order
    from tensor
    asof inner join alive
        on
            tensor.device = alive.device
            and tensor.alloc_count is not distinct from alive.alloc_count
            and tensor.time_us is not distinct from alive.time_us
            and tensor.address >= alive.address
    where
        tensor.address < alive.address + greatest(alive.held_bytes, 1)
        -- a clock may be off by a little; the bytes must then agree as well
        and (alive.seat_evidence = 'count' or tensor.storage_bytes = alive.requested_bytes)
        and tensor.role in ('parameter', 'buffer', 'optimizer_state', 'gradient')
),

chosen as (
    select
        allocation_id,
        arg_min({'role': role, 'name': name, 'shape': shape, 'dtype': dtype}, role_order * 4294967296 + tensor_ix) as tensor,
        count(distinct role || ' ' || coalesce(name, '')) as tensor_count,
        min(seat_evidence) as seat_evidence
    from named
    group by allocation_id
)

select
    allocation_id,
    tensor.role,
    tensor.name,
    case
        -- parameters that no watched model has are named after their place in the optimizer
        when regexp_matches(tensor.name, '^(group\d+\.\d+|unknown)(\.|$)') then null
        when tensor.role = 'optimizer_state' then nullif(regexp_extract(tensor.name, '^(.*)\.[^.]+\.[^.]+$', 1), '')
        else nullif(regexp_extract(tensor.name, '^(.*)\.[^.]+$', 1), '')
    end as module,
    tensor.shape,
    tensor.dtype,
    tensor_count,
    seat_evidence
from chosen
order by allocation_id
