-- One run of addresses reserved from one device after any event, -1 being before the first.
-- layer: ledger
-- grain: address
-- reads: reserved_range
-- parameters: of_device, at_event_ix
--   address: first address
--   size_bytes: its bytes
--   stream: the stream it belongs to
--   pool: its pool
--   is_small: whether it is of the small pool
--   is_expandable: whether it is mapped pages of an expandable segment
select
    address,
    size_bytes,
    stream,
    pool,
    is_small,
    is_expandable
from reserved_range
where
    device = of_device
    and coalesce(birth_event_ix, -1) <= at_event_ix
    and (death_event_ix is null or death_event_ix > at_event_ix)
