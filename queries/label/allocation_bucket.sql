-- One allocation and the one bucket it belongs in.
-- layer: label
-- grain: allocation_id
-- reads: allocation, allocation_trait, bucket_rule
-- stored: yes
--   allocation_id: the allocation
--   device: the device
--   address: first address of its block
--   requested_bytes: what was asked for
--   held_bytes: the block given out; where the file cannot tell, the requested bytes stand in
--   bucket: the bucket
--   rule_id: the rule that put it there, see bucket_rule
--   evidence: what the rule rests on: stack, annotation, lifetime or size; twin where the lifetime is another step's
--   birth_event_ix: its alloc event; null when older than the recording
--   free_requested_event_ix: when the program dropped it; null when it never did
--   death_event_ix: when its block went back to the pool; null when it never did
--   is_pending_at_start: whether the program had dropped it before the recording began, so that it only waits
with kind as (
    -- rules look at traits alone, so each distinct set of traits is judged once
    select distinct
        roles, free_roles, library, phase, free_phase, lifetime, operator, module_line, size_like, origin
    from allocation_trait
),

judged as (
    select
        kind.*,
        arg_min(bucket_rule.rule_id, bucket_rule.priority) as rule_id
    from kind
    inner join bucket_rule
        on
            (bucket_rule.role is null or list_has_any(kind.roles, string_split(bucket_rule.role, '|')))
            and (bucket_rule.free_role is null or list_has_any(kind.free_roles, string_split(bucket_rule.free_role, '|')))
            and (bucket_rule.library is null or regexp_full_match(kind.library, bucket_rule.library))
            and (bucket_rule.phase is null or regexp_full_match(kind.phase, bucket_rule.phase))
            and (bucket_rule.free_phase is null or regexp_full_match(kind.free_phase, bucket_rule.free_phase))
            and (bucket_rule.lifetime is null or regexp_full_match(kind.lifetime, bucket_rule.lifetime))
            and (bucket_rule.operator is null or regexp_full_match(kind.operator, bucket_rule.operator))
            and (bucket_rule.module_line is null or regexp_full_match(kind.module_line, bucket_rule.module_line))
            and (bucket_rule.size_like is null or regexp_full_match(kind.size_like, bucket_rule.size_like))
            and (bucket_rule.origin is null or regexp_full_match(kind.origin, bucket_rule.origin))
    group by all
)

select
    allocation.allocation_id,
    allocation.device,
    allocation.address,
    allocation.requested_bytes,
    allocation.held_bytes,
    bucket_rule.bucket,
    bucket_rule.rule_id,
    case
        when allocation_trait.is_twin_lifetime and bucket_rule.evidence = 'lifetime' then 'twin'
        else bucket_rule.evidence
    end as evidence,
    allocation.birth_event_ix,
    allocation.free_requested_event_ix,
    allocation.death_event_ix,
    allocation.is_pending_at_start
from allocation
inner join allocation_trait on allocation.allocation_id = allocation_trait.allocation_id
inner join judged
    on
        allocation_trait.roles = judged.roles
        and allocation_trait.free_roles = judged.free_roles
        and allocation_trait.library is not distinct from judged.library
        and allocation_trait.phase is not distinct from judged.phase
        and allocation_trait.free_phase is not distinct from judged.free_phase
        and allocation_trait.lifetime = judged.lifetime
        and allocation_trait.operator is not distinct from judged.operator
        and allocation_trait.module_line is not distinct from judged.module_line
        and allocation_trait.size_like is not distinct from judged.size_like
        and allocation_trait.origin = judged.origin
inner join bucket_rule on judged.rule_id = bucket_rule.rule_id
order by allocation.allocation_id
