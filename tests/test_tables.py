"""From a snapshot's dicts to rows: given a small snapshot, expected rows.

The edge cases of the format that concern tables and placements are here; those of reading are in test_snapshot.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from tests.snapshots import annotation, block, dumped, event, frame, segment, snapshot
from tracekit import ledger
from tracekit.analysis import build
from tracekit.errors import SnapshotError
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

MIB = 1 << 20
BASE = 0x7F00_0000_0000


class Built:
    """The tables of a snapshot given as a dict."""

    def __init__(self, raw: object, folder: Path, protocol: int = 4) -> None:
        path = folder / "snapshot.pickle"
        path.write_bytes(dumped(raw, protocol))
        self.about, self.tables = build(path)

    def rows(self, table: str, *columns: str) -> list[Any]:
        picked = [[row[column] for column in columns] for row in self.tables[table].to_pylist()]
        return [row[0] if len(columns) == 1 else tuple(row) for row in picked]

    def ask(self, query: str) -> list[dict[str, Any]]:
        with Warehouse(self.tables) as warehouse:
            return warehouse.rows(query)

    def failures(self) -> dict[str, Any]:
        with Warehouse(self.tables) as warehouse:
            return {name: rows for name, rows in ledger.failures(warehouse).items() if rows}


def one_allocation(**more: Any) -> dict[str, Any]:
    """A segment made, 500 bytes asked for and kept."""
    return snapshot(
        [
            segment(
                BASE, 2 * MIB, [block(BASE, 512, requested_size=500), block(BASE + 512, 2 * MIB - 512, "inactive", 0)]
            )
        ],
        [[event("segment_alloc", BASE, 2 * MIB, time_us=1), event("alloc", BASE, 500, time_us=2, **more)]],
    )


def test_every_table_has_its_schema_and_is_sorted_by_its_key(tmp_path: Path) -> None:
    built = Built(one_allocation(frames=[frame("at::empty()"), frame("main", "train.py", 3)]), tmp_path)
    assert list(built.tables) == list(TABLES)
    for name, spec in TABLES.items():
        assert built.tables[name].schema.equals(spec.schema, check_metadata=True)
        keys = built.rows(name, *spec.key)
        assert keys == sorted(keys)


def test_every_column_has_a_doc_and_bytes_and_times_a_unit() -> None:
    for spec in TABLES.values():
        for field in spec.schema:
            metadata = field.metadata or {}
            assert metadata[b"doc"], (spec.name, field.name)
            expected = b"bytes" if field.name.endswith("_bytes") else b"us" if field.name.endswith("_us") else None
            assert metadata.get(b"unit") == expected, (spec.name, field.name)


def test_an_allocation_is_placed_in_the_block_it_got(tmp_path: Path) -> None:
    built = Built(one_allocation(), tmp_path)
    assert built.rows("placement", "address", "requested_bytes", "held_bytes", "birth_event_ix", "is_exact") == [
        (BASE, 500, 512, 1, True)
    ]
    assert built.rows("replay", "is_exact", "peak_allocated_bytes", "peak_reserved_bytes") == [(True, 512, 2 * MIB)]
    assert built.failures() == {}


def test_stacks_are_numbered_by_first_appearance_whoever_shares_the_list(tmp_path: Path) -> None:
    a, b, c = frame("a"), frame("b", "b.py", 1), frame("c", "c.py", 2)
    shared = [a, b]
    trace = [
        event("alloc", BASE, 1, frames=shared),
        event("free_requested", BASE, 1, frames=[c]),
        event("free_completed", BASE, 1, frames=[dict(a), dict(b)]),  # equal, not shared
        event("alloc", BASE, 1, frames=shared),
        event("alloc", BASE + 512, 1, frames=[]),
        event("alloc", BASE + 1024, 1),
    ]
    built = Built(snapshot([segment(BASE, 2 * MIB)], [trace]), tmp_path)
    assert built.rows("trace_event", "stack_id") == [0, 1, 0, 0, 2, None]
    assert built.rows("stack", "stack_id", "depth_count") == [(0, 2), (1, 1), (2, 0)]
    assert built.rows("stack_frame", "stack_id", "depth_ix", "frame_id") == [(0, 0, 0), (0, 1, 1), (1, 0, 2)]
    assert built.rows("frame", "name", "filename", "line") == [("a", None, None), ("b", "b.py", 1), ("c", "c.py", 2)]


def test_null_stands_where_the_snapshot_says_nothing(tmp_path: Path) -> None:
    trace = [
        event("snapshot", 0, 4096),
        event("oom", 123_456, 2048),
        event("alloc", BASE, 1, user_metadata="", compile_context="N/A"),
        event("alloc", BASE + 512, 1, user_metadata="step=2", compile_context="0/0"),
    ]
    built = Built(snapshot([segment(BASE, 2 * MIB)], [trace]), tmp_path)
    assert built.rows("trace_event", "address", "device_free_bytes", "user_metadata", "compile_context") == [
        (None, None, None, None),
        (None, 123_456, None, None),
        (BASE, None, None, None),
        (BASE + 512, None, "step=2", "0/0"),
    ]


# edge case 6
def test_unknown_keys_and_actions_are_kept_and_counted(tmp_path: Path) -> None:
    trace = [event("teleport", BASE, 1, flavour="strange"), event("alloc", BASE, 500)]
    raw = snapshot([segment(BASE, 2 * MIB, colour="blue")], [trace], weather={"sun": 1})
    raw["segments"][0]["blocks"][0]["taste"] = ["sour"]
    built = Built(raw, tmp_path)
    assert built.rows("trace_event", "action", "extra") == [("teleport", '{"flavour": "strange"}'), ("alloc", None)]
    assert built.rows("segment", "extra") == ['{"colour": "blue"}']
    assert built.rows("block", "extra") == ['{"taste": ["sour"]}']
    assert built.rows("run", "extra") == ['{"weather": {"sun": 1}}']
    assert built.rows("note", "place", "what", "occurrence_count") == [
        ("block", "key taste", 1),
        ("run", "key weather", 1),
        ("segment", "key colour", 1),
        ("trace_event", "action teleport", 1),
        ("trace_event", "key flavour", 1),
    ]


@pytest.mark.parametrize("size", [2**63, 2**64 - 1, -(2**64)])
def test_a_number_beyond_64_bits_is_kept_beside_its_column(tmp_path: Path, size: int) -> None:
    built = Built(snapshot([], [[event("oom", 1, size)]]), tmp_path)
    assert built.rows("trace_event", "size_bytes", "extra") == [(None, json.dumps({"size": size}))]
    assert built.rows("note", "what") == ["size beyond 64 bits"]


def test_a_line_number_of_all_ones_is_kept_beside_its_column(tmp_path: Path) -> None:
    built = Built(one_allocation(frames=[frame("f", "x.py", 2**64 - 1)]), tmp_path)
    assert built.rows("frame", "line", "extra") == [(None, '{"line": 18446744073709551615}')]


def test_a_value_of_the_wrong_type_is_kept_beside_its_column(tmp_path: Path) -> None:
    built = Built(snapshot([], [[event("alloc", BASE, 1) | {"stream": "seven", "time_us": 1.5}]]), tmp_path)
    assert built.rows("trace_event", "stream", "time_us", "extra") == [
        (None, None, '{"stream": "seven", "time_us": 1.5}')
    ]


# edge case 22
def test_names_that_are_no_valid_text_stay_readable(tmp_path: Path) -> None:
    built = Built(one_allocation(frames=[frame("f\ud800<script>", "\x00.py", 1)]), tmp_path)
    assert built.rows("frame", "name", "filename") == [("f\\ud800<script>", "\x00.py")]


# edge case 3
def test_history_becomes_rows_newest_first(tmp_path: Path) -> None:
    old = {
        "size": 2 * MIB,
        "state": "active_allocated",
        "history": [
            {"addr": BASE, "real_size": 700, "frames": [frame("new", "n.py", 1)], "cpp_frames": "at::empty"},
            {"addr": BASE, "real_size": 300},
        ],
    }
    raw = [{"device": 0, "address": BASE, "total_size": 2 * MIB, "allocated_size": 2 * MIB, "active_size": 2 * MIB,
            "stream": 0, "segment_type": "small", "blocks": [old]}]  # fmt: skip
    built = Built(raw, tmp_path)
    assert built.rows("block", "address", "requested_size_bytes", "stack_id") == [(BASE, 700, 0)]
    assert built.rows("block_history", "history_ix", "real_size_bytes", "stack_id", "cpp_frames") == [
        (0, 700, 0, "at::empty"),
        (1, 300, None, None),
    ]
    assert built.rows("run", "layout", "oldest_torch", "has_trace") == [("list", "1.13", False)]
    assert built.failures() == {}


# edge case 7
def test_a_free_without_its_alloc_opens_the_account(tmp_path: Path) -> None:
    trace = [event("free_requested", BASE, 500), event("free_completed", BASE, 500)]
    built = Built(snapshot([segment(BASE, 2 * MIB)], [trace]), tmp_path)
    assert built.rows("placement", "requested_bytes", "held_bytes", "birth_event_ix", "death_event_ix") == [
        (500, 512, None, 1)
    ]
    assert built.failures() == {}


# edge case 7
def test_an_alloc_at_a_live_address_means_lost_events_and_is_told(tmp_path: Path) -> None:
    trace = [event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 500), event("alloc", BASE, 600)]
    raw = snapshot(
        [
            segment(
                BASE, 2 * MIB, [block(BASE, 1024, requested_size=600), block(BASE + 1024, 2 * MIB - 1024, "inactive")]
            )
        ],
        [trace],
    )
    built = Built(raw, tmp_path)
    assert built.rows("replay", "is_exact", "first_mismatch_event_ix") == [(False, 2)]
    assert "missing" in built.ask("select reason from mismatch order by mismatch_ix")[0]["reason"]
    assert len(built.tables["placement"]) == 2


# edge case 8
def test_a_request_never_completed_waits_at_the_end(tmp_path: Path) -> None:
    trace = [event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 500), event("free_requested", BASE, 500)]
    held = [block(BASE, 512, "active_pending_free", 500), block(BASE + 512, 2 * MIB - 512, "inactive")]
    built = Built(snapshot([segment(BASE, 2 * MIB, held)], [trace]), tmp_path)
    assert built.ask("select held_bytes from ledger where moment = 'end' and bucket = 'pending_free'") == [
        {"held_bytes": 512}
    ]
    assert built.failures() == {}


# edge case 8
def test_a_completion_without_request_frees(tmp_path: Path) -> None:
    trace = [event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 500), event("free_completed", BASE, 500)]
    built = Built(snapshot([segment(BASE, 2 * MIB)], [trace]), tmp_path)
    assert built.rows("placement", "death_event_ix") == [2]
    assert built.failures() == {}


# edge case 9
def test_blocks_that_no_event_mentions_are_opening_lines(tmp_path: Path) -> None:
    held = [
        block(BASE, 512, requested_size=100),
        block(BASE + 512, 1024, "active_pending_free", 1000),
        block(BASE + 1536, 2 * MIB - 1536, "inactive"),
    ]
    built = Built(snapshot([segment(BASE, 2 * MIB, held)], [[event("snapshot", 0, 1536)]]), tmp_path)
    assert built.rows("placement", "requested_bytes", "held_bytes", "is_pending_at_start") == [
        (100, 512, False),
        (1000, 1024, True),
    ]
    assert built.failures() == {}


# edge case 15
def test_a_map_without_its_segment_counts_as_reserved_and_is_not_fatal(tmp_path: Path) -> None:
    built = Built(
        snapshot([], [[event("segment_map", BASE, 2 * MIB), event("segment_unmap", BASE, 2 * MIB)]]), tmp_path
    )
    assert built.ask("select reserved_bytes from live_bytes order by event_ix") == [
        {"reserved_bytes": 2 * MIB},
        {"reserved_bytes": 0},
    ]


# edge case 16
def test_devices_without_events_and_events_without_segments(tmp_path: Path) -> None:
    raw = snapshot([segment(BASE, 2 * MIB, device=2)], [[], [event("snapshot", 0, 0)], []])
    built = Built(raw, tmp_path)
    assert built.rows("device", "device", "event_count", "segment_count") == [(1, 1, 0), (2, 0, 1)]
    assert built.failures() == {}


# edge case 17
def test_segments_newer_than_the_trace_are_told(tmp_path: Path) -> None:
    held = [
        block(BASE, 512, requested_size=500),
        block(BASE + 512, 512, requested_size=400),
        block(BASE + 1024, 2 * MIB - 1024, "inactive"),
    ]
    trace = [event("segment_alloc", BASE, 2 * MIB), event("alloc", BASE, 500)]
    built = Built(snapshot([segment(BASE, 2 * MIB, held)], [trace]), tmp_path)
    verdict = built.rows("replay", "is_exact", "verdict")[0]
    assert verdict[0] is False or built.rows("placement", "requested_bytes") == [400, 500], verdict


# edge case 18
def test_annotations_unpaired_and_times_equal_or_falling(tmp_path: Path) -> None:
    raw = snapshot(
        [segment(BASE, 2 * MIB)],
        [
            [
                event("alloc", BASE, 1, time_us=20),
                event("free_requested", BASE, 1, time_us=20),
                event("free_completed", BASE, 1, time_us=19),
            ]
        ],
        external_annotations=[
            annotation("backward", "END", 5),
            annotation("forward", "START", 10),
            annotation("forward", "END", 20),
            annotation("optimizer", "START", 30),
        ],
    )
    built = Built(raw, tmp_path)
    assert built.ask("select name, begin_event_ix, end_event_ix, phase from annotation_window order by begin_us") == [
        {"name": "forward", "begin_event_ix": 0, "end_event_ix": 0, "phase": "forward"},
        {"name": "optimizer", "begin_event_ix": None, "end_event_ix": None, "phase": "optimizer"},
    ]


# edge case 25
def test_metadata_of_every_kind_is_text_or_null(tmp_path: Path) -> None:
    values = ["", "plain", {"step": 2}, None]
    trace = [event("snapshot", 0, 0, user_metadata=value) for value in values]
    built = Built(snapshot([], [trace]), tmp_path)
    assert built.rows("trace_event", "user_metadata") == [None, "plain", '{"step": 2}', None]


def test_later_fields_of_torch_have_their_columns(tmp_path: Path) -> None:
    """torch 2.11 to 2.15: forward_frames, pool_id, annotate, host segments and traces, internal_metadata."""
    line = '  File "model.py", line 11, in forward\n    x = self.a(x)\n'
    raw = snapshot(
        [segment(BASE, 2 * MIB, segment_pool_id=(0, 7))],
        [[
            event("annotate", BASE, 0, user_metadata="weights", internal_metadata="mallocWithAddress", pool_id=(0, 7)),
            event("alloc", BASE, 1, pool_id=(0, 0), forward_frames=['  File "t.py", line 1, in main\n', line]),
        ]],
        host_segments=[{"address": 16, "size": 4096, "frames": [frame("pin", "p.py", 2)]}],
        host_traces=[[{"action": "alloc", "addr": 16, "size": 100, "time_us": 3, "novel": 1}]],
    )  # fmt: skip
    built = Built(raw, tmp_path)
    assert built.rows("run", "oldest_torch") == ["2.15"]
    assert built.rows("segment", "pool") == ["(0,7)"]
    assert built.rows("trace_event", "pool", "internal_metadata") == [("(0,7)", "mallocWithAddress"), ("(0,0)", None)]
    (stack_id,) = [one for one in built.rows("trace_event", "forward_stack_id") if one is not None]
    lines = built.ask("select stack_id, shown from stack_line order by stack_id, depth_ix")
    assert [row["shown"] for row in lines if row["stack_id"] == stack_id] == ["model.py:11 forward", "t.py:1 main"]
    assert built.rows("host_entry", "source", "action", "address", "size_bytes", "extra") == [
        ("host_segments", None, 16, 4096, None),
        ("host_traces", "alloc", 16, 100, '{"novel": 1}'),
    ]


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_tables_do_not_depend_on_how_the_snapshot_was_written(tmp_path: Path, protocol: int) -> None:
    raw = one_allocation(frames=[frame("f", "x.py", 1)])
    one, other = Built(raw, tmp_path, 4).tables, Built(raw, tmp_path, protocol).tables
    assert all(one[name].equals(other[name]) for name in TABLES)


@hypothesis_given(
    st.lists(
        st.dictionaries(
            st.sampled_from(
                ["action", "addr", "size", "stream", "time_us", "frames", "pool_id", "user_metadata", "new"]
            ),
            st.one_of(
                st.none(),
                st.integers(-(2**70), 2**70),
                st.text(max_size=3),
                st.sampled_from(["alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "oom"]),
                st.lists(st.integers(0, 3), max_size=2),
                st.booleans(),
            ),
            max_size=6,
        ),
        max_size=20,
    )
)
def test_whatever_an_entry_holds_it_keeps_its_row_or_the_file_is_refused(
    tmp_path_factory: pytest.TempPathFactory, trace: list[dict[str, Any]]
) -> None:
    try:
        tables = Built(snapshot([], [trace]), tmp_path_factory.mktemp("any")).tables
    except SnapshotError:
        return  # an entry without an action
    assert tables["trace_event"]["event_ix"].to_pylist() == list(range(len(trace)))
    assert isinstance(tables["placement"], pa.Table)


def _bomb() -> list[Any]:
    """Thirty lists, each holding the next one twice: a billion values when unfolded."""
    value: list[Any] = ["x"]
    for _ in range(30):
        value = [value, value]
    return value


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100):
        value = [value]
    return value


def _endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value", [_bomb(), _deep(), _endless(), {(1, 2): 3}], ids=["bomb", "deep", "endless", "tuple key"]
)
@pytest.mark.parametrize("place", ["event", "metadata", "frame", "misfit"])
def test_a_value_that_cannot_be_written_is_refused(tmp_path: Path, place: str, value: Any) -> None:
    row = event("alloc", BASE, 1)
    row |= {
        "event": {"new": value},
        "metadata": {"user_metadata": value},
        "frame": {"frames": [frame("f") | {"new": value}]},
        "misfit": {"stream": value},
    }[place]
    with pytest.raises(SnapshotError):
        Built(snapshot([], [[row]]), tmp_path)


def test_keys_of_several_types_are_kept(tmp_path: Path) -> None:
    built = Built(snapshot([], [[event("alloc", BASE, 1, new={1: "a", "b": None})]]), tmp_path)
    assert built.rows("trace_event", "extra") == ['{"new": {"1": "a", "b": null}}']
