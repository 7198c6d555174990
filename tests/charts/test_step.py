"""`step` with a recorder beside: its readings are moments of the picture, and what they miss is told from them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.conftest import SHARED, facts_of
from tests.queries import rows
from tests.run_folders import make_run
from tracekit.analysis import open_any
from tracekit.charts import CHARTS, Request
from tracekit.warehouse import Warehouse

Row = dict[str, Any]
Recorded = Callable[[str], tuple[Warehouse, Row]]

PEAK = 17_882_019_840
STEP = CHARTS["step"]


def shown(marks: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in marks]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Opens a run folder made of a shared recording, with what was measured beside it."""
    if not SHARED.is_dir():
        pytest.skip("the shared recordings are not beside the checkout")

    def opened(name: str) -> tuple[Warehouse, Row]:
        capture = SHARED / "captures" / f"{name}.pickle.xz"
        folder = make_run(capture, tmp_path_factory.mktemp("runs") / name)
        return open_any(folder), facts_of(capture)

    return opened


def test_the_golden_run_with_its_readings_misses_3141_mib(recorded: Recorded) -> None:
    """The readings are torch's own: the highest is 13,912.6 MiB, and the peak that memory_stats kept is 17,053.6."""
    warehouse, facts = recorded("gpt2_b8_ws8")
    with warehouse:
        tables = STEP.data(warehouse, Request())
    marks = tables["step"].to_pylist()
    of_step = {label: read for label, read, *_ in facts["readings"] if label.startswith("2.")}
    found = {row["reading"]: row["reading_bytes"] for row in marks if row["reading"] and row["reading"][0] == "2"}
    assert found == of_step
    assert max(of_step.values()) == 14_588_442_112
    assert max(row["highest_bytes"] or 0 for row in marks) == PEAK == facts["step_stats"][1]["allocated_bytes.all.peak"]
    assert PEAK - max(of_step.values()) == 3141 * 2**20 + 512
    said = STEP.describe(tables)
    assert "at 6 of them the recorder took a reading. These show 13,912.6 MiB (14,588,442,112 bytes) at most" in said
    assert said.endswith(": 3,141.0 MiB (3,293,577,728 bytes) are missed.")
    # between the recorder's readings, at the beginnings of layers, the forward goes up by twelve equal steps
    forward = [row for row in marks if row["mark"].startswith("layer") or row["mark"] == "after the layers"]
    heights = [row["allocated_bytes"] for row in forward if row["phase"] == "forward"]
    assert [f"{(after - before) / 2**20:.1f}" for before, after in pairwise(heights)] == 12 * ["769.1"]


def test_readings_around_every_block_are_the_marks_of_the_step(
    recorded: Recorded,
) -> None:
    """Hooks read torch's counters around every block: each reading is where the account has the same bytes."""
    warehouse, facts = recorded("gpt2_b8")
    with warehouse:
        marks = STEP.data(warehouse, Request())["step"].to_pylist()
    labels = [label for label, *_ in facts["readings"]]
    last = facts["readings"][labels.index("1.zero_grad") :]
    names = [name for row in marks if row["reading"] for name in row["reading"].split(", ")]
    assert names == [label for label, *_ in last]
    assert all(row["reading_bytes"] == row["allocated_bytes"] for row in marks if row["reading"])
    assert [row["reading"] for row in marks[3:5]] == ["h.0.fwd.post, h.1.fwd.pre", "h.1.fwd.post, h.2.fwd.pre"]
    blocks = [row for row in marks if row["mark"].endswith("fwd.pre") or row["mark"] == "h.11.fwd.post"]
    heights = [row["reading_bytes"] for row in blocks]
    assert [f"{(after - before) / 2**20:.1f}" for before, after in pairwise(heights)] == 12 * ["769.1"]


