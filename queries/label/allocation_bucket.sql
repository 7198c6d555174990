-- One allocation and the one bucket it belongs in.
-- layer: label
-- grain: allocation_id
-- reads: allocation, allocation_life, allocation_kind, bucket_rule
-- stored: yes
--   allocation_id: the allocation
--   device: the device
--   address: first address of its block
--   requested_bytes: what was asked for
--   held_bytes: the block given out; where the file cannot tell, the requested bytes stand in
--   bucket: the bucket
--   rule_id: the rule that put it there, see bucket_rule
--   evidence: what the rule rests on: identity, stack, lifetime or size; twin where the lifetime is another step's
--   birth_event_ix: its alloc event; null when older than the recording
--   free_requested_event_ix: when the program dropped it; null when it never did
--   death_event_ix: when its block went back to the pool; null when it never did
--   is_pending_at_start: whether the program had dropped it before the recording began, so that it only waits
select
    allocation.allocation_id,
    allocation.device,
    allocation.address,
    allocation.requested_bytes,
    allocation.held_bytes,
    bucket_rule.bucket,
    bucket_rule.rule_id,
    case
        when allocation_life.is_twin_lifetime and bucket_rule.evidence = 'lifetime' then 'twin'
        else bucket_rule.evidence
    end as evidence,
    allocation.birth_event_ix,
    allocation.free_requested_event_ix,
    allocation.death_event_ix,
    allocation.is_pending_at_start
from allocation
inner join allocation_life on allocation.allocation_id = allocation_life.allocation_id
inner join allocation_kind
    on
        allocation_life.origin = allocation_kind.origin
        and allocation_life.lifetime = allocation_kind.lifetime
        and allocation_life.stack_id is not distinct from allocation_kind.stack_id
        and allocation_life.free_stack_id is not distinct from allocation_kind.free_stack_id
        and allocation_life.phase is not distinct from allocation_kind.phase
        and allocation_life.free_phase is not distinct from allocation_kind.free_phase
        and allocation_life.size_like is not distinct from allocation_kind.size_like
        and allocation_life.tensor_role is not distinct from allocation_kind.tensor_role
        and allocation_life.module_part is not distinct from allocation_kind.loaded_as
inner join bucket_rule on allocation_kind.rule_id = bucket_rule.rule_id
order by allocation.allocation_id
