"""The drawn address space: given blocks, which pieces are drawn apart and which together."""

from __future__ import annotations

from collections.abc import Callable

from tests.queries import rows
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]

MIB = 1 << 20


def test_pieces_of_a_segment(given: Given) -> None:
    """In 4,000 MiB: a block with 100 MiB of slack, two tiny blocks with a tiny gap, another block, and the free rest.

    0        900   1000  1000+        2000                  4000
    |--block--|slack|tiny.tiny|--block--|------free---------|
    """
    tiny = 64 * 1024
    warehouse = given(
        device=[rows.device(5)],
        trace_event=rows.events(
            f"segment_alloc 0x0 {4000 * MIB}",
            f"alloc 0x0 {900 * MIB}",
            f"alloc {1000 * MIB:#x} {tiny}",
            f"alloc {1000 * MIB + 2 * tiny:#x} {tiny}",
            f"alloc {1000 * MIB + 3 * tiny:#x} {1000 * MIB - 3 * tiny}",
        ),
        placement=rows.placements(
            f"0x0 {900 * MIB} {1000 * MIB} 1 - -",
            f"{1000 * MIB:#x} {tiny} {tiny} 2 - -",
            f"{1000 * MIB + 2 * tiny:#x} {tiny} {tiny} 3 - -",
            f"{1000 * MIB + 3 * tiny:#x} {1000 * MIB - 3 * tiny} {1000 * MIB - 3 * tiny} 4 - -",
        ),
        reserved_range=[
            {
                "reserved_range_id": 0,
                "device": 0,
                "address": 0,
                "size_bytes": 4000 * MIB,
                "stream": 0,
                "pool": "(0,0)",
                "is_small": False,
                "is_expandable": False,
                "birth_event_ix": 0,
            }
        ],
    )
    found = warehouse.rows("from segment_piece_at(0, 4)")
    assert [
        (row["from_bytes"], row["to_bytes"], row["piece"], row["piece_count"], row["free_bytes"]) for row in found
    ] == [
        (0, 900 * MIB, "unattributed", 1, 0),
        (900 * MIB, 1000 * MIB, "block_slack", 1, 0),
        (1000 * MIB, 1000 * MIB + 3 * tiny, "several", 3, tiny),
        (1000 * MIB + 3 * tiny, 2000 * MIB, "unattributed", 1, 0),
        (2000 * MIB, 4000 * MIB, "cached", 1, 2000 * MIB),
    ]
    (segment,) = warehouse.rows("from segment_shown_at(0, 4)")
    assert (segment["size_bytes"], segment["segment_count"], segment["left_out_bytes"]) == (4000 * MIB, 1, 0)