EVENTS = (
    "segment_alloc 0x1000 4096",  # 0
    "alloc 0x1000 1024",  # 1
    "alloc 0x1400 512",  # 2
    "alloc 0x1600 1024",  # 3
    "free_requested 0x1600 1024",  # 4
    "free_completed 0x1600 1024",  # 5
    "free_requested 0x1400 512",  # 6
    "free_completed 0x1400 512",  # 7
)
PLACEMENTS = ("0x1000 1024 1024 1 - -", "0x1400 512 512 2 6 7", "0x1600 1024 1024 3 4 5")


def one_step(given: Callable[..., Warehouse], *marks: Row) -> Warehouse:
    """A step that only the recorder tells: its forward ends after event 3, its backward after the last."""
    return given(
        device=[{**rows.device(len(EVENTS)), "last_time_us": 1070}],
        trace_event=rows.events(*EVENTS),
        placement=rows.placements(*PLACEMENTS),
        segment=[{"segment_id": 0, "device": 0, "address": 0x1000, "total_size_bytes": 4096}],
        replay=[{"device": 0}],
        mark=[rows.mark(0, "begin"), *marks],
    )


def read(mark_ix: int, name: str, allocs: int, frees: int, allocated_bytes: int) -> Row:
    return rows.mark(mark_ix, name, allocs, frees, step=1, allocated_bytes=allocated_bytes)


def test_a_reading_is_a_mark_where_it_was_taken(given: Callable[..., Warehouse]) -> None:
    """Boundaries keep their name beside the recorder's; a name of the program's own is shown instead of it.

    (Marks stand at the end of phases: what lies between the data and a mark of the program's own is of no phase.)
    """
    warehouse = one_step(
        given,
        read(1, "1.data", 1, 0, 1024),
        read(2, "1.in the loss", 2, 0, 1536),
        read(3, "1.forward", 3, 1, 1536),
        read(4, "1.backward", 3, 2, 1024),
    )
    with warehouse:
        tables = STEP.data(warehouse, Request())
    marks = tables["step"].to_pylist()
    assert shown(
        marks, "event_ix", "mark", "phase", "reading", "reading_bytes", "allocated_bytes", "highest_bytes"
    ) == [
        (0, "data", "data", "begin", None, 0, None),
        (1, "other", None, "1.data", 1024, 1024, 1024),
        (2, "in the loss", "forward", "1.in the loss", 1536, 1536, 1536),
        (5, "backward", "backward", "1.forward", 1536, 1536, 2560),
        (7, "end", "backward", "1.backward", 1024, 1024, 1024),
    ]
    assert "These show 0.0 MiB (1,536 bytes) at most, at 1.in the loss; the true peak is 0.0 MiB (2,560 bytes)" in (
        STEP.describe(tables)
    )


def test_a_reading_without_a_place_is_counted(given: Callable[..., Warehouse]) -> None:
    warehouse = one_step(
        given, read(1, "1.data", 1, 0, 1024), read(2, "1.odd", 1, 1, 0), read(3, "1.forward", 3, 2, 1024)
    )
    with warehouse:
        said = STEP.describe(STEP.data(warehouse, Request()))
    assert said.endswith(" Of the recorder's readings 1 is left out: its counts belong to no event.")


def test_names_of_readings_are_short_and_without_control_characters(given: Callable[..., Warehouse]) -> None:
    name = "<script>\x00\x1b" + "x" * 10_000
    warehouse = one_step(given, read(1, "1.data", 1, 0, 1024), read(2, name, 2, 0, 1536), read(3, "1.forward", 3, 2, 0))
    with warehouse:
        marks = STEP.data(warehouse, Request())["step"].to_pylist()
    (row,) = [row for row in marks if "script" in row["mark"]]
    assert row["mark"] == row["reading"] == "<script>��" + "x" * 50


def test_a_moment_may_be_a_mark(given: Callable[..., Warehouse]) -> None:
    with one_step(given, read(1, "1.data", 1, 0, 1024), read(2, "1.forward", 3, 2, 1024)) as warehouse:
        assert STEP.data(warehouse, Request(moment="mark:1.forward"))["number"].to_pylist() == [{"step": 1}]
