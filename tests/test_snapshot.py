"""What a snapshot may be, and what becomes of everything else."""

from __future__ import annotations

import bz2
import copy
import gc
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import pickletools
import re
import struct
import subprocess
import sys
import textwrap
import tracemalloc
from collections import OrderedDict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.snapshots import Row, annotation, block, dumped, event, frame, segment, snapshot
from tracekit.errors import SnapshotError
from tracekit.snapshot import Allowance, Snapshot, plain, proof, read_snapshot

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
MIB = 1024 * 1024


def read(data: bytes | Row | list[Any]) -> Snapshot:
    """Read bytes, or the pickle of plain data."""
    return read_snapshot(io.BytesIO(data if isinstance(data, bytes) else dumped(data)))


def refusal(data: bytes | Row | list[Any]) -> SnapshotError:
    """The error that reading gives: two sentences for a person, each on one line."""
    with pytest.raises(SnapshotError) as caught:
        read(data)
    error = caught.value
    assert "\n" not in error.problem + error.remedy
    assert error.remedy
    assert len(error.problem) < 300
    return error


def contents(given: Snapshot) -> tuple[Any, ...]:
    """Everything but where it came from."""
    return (
        given.segments,
        given.device_traces,
        given.external_annotations,
        given.allocator_settings,
        given.host_segments,
        given.host_traces,
        given.extra,
    )


def lists_as_tuples(value: Any) -> Any:
    """Plain data with each list made a tuple, to compare what JSON has read."""
    if isinstance(value, dict):
        return {key: lists_as_tuples(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    return tuple(map(lists_as_tuples, value)) if isinstance(value, (list, tuple)) else value  # pyright: ignore


def as_json(raw: object) -> bytes:
    return json.dumps(raw).encode()


def xz(data: bytes) -> bytes:
    return lzma.compress(data, preset=0)


def zstd(data: bytes) -> bytes:
    return pa.Codec("zstd").compress(data, asbytes=True)


FRAMES = [frame("forward", "model.py", 12), frame("main", "train.py", 3)]


@pytest.fixture
def small() -> Row:
    """Two segments, a trace of five entries that share two stacks, a range, the settings."""
    loss = [frame("loss", "train.py", 9)]
    return snapshot(
        [
            segment(
                0x7000_0000,
                2 * MIB,
                [
                    block(0x7000_0000, 1024, requested_size=1000, frames=FRAMES),
                    block(0x7000_0400, 512, "active_pending_free", frames=loss),
                    block(0x7000_0600, 2 * MIB - 1536, "inactive", requested_size=0),
                ],
                frames=FRAMES,
            ),
            segment(0x7100_0000, 20 * MIB, segment_pool_id=(0, 1)),
        ],
        [
            [
                event("segment_alloc", 0x7000_0000, 2 * MIB, frames=FRAMES, time_us=1_795_991_980_162_975),
                event("alloc", 0x7000_0000, 1000, frames=FRAMES, time_us=1_795_991_980_162_980),
                event("alloc", 0x7000_0400, 512, frames=loss, time_us=1_795_991_980_162_990),
                event("free_requested", 0x7000_0400, 512, frames=loss, time_us=1_795_991_980_163_001),
                event("oom", 123_456, 1 << 40, frames=FRAMES, time_us=1_795_991_980_163_002),
            ]
        ],
        external_annotations=[annotation("step", "START", 5), annotation("step", "END", 9)],
    )


@pytest.fixture(scope="session")
def capture() -> Callable[[str], Path]:
    """A recording of ../shared by its name; where there is none, the test is skipped."""

    def path_of(name: str) -> Path:
        path = SHARED / name
        if not path.exists():
            pytest.skip(f"{name} is not in ../shared")
        return path

    return path_of


@pytest.fixture(scope="session")
def golden(capture: Callable[[str], Path]) -> Row:
    """The golden run as plain data."""
    return pickle.loads(lzma.decompress(capture("captures/gpt2_b8_ws8.pickle.xz").read_bytes()))  # noqa: S301


# ---------------------------------------------------------------------- what is given


def test_today_s_shape_is_kept_as_it_is(small: Row) -> None:
    given = read(small)
    assert given.segments == small["segments"]
    assert given.device_traces == small["device_traces"]
    assert given.external_annotations == small["external_annotations"]
    assert given.allocator_settings == small["allocator_settings"]
    assert (given.host_segments, given.host_traces, given.extra) == (None, None, {})


def test_the_source_says_what_was_read(small: Row, tmp_path: Path) -> None:
    path = tmp_path / "run 7.pickle.gz"
    path.write_bytes(gzip.compress(dumped(small)))
    source = read_snapshot(path).source
    assert source.name == "run 7.pickle.gz"
    assert source.byte_count == path.stat().st_size
    assert source.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (source.compression, source.serialization, source.pickle_protocol) == ("gzip", "pickle", 4)
    assert source.layout == "dict"
    assert read_snapshot(str(path)) == read_snapshot(path)


def test_the_hash_is_of_every_byte_also_of_those_a_decompressor_leaves(small: Row) -> None:
    data = bz2.compress(dumped(small)) + b"left over"
    assert read(data).source.sha256 == hashlib.sha256(data).hexdigest()
    assert read(data).source.byte_count == len(data)


def test_a_dash_is_standard_input(small: Row) -> None:
    code = "from tracekit.snapshot import read_snapshot as r; s = r('-'); print(s.source.name, len(s.device_traces[0]))"
    done = subprocess.run([sys.executable, "-c", code], input=dumped(small), capture_output=True, check=True)
    assert done.stdout.split() == [b"-", b"5"]


def test_an_open_file_is_read_from_where_it_stands_and_stays_open(small: Row, tmp_path: Path) -> None:
    path = tmp_path / "two.pickle"
    path.write_bytes(b"header" + dumped(small))
    with path.open("rb") as file:
        file.seek(6)
        assert read_snapshot(file).source.name == "two.pickle"
        assert not file.closed


class Trickle(io.RawIOBase):
    """A pipe that gives one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self.rest = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        return self.rest.read(min(size, 1))


@pytest.mark.parametrize("packed", [bytes, lzma.compress, zstd])
def test_a_pipe_may_give_less_than_is_asked(small: Row, packed: Callable[[bytes], bytes]) -> None:
    assert contents(read_snapshot(Trickle(packed(dumped(small))))) == contents(read(small))  # pyright: ignore


def test_collection_is_off_while_reading_and_left_as_it_was(small: Row) -> None:
    seen: list[bool] = []

    class Watching(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            seen.append(gc.isenabled())
            return super().read(size)

    read_snapshot(Watching(dumped(small)))
    assert not any(seen)
    assert gc.isenabled()
    refusal(b"")
    assert gc.isenabled()
    gc.disable()
    try:
        read(small)
        assert not gc.isenabled()
    finally:
        gc.enable()


# ---------------------------------------------------------------------- how it is stored


# edge case 20: protocols, compressions and JSON
@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_holds_the_same(small: Row, protocol: int) -> None:
    given = read(dumped(small, protocol))
    assert contents(given) == contents(read(small))
    assert given.source.pickle_protocol == (protocol if protocol >= 2 else 0)


@pytest.mark.parametrize(
    ("compression", "packed"),
    [(None, bytes), ("gzip", gzip.compress), ("xz", lzma.compress), ("zstd", zstd), ("bz2", bz2.compress)],
)
@pytest.mark.parametrize("serialization", ["pickle", "json"])
def test_every_compression_holds_the_same(
    small: Row, compression: str | None, packed: Callable[[bytes], bytes], serialization: str
) -> None:
    data = dumped(small) if serialization == "pickle" else as_json(small)
    given = read(packed(data))
    assert contents(given) == contents(read(small))
    assert (given.source.compression, given.source.serialization) == (compression, serialization)
    assert given.source.byte_count == len(packed(data))


@pytest.mark.parametrize("packed", [gzip.compress, lzma.compress, zstd, bz2.compress])
def test_streams_compressed_in_several_pieces_are_one(small: Row, packed: Callable[[bytes], bytes]) -> None:
    data = dumped(small)
    assert contents(read(packed(data[:100]) + packed(data[100:]))) == contents(read(small))


@pytest.mark.parametrize("begin", [b"", b"\n\t ", b"\xef\xbb\xbf"])
def test_json_may_begin_with_space_or_a_byte_order_mark(small: Row, begin: bytes) -> None:
    given = read(begin + as_json(small))
    assert contents(given) == contents(read(small))
    assert given.source.pickle_protocol is None


def test_json_keeps_big_and_strange_numbers() -> None:
    settings = {"a": 2**64 - 1, "b": float("inf")}
    assert read(as_json(snapshot(allocator_settings=settings))).allocator_settings == settings


def as_libtorch(value: Any) -> bytes:
    """Pickled as the C++ route does it: protocol 2, no frames, eight bytes for each long, empty containers filled."""
    memo: dict[str, int] = {}

    def put(text: str) -> bytes:
        slot = memo[text] = len(memo)
        return pickle.BINPUT + bytes([slot]) if slot < 256 else pickle.LONG_BINPUT + struct.pack("<I", slot)

    def text(value: str) -> bytes:
        if value in memo:
            slot = memo[value]
            return pickle.BINGET + bytes([slot]) if slot < 256 else pickle.LONG_BINGET + struct.pack("<I", slot)
        encoded = value.encode()
        return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded + put(value)

    def number(value: int) -> bytes:
        if 0 <= value < 65536:
            return pickle.BININT1 + bytes([value]) if value < 256 else pickle.BININT2 + struct.pack("<H", value)
        if -(1 << 31) <= value < 1 << 31:
            return pickle.BININT + struct.pack("<i", value)
        return pickle.LONG1 + b"\x08" + struct.pack("<q", value)

    def items(value: dict[str, Any]) -> bytes:
        pairs = b"".join(text(key) + one(item) for key, item in value.items())
        return pickle.EMPTY_DICT + pickle.MARK + pairs + pickle.SETITEMS

    written: dict[type, Callable[[Any], bytes]] = {
        dict: items,
        list: lambda value: pickle.EMPTY_LIST + pickle.MARK + b"".join(map(one, value)) + pickle.APPENDS,
        tuple: lambda value: b"".join(map(one, value)) + pickle.TUPLE2,
        bool: lambda value: pickle.NEWTRUE if value else pickle.NEWFALSE,
        float: lambda value: pickle.BINFLOAT + struct.pack(">d", value),
        int: number,
        str: text,
    }

    def one(value: Any) -> bytes:
        return written[type(value)](value)

    return pickle.PROTO + b"\x02" + one(value) + pickle.STOP


def test_the_cpp_route_s_pickle_holds_the_same(small: Row) -> None:
    small["device_traces"].append([event(f"action {number}", -(1 << 40), 3) for number in range(70_000)])
    given = read(as_libtorch(small))
    assert contents(given) == contents(read(small))
    assert given.source.pickle_protocol == 2


def test_a_number_as_key_and_a_list_as_value_do_no_harm(small: Row) -> None:
    small["ranks"] = {0: "first", 1: [1.5, None, True, ("a", ("b", ()))], None: -1, 2.5: 2**100}
    for protocol in range(6):
        assert read(dumped(small, protocol)).extra == {"ranks": small["ranks"]}


# ---------------------------------------------------------------------- the shapes of every release


def without(rows: list[Row], *keys: str) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in keys} for row in rows]


def as_torch_1_12(small: Row) -> list[Row]:
    """The bare list that torch 1.12 gives: sizes and states only."""
    segments = without(small["segments"], "requested_size", "stream", "segment_pool_id", "is_expandable", "frames")
    for one in segments:
        one["blocks"] = without(one["blocks"], "address", "requested_size", "frames")
    return segments


# edge case 1: a bare list
def test_a_bare_list_is_segments_without_a_trace(small: Row) -> None:
    given = read(small["segments"])
    assert given.segments == small["segments"]
    assert given.device_traces == []
    assert given.external_annotations == []
    assert given.allocator_settings is None
    assert given.source.layout == "list"


def test_an_idle_process_has_no_segments() -> None:
    assert read([]).segments == []
    assert read(snapshot()).device_traces == [[]]


# edge case 2: keys of the whole that are missing
@pytest.mark.parametrize("key", ["device_traces", "allocator_settings", "external_annotations", "segments"])
def test_a_part_that_is_missing_is_empty_or_none(small: Row, key: str) -> None:
    del small[key]
    given = read(small)
    assert getattr(given, key) == (None if key == "allocator_settings" else [])


# edge case 3: history
def test_a_held_block_takes_size_and_stack_from_its_newest_occupant() -> None:
    newest = {"addr": 0x1000, "real_size": 900, "frames": FRAMES, "cpp_frames": "#0 malloc\n#1 at::empty"}
    older = {"addr": 0x1000, "real_size": 77}
    held = {"size": 1024, "state": "active_allocated", "history": [newest, older]}
    [shaped] = read([segment(0x1000, 1024, [held])]).segments[0]["blocks"]
    assert shaped == held | {"address": 0x1000, "requested_size": 900, "frames": FRAMES}
    assert shaped["frames"] is shaped["history"][0]["frames"]


def test_what_a_block_says_itself_goes_before_its_history() -> None:
    history = [{"addr": 0x1000, "real_size": 900, "frames": FRAMES}]
    held = block(0x1000, 1024, requested_size=1000, history=history)
    assert read([segment(0x1000, 1024, [held])]).segments[0]["blocks"] == [held]


def test_an_inactive_block_takes_nothing_from_those_who_left() -> None:
    history = [{"addr": 0x1000, "real_size": 900, "frames": FRAMES}]
    idle = {"size": 1024, "state": "inactive", "history": history}
    [shaped] = read([segment(0x1000, 1024, [idle])]).segments[0]["blocks"]
    assert shaped == idle | {"address": 0x1000, "frames": []}


@pytest.mark.parametrize("history", [[], [{"addr": 0x1000, "real_size": 5}]])
def test_history_may_be_empty_and_may_have_no_stack(history: list[Row]) -> None:
    held = {"size": 1024, "state": "active_allocated", "history": history}
    assert read([segment(0x1000, 1024, [held])]).segments[0]["blocks"][0]["frames"] == []


# edge case 4: blocks without addresses
def test_blocks_without_addresses_stand_one_after_another(small: Row) -> None:
    given = read(as_torch_1_12(small))
    assert [one["address"] for one in given.segments[0]["blocks"]] == [0x7000_0000, 0x7000_0400, 0x7000_0600]
    assert [one["frames"] for one in given.segments[0]["blocks"]] == [[], [], []]
    assert [one["frames"] for one in given.segments] == [[], []]
    assert "requested_size" not in given.segments[0]["blocks"][0]
    assert "segment_pool_id" not in given.segments[0]


def test_a_block_written_once_and_named_thrice_has_three_addresses() -> None:
    held = {"size": 512, "state": "inactive"}
    given = read([segment(0x1000, 1536, [held, held, held])])
    assert [one["address"] for one in given.segments[0]["blocks"]] == [0x1000, 0x1200, 0x1400]


def test_a_dict_of_torch_2_0(capture: Callable[[str], Path]) -> None:
    given = read_snapshot(capture("public-snapshots/torch20_format.pickle.xz"))
    blocks = [one for each in given.segments for one in each["blocks"]]
    assert all("address" in one and "requested_size" in one and "frames" in one for one in blocks)
    assert given.device_traces[0][0]["action"] == "snapshot"
    for each in given.segments:
        assert each["blocks"][0]["address"] == each["address"]
        assert sum(one["size"] for one in each["blocks"]) == each["total_size"]


# edge case 5: entries without frames, addr or time_us
def test_an_entry_keeps_what_it_has_and_gains_nothing() -> None:
    entries = [event("alloc", 1, 2), event("oom", 3, 4), {"action": "snapshot"}]
    assert read(snapshot(traces=[entries])).device_traces == [entries]
    assert "addr" not in entries[1]
    assert "frames" not in entries[0]
    assert "time_us" not in entries[0]


# edge case 6: unknown actions and keys, at every level
def test_what_is_unknown_is_kept_where_it_stood(small: Row) -> None:
    small["device_traces"][0].append(event("workspace_snapshot", 1, 2, shape=[3, 4]))
    small["device_traces"][0][0]["frames"][0]["fx_node_op"] = "call_function"
    small["segments"][0]["registration_counter"] = 7
    small["segments"][0]["blocks"][0]["tag"] = {"who": ["knows"]}
    small["allocator_settings"]["future"] = [1]
    small["external_annotations"][0]["color"] = "red"
    small["trace_alloc_overflowed"] = [True]
    given = read(small)
    assert given.device_traces == small["device_traces"]
    assert given.segments == small["segments"]
    assert given.allocator_settings == small["allocator_settings"]
    assert given.external_annotations == small["external_annotations"]
    assert given.extra == {"trace_alloc_overflowed": [True]}


def test_host_memory_is_kept() -> None:
    host = [{"addr": 5, "size": 6}]
    entries = [[event("alloc", 5, 6, frames=FRAMES)], []]
    given = read(snapshot(host_segments=host, host_traces=entries))
    assert (given.host_segments, given.host_traces, given.extra) == (host, entries, {})
    assert "nested more than 64" in refusal(snapshot(host_traces=[[{"x": nested(70)}]])).problem


def test_what_all_entries_share_is_not_walked_for_each() -> None:
    stack = [frame(f"frame {number}") for number in range(100)]
    entries = [event("alloc", 5, 6, frames=stack)] * 100_000
    given = read(snapshot(traces=[entries], host_traces=[entries]))
    assert len(given.device_traces[0]) == 100_000
    assert len(given.host_traces or []) == 1


HELD = block(0x1000, 512)
CASES: dict[str, Row] = {
    # edge case 7: frees of what was never allocated, and an alloc where something lives
    "unmatched": snapshot(
        [segment(0x1000, 512, [HELD])],
        [[event("free_requested", 1, 2), event("free_completed", 1, 2), event("alloc", 5, 2), event("alloc", 5, 2)]],
    ),
    # edge case 8: one half of a free
    "half a free": snapshot(traces=[[event("free_requested", 1, 2), event("free_completed", 3, 2)]]),
    # edge case 9: blocks that no entry mentions
    "never mentioned": snapshot([segment(0x1000, 1024, [HELD, block(0x1200, 512, "active_pending_free")])]),
    # edge case 10: the stale request of an inactive block
    "stale request": snapshot(
        [segment(0x1000, 1024, [block(0x1000, 512, "inactive", 4096), block(0x1200, 512, "inactive", 0)])]
    ),
    # edge case 11: -1 for no limit; a threshold that is an int
    "settings": snapshot(allocator_settings={"max_split_size": -1, "garbage_collection_threshold": 0}),
    # edge case 12: divisions by text, or none at all
    "divisions": snapshot(allocator_settings={"roundup_power2_divisions": {"1": 4, "32768": 0}}),
    "no divisions": snapshot(allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "x:y"}),
    # edge case 14: one expandable segment in several pieces, with a hole, not aligned
    "pieces": snapshot(
        [segment(0x1001, 512, is_expandable=True), segment(0x9001, 1024, is_expandable=True)],
        [[event("segment_map", 0x1001, 512), event("segment_map", 0x9001, 1024)]],
    ),
    # edge case 15: mapped memory without a segment, and a hole made in the middle
    "unmapped": snapshot(traces=[[event("segment_map", 0, 6 * MIB), event("segment_unmap", 2 * MIB, 2 * MIB)]]),
    # edge case 16: idle devices; segments without a trace and the reverse; more traces than devices
    "idle": snapshot([segment(0x1000, 512, device=2)], [[], [event("snapshot", 0, 0)], [], [event("alloc", 1, 2)]]),
    # edge case 17: a trace older than its segments, and the mark of an earlier snapshot
    "older trace": snapshot([segment(0x1000, 512, [HELD])], [[event("snapshot", 0, 512), event("alloc", 0x9000, 5)]]),
    # edge case 18: times that stand still or run back; ranges without their other end
    "time": snapshot(
        traces=[[event("alloc", 1, 2, time_us=9), event("alloc", 3, 2, time_us=9), event("alloc", 5, 2, time_us=8)]],
        external_annotations=[annotation("a", "END", 3), annotation("b", "START", 1)],
    ),
    # edge case 22: what C++ frames look like
    "names": snapshot(
        traces=[
            [
                event(
                    "alloc",
                    1,
                    2,
                    frames=[
                        frame("std::" + "vector<" * 400 + "int" + ">" * 400),
                        frame("at::native::add() [clone .cold]", "offloadstuff.c", 0),
                        frame("gr\u00f6\u00dfe\ufffd", "C:\\train\\model.py", 2**64 - 1),
                        frame("undecodable", "caf\udce9.py", 7),
                    ],
                )
            ]
        ]
    ),
    # edge case 23: Python frames only, C++ frames only, neither, one among the others
    "kinds of frames": snapshot(
        traces=[[event("alloc", 1, 2, frames=stack) for stack in (FRAMES, [frame("at::empty")], [], FRAMES[:1] * 2)]]
    ),
    # edge case 24: a free under its allocation's stack, or under another malloc's
    "whose stack": snapshot(
        traces=[
            [
                event("alloc", 1, 2, frames=FRAMES),
                event("free_requested", 1, 2, frames=FRAMES),
                event("free_completed", 1, 2, frames=[frame("another")]),
            ]
        ]
    ),
    # edge case 25: contexts and metadata that change within a trace
    "mixed": snapshot(
        traces=[
            [
                {"action": "alloc", "addr": 1, "size": 2, "stream": 0},
                event("alloc", 3, 2, compile_context="0/0", user_metadata={"layer": 3}, category="activation"),
                event("alloc", 5, 2, user_metadata='{"layer": 3}', frames=[]),
                event("alloc", 7, 2, user_metadata=""),
            ]
        ]
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_what_does_not_add_up_is_read_all_the_same(name: str, protocol: int) -> None:
    given = read(dumped(CASES[name], protocol))
    assert given.segments == CASES[name]["segments"]
    assert given.device_traces == CASES[name]["device_traces"]
    assert given.external_annotations == CASES[name]["external_annotations"]
    assert given.allocator_settings == CASES[name]["allocator_settings"]


# edge case 13: pools as pairs or lists
def test_a_segment_s_pool_is_a_tuple_however_it_was_written(small: Row) -> None:
    small["segments"][0]["segment_pool_id"] = [0, 3]
    given = read(small)
    assert [one["segment_pool_id"] for one in given.segments] == [(0, 3), (0, 1)]
    small["device_traces"][0][0]["pool_id"] = [0, 3]
    assert read(small).device_traces[0][0]["pool_id"] == [0, 3]


# edge case 19: shared frames
@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_stack_that_the_file_shares_is_one_object(small: Row, protocol: int) -> None:
    given = read(dumped(small, protocol))
    first, second = (given.device_traces[0][index]["frames"] for index in (0, 1))
    assert first is second
    assert first is given.segments[0]["blocks"][0]["frames"]
    assert first is not given.device_traces[0][2]["frames"]


# edge case 20: negative streams, eight-byte integers
def test_streams_may_be_negative_and_addresses_wide() -> None:
    entries = [event("alloc", (1 << 62) + 1, 1 << 40, stream=-(1 << 62)) for _ in range(3)]
    assert read(snapshot(traces=[entries])).device_traces == [entries]


# edge case 21: padding
@pytest.mark.parametrize("count", range(4))
def test_up_to_three_zero_bytes_may_follow(small: Row, count: int) -> None:
    assert contents(read(dumped(small) + bytes(count))) == contents(read(small))


# ---------------------------------------------------------------------- real files


def test_a_real_recording_is_the_same_however_it_is_stored(golden: Row) -> None:
    wanted = contents(read(golden))
    for protocol in range(2, 6):
        assert contents(read(dumped(golden, protocol))) == wanted
    for packed in (gzip.compress, xz, zstd, bz2.compress):
        assert contents(read(packed(dumped(golden)))) == wanted
    assert lists_as_tuples(contents(read(as_json(golden)))) == lists_as_tuples(wanted)
    assert contents(read(as_libtorch(golden))) == wanted


def test_a_real_recording_shares_its_stacks(golden: Row) -> None:
    given = read(golden)
    lists = {id(entry["frames"]) for entry in given.device_traces[0]}
    assert len(given.device_traces[0]) == 7058
    assert len(lists) < 5000


def test_every_shared_recording_is_read(capture: Callable[[str], Path]) -> None:
    for folder in ("captures", "public-snapshots"):
        for path in sorted(capture(folder).glob("*.pickle.xz")):
            if path.stat().st_size > 200_000:
                continue  # the few long ones take as long as all others
            raw = pickle.loads(lzma.decompress(path.read_bytes()))  # noqa: S301
            given = read_snapshot(path)
            assert given.device_traces == raw["device_traces"], path.name
            if "torch20" not in path.name:  # one of the others has lists for pools
                assert lists_as_tuples(given.segments) == lists_as_tuples(raw["segments"]), path.name


# ---------------------------------------------------------------------- what is no snapshot


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (gzip.compress(b""), "empty"),
        (bytes(4096), "zero byte"),
        (b"\x89PNG\r\n\x1a\n" + bytes(50), "picture"),
        (b"PK\x03\x04" + bytes(50), "torch.save"),
        (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2), "torch.save"),
        (b"<!DOCTYPE html>\n<html>", "HTML"),
        (b"  <html>", "HTML"),
        (b"PAR1" + bytes(50), "Parquet"),
        (b"%PDF-1.4", "PDF"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
        (b"step,loss\n1,2.5\n", "text"),
        (b"\x01\x02\x03\x04", "some other kind of file"),
        (gzip.compress(lzma.compress(b"x")), "compressed twice"),
        (zstd(gzip.compress(b"x")), "compressed twice"),
        (as_json({"traceEvents": []}), "torch.profiler"),
        (as_json({"epoch": 1, "loss": 2}), "its keys: epoch, loss"),
        (dumped({"model": 1}), "neither segments nor device_traces"),
        (dumped({}), "its keys: none"),
        (dumped({(1, 2): 3, "a\nb": 4}), "its keys: a key that is a tuple, a?b"),
        (dumped(7), "holds an int"),
        (dumped(None), "holds None"),
        (b"[1, 2]", "segments[0] is an int, not a dict"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"segments": ', "not JSON at line 1, column 14"),
        (b'{"segments": [], "x": "\xff"}', "damaged"),
        (b'{"segments": [], "x": ' + b"9" * 10_000 + b"}", "damaged"),
        (b"{} {}", "not JSON"),
    ],
)
def test_another_file_is_told_by_what_it_seems_to_be(data: bytes, says: str) -> None:
    assert says in refusal(data).problem


def test_a_file_that_cannot_be_opened(tmp_path: Path) -> None:
    for path, says in ((tmp_path / "none.pickle", "no such file"), (tmp_path, "folder"), (Path("a\0b"), "cannot be")):
        with pytest.raises(SnapshotError, match=says):
            read_snapshot(path)


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    path = tmp_path / "mine.pickle"
    path.write_bytes(b"x")
    path.chmod(0)
    with pytest.raises(SnapshotError, match="may not be read"):
        read_snapshot(path)


def test_a_file_open_for_text(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    with path.open() as file, pytest.raises(SnapshotError, match="not bytes"):
        read_snapshot(file)  # pyright: ignore[reportArgumentType]


def test_a_name_goes_before_the_problem_and_cannot_break_its_line(tmp_path: Path) -> None:
    path = tmp_path / "a\nb\x1b[31m.pickle"
    path.write_bytes(b"")
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(path)
    assert caught.value.problem == "a?b?[31m.pickle: is empty (0 bytes)"


@pytest.mark.parametrize("packed", [bytes, gzip.compress, lzma.compress, zstd, bz2.compress])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.99])
def test_a_file_cut_off_anywhere(small: Row, packed: Callable[[bytes], bytes], share: float) -> None:
    data = packed(dumped(small))
    error = refusal(data[: int(len(data) * share)])
    assert "cut off" in error.problem + error.remedy


def test_every_cut_of_a_pickle_is_refused(small: Row) -> None:
    for protocol in range(6):
        data = dumped(small, protocol)
        for length in range(len(data)):
            refusal(data[:length])


@pytest.mark.parametrize("rest", [bytes(4), b"\0\0x", b"x", b"N."])
def test_nothing_else_may_follow_the_pickle(small: Row, rest: bytes) -> None:
    assert f"goes on for {len(rest)} bytes" in refusal(dumped(small) + rest).problem


def changed(raw: Row, *path: str | int, to: Any) -> Row:
    raw = copy.deepcopy(raw)
    at: Any = raw
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return raw


@pytest.mark.parametrize(
    ("path", "to", "says"),
    [
        (["segments"], {}, "segments is a dict, not a list"),
        (["segments", 1], [], "segments[1] is a list, not a dict"),
        (["segments", 1, "address"], "x", "segments[1].address is a str, not an int"),
        (["segments", 1, "address"], True, "segments[1].address is a bool, not an int"),
        (["segments", 1, "total_size"], 1.0, "segments[1].total_size is a float, not an int"),
        (["segments", 1, "stream"], None, "segments[1].stream is None, not an int"),
        (["segments", 1, "device"], 1 << 63, "segments[1].device is an int of more than 64 bits"),
        (["segments", 1, "is_expandable"], 1, "segments[1].is_expandable is an int, not a bool"),
        (["segments", 1, "segment_pool_id"], 7, "segments[1].segment_pool_id is an int, not a tuple"),
        (["segments", 1, "segment_pool_id"], [1, "x"], "segments[1].segment_pool_id is not a pair of ints"),
        (["segments", 1, "segment_pool_id"], (1, 2, 3), "segments[1].segment_pool_id is not a pair of ints"),
        (["segments", 1, "blocks"], None, "segments[1].blocks is None, not a list"),
        (["segments", 1, "frames"], {}, "segments[1].frames is a dict, not a list"),
        (["segments", 1, "blocks", 0], "b", "segments[1].blocks[0] is a str, not a dict"),
        (["segments", 1, "blocks", 0, "size"], "5", "segments[1].blocks[0].size is a str, not an int"),
        (["segments", 1, "blocks", 0, "state"], 5, "segments[1].blocks[0].state is an int, not a str"),
        (["segments", 1, "blocks", 0, "history"], 5, "segments[1].blocks[0].history is an int, not a list"),
        (
            ["segments", 1, "blocks", 0, "history"],
            [{"addr": 1}, 5],
            "segments[1].blocks[0].history[1] is an int, not a dict",
        ),
        (["device_traces"], {}, "device_traces is a dict, not a list"),
        (["device_traces", 0], {}, "device_traces[0] is a dict, not a list"),
        (["device_traces", 0, 3], [], "device_traces[0][3] is a list, not a dict"),
        (["device_traces", 0, 3, "action"], 3, "device_traces[0][3].action is an int, not a str"),
        (["external_annotations"], None, "external_annotations is None, not a list"),
        (["external_annotations", 1], 4, "external_annotations[1] is an int, not a dict"),
        (["external_annotations", 1, "time_us"], "4", "external_annotations[1].time_us is a str, not an int"),
        (["allocator_settings"], [], "allocator_settings is a list, not a dict"),
        (["host_traces"], {}, "host_traces is a dict, not a list"),
    ],
)
@pytest.mark.parametrize("as_bytes", [dumped, as_json], ids=["pickle", "json"])
def test_a_wrong_type_is_named_by_its_place(
    small: Row, path: list[str | int], to: Any, says: str, as_bytes: Callable[[Row], bytes]
) -> None:
    assert refusal(as_bytes(changed(small, *path, to=to))).problem == f"-: {says}"


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (["segments", 0, "address"], "segments[0] has no address"),
        (["segments", 0, "total_size"], "segments[0] has no total_size"),
        (["segments", 0, "blocks"], "segments[0] has no blocks"),
        (["segments", 0, "blocks", 2, "size"], "segments[0].blocks[2] has no size"),
        (["segments", 0, "blocks", 2, "state"], "segments[0].blocks[2] has no state"),
        (["device_traces", 0, 4, "action"], "device_traces[0][4] has no action"),
    ],
)
def test_what_must_be_there_is_missed_by_its_place(small: Row, path: list[str | int], says: str) -> None:
    at: Any = small
    for step in path[:-1]:
        at = at[step]
    del at[path[-1]]
    assert refusal(small).problem == f"-: {says}"


# ---------------------------------------------------------------------- what may do harm


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return print, ("harm",)


def inside(value: object) -> object:
    return snapshot(extra=[value])


def bare(value: object) -> object:
    return value


# edge case 21: a pickle that runs a program
@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("wrapped", [bare, inside])
def test_code_is_refused_by_its_name(
    wrapped: Callable[[object], object], protocol: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = refusal(pickle.dumps(wrapped(Evil()), protocol))
    name = "builtins.print" if protocol >= 3 else "__builtin__.print"
    assert f"asks for {name}, which is code" in error.problem
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "program",
    [
        b"cposix\nsystem\np0\n(Vecho harm\np1\ntp2\nRp3\n.",
        b"\x80\x02cposix\nsystem\nq\x00X\x09\x00\x00\x00echo harmq\x01\x85q\x02Rq\x03.",
        b"\x80\x04\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x09echo harm\x94\x85\x94R\x94.",
    ],
)
def test_a_shell_command_is_refused_by_its_name(program: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    assert "asks for posix.system, which is code" in refusal(program).problem
    assert capfd.readouterr().out == ""


def test_a_name_from_a_pickle_cannot_break_the_line() -> None:
    assert "asks for os?.a?[0m, which" in refusal(b"\x80\x04cos\x07\na\x1b[0m\n.").problem


def test_a_name_made_from_pieces_of_the_memo_is_still_named() -> None:
    program = b"\x80\x04\x8c\x06system\x94\x8c\x05posix\x940" + b"."
    assert "POP" in refusal(program).problem
    program = b"\x80\x04](\x8c\x06system\x94\x8c\x05posix\x94h\x01h\x00\x93e."
    assert "posix.system" in refusal(program).problem


@pytest.mark.parametrize("protocol", range(2, 6))
def test_even_a_harmless_class_is_refused(small: Row, protocol: int) -> None:
    small["x"] = OrderedDict(a=1)
    assert "collections.OrderedDict" in refusal(pickle.dumps(small, protocol)).problem


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (dumped(b"bytes"), "holds bytes"),
        (dumped(bytearray(b"bytes"), 5), "holds bytes"),
        (dumped({1, 2}), "holds a set"),
        (dumped(frozenset({1, 2})), "holds a set"),
        (b"\x80\x04\x82\x01.", "extension registry"),
        (b"\x80\x05\x97.", "buffer kept outside"),
        (b"\x80\x04Pid\n.", "kept outside of it"),
        (b"\x80\x04\x8c\x02idQ.", "kept outside of it"),
        (b"\x80\x02U\x03abc.", "text of Python 2"),
        (b"\x80\x02cos\nsystem\n(tR.", "os.system"),
        (b"\x80\x02(ios\nsystem\n.", "os.system"),
        (b"\x80\x04]2a.", "DUP"),
        (b"\x80\x04N)R.", "REDUCE"),
        (b"\x80\x04}}b.", "BUILD"),
        (b"\x80\x04\x80\x04].", "PROTO"),
        (b"\x80\x04]\xff.", "0xff, no pickle instruction"),
        (b"\x80\x07].", "protocol 7"),
        (b"\x80", "cut off"),
        (b"\x80\x04", "cut off"),
        (b"\x80\x04.", "damaged"),
        (b"\x80\x04(.", "damaged"),
        (b"\x80\x04u.", "damaged"),
        (b"\x80\x04]h\x05a.", "damaged"),
        (b"\x80\x04}]Ns.", "damaged"),
        (b"\x80\x04\x8c\x02\xff\xfe.", "damaged"),
        (b"\x80\x04\x93.", "damaged"),
    ],
)
def test_an_instruction_that_builds_no_plain_data_is_refused(program: bytes, says: str) -> None:
    assert says in refusal(program).problem


def long(length: int, prefix: bytes, size: int) -> bytes:
    return b"\x80\x04" + prefix + length.to_bytes(size, "little") + b"abc."


HUNGRY: dict[str, bytes] = {
    "memo slot": b"\x80\x02]r\xff\xff\xff\x7f.",
    "memo slot of 24 bits": b"\x80\x02]r\x00\x00\xff\x00.",
    "memo slot in words": b"(lp99999999999\n.",
    "memo slot in more words": b"(lp" + b"9" * 5000 + b"\n.",
    "memo slot below zero": b"(lp-1\n.",
    "frame": long((1 << 63) - 1, b"\x95", 8),
    "frame beyond all numbers": long((1 << 64) - 1, b"\x95", 8),
    "text": long(0xFFFF_FFFF, b"X", 4),
    "text of 64 bits": long(1 << 62, b"\x8d", 8),
    "short text": long(200, b"\x8c", 1),
    "number": long(0x7FFF_FFFF, b"\x8b", 4),
    "number below zero": long(0xFFFF_FFFF, b"\x8b", 4),
    "short number": long(200, b"\x8a", 1),
    "bytes": long(0xFFFF_FFFF, b"B", 4),
    "bytearray": long(1 << 62, b"\x96", 8),
    "frame in a frame": b"\x80\x04\x95\x0b" + bytes(7) + b"\x95\x01" + bytes(7) + b"N.",
    "instruction out of its frame": b"\x80\x04\x95\x02" + bytes(7) + b"]X\x01\x00\x00\x00a.",
    "text out of its frame": b"\x80\x04\x95\x04" + bytes(7) + b"\x8c\x05abcde.",
}


@contextmanager
def at_most(byte_count: int) -> Generator[None]:
    """Fail where Python allocates more than so many bytes at a time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < byte_count
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", HUNGRY)
def test_a_program_cannot_ask_for_memory_it_does_not_fill(name: str) -> None:
    with at_most(16 * MIB):
        assert re.search("cut off|damaged|holds bytes", refusal(HUNGRY[name]).problem)


@pytest.mark.skipif(sys.platform != "linux", reason="others count memory otherwise")
def test_a_memo_slot_of_billions_costs_the_process_nothing() -> None:
    resource = pytest.importorskip("resource")
    code = """
        import io, resource, sys
        from tracekit.errors import SnapshotError
        from tracekit.snapshot import read_snapshot
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            read_snapshot(io.BytesIO(bytes.fromhex(sys.argv[1])))
        except SnapshotError as error:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), HUNGRY["memo slot"].hex()],
        capture_output=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    assert int(done.stdout) < 20_000  # KiB on Linux


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_deep_nesting_is_refused(small: Row) -> None:
    deep = b"]" * 200_000 + b"a" * 199_999
    assert "segments[0] is a list" in refusal(b"\x80\x04" + deep + b".").problem
    assert "x is nested more than 64 deep" in refusal(b"\x80\x04}(\x8c\x08segments]\x8c\x01x" + deep + b"u.").problem
    assert "nested too deeply" in refusal(b'{"segments": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}").problem
    for depth, is_read in ((60, True), (70, False)):
        value = nested(depth)
        for place in (small, small["segments"][0], small["segments"][0]["blocks"][0], small["external_annotations"][0]):
            place["x"] = value
            assert is_read or "nested more than 64 deep" in refusal(small).problem
            if is_read:
                read(small)
            del place["x"]


def test_lists_of_lists_that_unfold_without_end_are_refused() -> None:
    laughs: list[Any] = ["ha"]
    for _ in range(50):
        laughs = [laughs] * 10
    assert "until x has far more values than the file has bytes" in refusal(snapshot(x=laughs)).problem
    trace = [event("alloc", 1, 2)] * 2000
    assert "far more values" in refusal(snapshot() | {"device_traces": [trace] * 2000}).problem
    blocks = [block(1, 2)] * 2000
    assert "far more values" in refusal(snapshot([segment(1, 2) | {"blocks": blocks}] * 2000)).problem


def test_what_holds_itself_does_not_hang(small: Row) -> None:
    small["self"] = small
    assert "self is nested more than 64 deep" in refusal(small).problem
    ring: list[Any] = []
    ring.append(ring)
    assert "is a list, not a dict" in refusal(pickle.dumps(ring)).problem
    assert "segments[0] is a list" in refusal(pickle.dumps(snapshot() | {"segments": ring})).problem
    assert "device_traces[0][0] is a list" in refusal(pickle.dumps(snapshot() | {"device_traces": ring})).problem


def tuples_of_tuples(depth: int, op: bytes) -> bytes:
    """A key made of `depth` tuples, each of the last one twice (TUPLE2, through the memo) or once (TUPLE1)."""
    twice = b"h\x00h\x00\x86q\x00"
    return b"\x80\x02}N\x85q\x00" + (twice if op == b"\x86" else b"\x85") * depth + b"Ns."


@pytest.mark.parametrize(("depth", "op"), [(60, b"\x86"), (1_000_000, b"\x85")], ids=["for ever", "stack overflow"])
def test_a_key_that_is_hard_to_hash_is_refused_before_it_is_hashed(depth: int, op: bytes) -> None:
    assert "dict key that is a tuple" in refusal(tuples_of_tuples(depth, op)).problem


def test_keys_that_all_collide_are_refused_before_they_do() -> None:
    modulus = sys.hash_info.modulus
    keys = {modulus * number: None for number in range(1, 3)}
    assert read(snapshot(x=keys)).extra == {"x": keys}
    numbers = b"".join(
        pickle.LONG1 + b"\x0a" + (modulus * number).to_bytes(10, "little") + b"N" for number in range(1, 200_000)
    )
    assert "dict key that is an int" in refusal(b"\x80\x02}(" + numbers + b"u.").problem


def test_a_number_of_megabytes_is_refused(small: Row) -> None:
    small["x"] = 1 << 100_000
    assert "holds a number of" in refusal(small).problem
    assert "holds a number of" in refusal(b"(dI0x" + b"f" * 10_000 + b"\n.").problem


# ---------------------------------------------------------------------- what never ends


@pytest.mark.parametrize(
    "packed", [gzip.compress, lzma.compress, zstd, bz2.compress], ids=["gzip", "xz", "zstd", "bz2"]
)
def test_a_bomb_is_refused_while_it_unfolds(packed: Callable[[bytes], bytes]) -> None:
    bomb = packed(b"\x80\x04" + b"]" * (70 * MIB))
    with at_most(200 * MIB):
        assert "unfolds to more than 1000 times" in refusal(bomb + bomb if packed is gzip.compress else bomb).problem


class Endless(io.RawIOBase):
    """A file without an end, which keeps count of what was taken from it."""

    def __init__(self, begin: bytes, rest: bytes) -> None:
        self.begin, self.rest, self.taken = begin, rest, 0

    def read(self, size: int = -1, /) -> bytes:
        data = (self.begin if not self.taken else b"") + self.rest * size
        self.taken += size
        return data[:size]


def test_a_stream_without_end_is_read_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    endless: Any = Endless(b"\x80\x04", b"]")
    with pytest.raises(SnapshotError, match=r"holds more than 8\.0 MiB") as caught:
        read_snapshot(endless, limit_bytes=8 * MIB)
    assert endless.taken < 16 * MIB
    assert "TRACEKIT_READ_LIMIT" in caught.value.remedy
    monkeypatch.setenv("TRACEKIT_READ_LIMIT", "4MiB")
    with pytest.raises(SnapshotError, match=r"holds more than 4\.0 MiB"):
        read_snapshot(endless)
    monkeypatch.setenv("TRACEKIT_READ_LIMIT", "much")
    with pytest.raises(SnapshotError, match="'much' is not a size"):
        read_snapshot(endless)


def test_what_follows_a_compressed_stream_may_not_be_endless_either(small: Row) -> None:
    endless: Any = Endless(bz2.compress(dumped(small)), b"x")
    with pytest.raises(SnapshotError, match="holds more than"):
        read_snapshot(endless, limit_bytes=8 * MIB)


def test_a_stream_of_nothing_known_is_left_at_once() -> None:
    zeros: Any = Endless(b"", b"\0")
    with pytest.raises(SnapshotError, match="zero byte"):
        read_snapshot(zeros)
    assert zeros.taken <= 2 * MIB


# ---------------------------------------------------------------------- properties

patient = settings(deadline=None)  # other work on the machine is no failure
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
keys = st.text() | st.integers(-(1 << 59), 1 << 59) | st.none() | st.booleans()
plain_data = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.tuples(st.integers(0, 65_535), st.integers(0, 65_535))
        | st.dictionaries(keys, inner)
        | inner.map(lambda item: [item] * 3)
    ),
    max_leaves=30,
)


@patient
@given(plain_data, st.integers(0, 5))
def test_plain_data_survives_every_protocol(value: Any, protocol: int) -> None:
    for data in (pickle.dumps(value, protocol), pickletools.optimize(pickle.dumps(value, protocol))):
        assert plain.load_pickle(io.BytesIO(data))[0] == value


PLAIN_OPCODES = {
    "PROTO FRAME STOP MARK MEMOIZE BINPUT LONG_BINPUT PUT BINGET LONG_BINGET GET NONE NEWTRUE NEWFALSE INT LONG BININT",
    "BININT1 BININT2 LONG1 LONG4 FLOAT BINFLOAT UNICODE SHORT_BINUNICODE BINUNICODE BINUNICODE8 EMPTY_TUPLE TUPLE",
    "TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST LIST APPEND APPENDS EMPTY_DICT DICT SETITEM SETITEMS",
}
ALLOWED = set(" ".join(PLAIN_OPCODES).split())
REFUSED_BY_MACHINE = {"GLOBAL", "STACK_GLOBAL", "INST", "PERSID", "BINPERSID"}
SEEDS = [
    dumped(
        snapshot([segment(1, 2, frames=FRAMES)], [[event("alloc", 1 << 40, 5, frames=FRAMES, time_us=1 << 50)] * 3]),
        protocol,
    )
    for protocol in range(6)
] + [
    as_libtorch(snapshot([segment(1, 2)], [[event(str(number), 1 << 40, 70_000) for number in range(300)]])),
    dumped({str(number): [number, (number, 0), -number, number / 7, 2**70] for number in range(100)}),
    pickle.dumps([Evil(), {1: (2, 3)}], 4),
]

seeds = st.sampled_from(SEEDS)
edits = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.binary(max_size=12), st.integers(0, 6)), max_size=5)


def edited(data: bytes, changes: list[tuple[float, bytes, int]]) -> bytes:
    """Some bytes, at some places, in the place of some others."""
    for where, new, removed in changes:
        at = int(where * len(data))
        data = data[:at] + new + data[at + removed :]
    return data


def is_proven(data: bytes) -> bool:
    try:
        proof.prove(memoryview(data))
    except SnapshotError:
        return False
    return True


@pytest.fixture(params=["one engine", "both engines"])
def _engines(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files never go to Arrow's engine; here they do, half of the time."""
    if request.param == "both engines":
        monkeypatch.setattr(proof, "_WORTH_ASKING", 0)


@pytest.mark.usefixtures("_engines")
@patient
@given(seeds, edits)
def test_what_is_proven_is_plain_by_pythons_own_account(data: bytes, changes: list[tuple[float, bytes, int]]) -> None:
    data = edited(data, changes)
    if not data or not is_proven(data):
        return
    try:
        for opcode, argument, _ in pickletools.genops(data):
            if opcode.name in REFUSED_BY_MACHINE:
                return
            assert opcode.name in ALLOWED
            if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT"):
                assert isinstance(argument, int)
                assert argument <= 65_536 + len(data)
    except ValueError:  # an operand that is no number, or no text: the machine stops there as well
        return


@patient
@given(seeds, edits)
def test_both_engines_prove_the_same(data: bytes, changes: list[tuple[float, bytes, int]]) -> None:
    data = edited(data, changes)
    with pytest.MonkeyPatch.context() as patch:
        alone = bool(data) and is_proven(data)
        patch.setattr(proof, "_WORTH_ASKING", 0)
        assert (bool(data) and is_proven(data)) == alone


def is_read_or_refused(data: bytes) -> bool:
    """Whether reading ends in one of the two ways it may, within due memory."""
    with at_most(32 * MIB):
        try:
            read(data)
        except SnapshotError as error:
            return "\n" not in error.problem + error.remedy
    return True


@patient
@given(seeds, edits, st.floats(0, 1))
def test_damage_is_refused_and_nothing_else_happens(
    data: bytes, changes: list[tuple[float, bytes, int]], share: float
) -> None:
    data = edited(data, changes)
    assert is_read_or_refused(data[: int(share * len(data)) + 1])


@patient
@given(st.binary() | st.binary().map(b"\x80\x04".__add__) | st.text().map(lambda text: f"[{{{text}".encode()))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    assert is_read_or_refused(data)


@patient
@given(st.binary(max_size=400))
def test_the_repetition_that_never_goes_back_and_the_one_that_does_end_at_one_place(data: bytes) -> None:
    if proof._KEEPS_A_FAILED_ROUND:  # pyright: ignore[reportPrivateUsage]
        pytest.skip("this Python's possessive repetition is broken, and not used")
    flags = re.DOTALL | re.VERBOSE
    one = re.match(b"(?:" + proof._INSTRUCTIONS.encode() + b"){1,50}+", data, flags)  # pyright: ignore[reportPrivateUsage]
    other = re.match(b"(?:" + proof._BACKTRACKING.encode() + b"){1,50}", data, flags)  # pyright: ignore[reportPrivateUsage]
    assert (one and one.end()) == (other and other.end())


def test_an_allowance_is_shared_by_all_that_is_checked_with_it() -> None:
    allowance = Allowance(0)
    before = allowance.count
    allowance.check_nested([1, 2, 3], "first")
    allowance.check_nested("text is no container", "second")
    allowance.check_nested({"a": [1, 2], "b": ()}, "third")
    assert allowance.count == before - 3 - 2 - 2
    with pytest.raises(SnapshotError, match="until fourth has far more values"):
        allowance.check_nested([None] * before, "fourth")
    with pytest.raises(SnapshotError, match="fifth has a key that is a tuple"):
        Allowance(0).check_nested([{(1, 2): 3}], "fifth")
