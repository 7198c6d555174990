"""Every chart: what it draws is written down, how much goes into it is bounded, and what it says is true."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import lzma
import re
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from tests.charts import golden
from tests.conftest import SAMPLE
from tracekit import cli
from tracekit.catalog import empty_warehouse
from tracekit.charts import CHARTS, Chart, Request, render, sweep, theme, words
from tracekit.charts.allocations import places
from tracekit.charts.chart import MOST_ROWS
from tracekit.commands import chart as verb
from tracekit.errors import ChartError, OutputError, QueryError, TracekitError
from tracekit.warehouse import Warehouse

PEAK = 17_882_019_840

every_chart = pytest.mark.parametrize("chart", CHARTS.values(), ids=list(CHARTS))


@every_chart
def test_the_drawing_is_the_one_written_down(chart: Chart, sample: Warehouse) -> None:
    found = golden.outline(chart, golden.tables(chart, sample))
    expected = json.loads((golden.FOLDER / f"{chart.name}.json").read_text(encoding="utf-8"))
    assert found == expected, "where the change is meant: python -m tests.charts.golden"


def test_what_the_sample_can_draw_is_drawn_from_it(sample: Warehouse) -> None:
    without = {chart.name for chart in CHARTS.values() if chart.why_not(sample, Request()) is not None}
    assert without == {"growth", "sweep"}


@every_chart
def test_the_drawing_is_vega_lite(chart: Chart, sample: Warehouse) -> None:
    """Altair holds it against Vega-Lite's schema, which costs too much to be done for every page."""
    tables = golden.tables(chart, sample)
    drawn = chart.draw(tables).to_dict(validate=True)
    outline = render.outline(chart, tables)
    assert {name: outline[name] for name in drawn.keys() - {"config"}} == {
        name: value for name, value in drawn.items() if name != "config"
    }


@every_chart
def test_rows_are_few_and_bytes_are_whole(chart: Chart, sample: Warehouse) -> None:
    tables = golden.tables(chart, sample)
    assert chart.table in tables
    for name, table in tables.items():
        assert table.num_rows < MOST_ROWS, name
        wrong = [
            field.name for field in table.schema if field.name.endswith("_bytes") and "int64" not in str(field.type)
        ]
        assert wrong == [], name


@every_chart
def test_every_name_the_drawing_asks_for_is_there(chart: Chart, sample: Warehouse) -> None:
    """Data by its name, and each parameter that a page may drive."""
    drawn = render.spec(chart, golden.tables(chart, sample))
    text = json.dumps({name: value for name, value in drawn.items() if name != "datasets"})
    assert drawn["datasets"].keys() >= {one["name"] for one in _data(drawn)}
    for name in chart.params:
        assert f'"name": "{name}"' in text


@every_chart
@pytest.mark.parametrize("suffix", render.SUFFIXES)
def test_each_format(chart: Chart, suffix: str, sample: Warehouse) -> None:
    tables = golden.tables(chart, sample, Request(bins=60))
    content = render.render(chart, tables, suffix)
    if suffix == ".svg":
        assert ElementTree.fromstring(content).tag.endswith("svg")  # noqa: S314 - made here
    elif suffix == ".png":
        assert content.startswith(b"\x89PNG")
    elif suffix == ".json":
        assert json.loads(content)["datasets"].keys() == tables.keys()
    else:
        page = content.decode()
        assert "http://" not in page.split("<body>")[0]
        assert "<script src" not in page
        assert "<link" not in page


@every_chart
def test_paper_changes_no_bucket(chart: Chart, sample: Warehouse) -> None:
    tables = golden.tables(chart, sample, Request(bins=60))
    light, dark = (json.loads(render.render(chart, tables, ".json", dark=dark)) for dark in (False, True))
    assert light.pop("config") != dark.pop("config")
    assert light == dark


def test_ledger_adds_up_to_what_is_reserved(sample: Warehouse) -> None:
    tables = CHARTS["ledger"].data(sample, Request())
    (moment,) = tables["moment"].to_pylist()
    lines = tables["ledger"].to_pylist()
    assert (moment["event_ix"], moment["allocated_bytes"]) == (3815, PEAK)
    assert sum(row["entry_bytes"] for row in lines) == moment["reserved_bytes"]
    assert sum(row["share_ratio"] for row in lines) == pytest.approx(1)
    assert (
        CHARTS["ledger"]
        .describe(tables)
        .startswith("At event 3,815, step 2, backward, 17,053.6 MiB (17,882,019,840 bytes) are allocated")
    )


def test_ledger_of_a_recording_that_contradicts_itself_says_so(shared: Path) -> None:
    """Its events hold more than its segments have: what is free comes out below zero, and is drawn there."""
    from tracekit.analysis import open_any

    with open_any(shared / "public-snapshots" / "synthetic_inconsistent.pickle.xz") as odd:
        tables = CHARTS["ledger"].data(odd, Request())
    (below,) = [row for row in tables["ledger"].to_pylist() if row["entry_bytes"] < 0]
    assert below["bucket"] == "cached"
    assert CHARTS["ledger"].describe(tables).endswith("The recording contradicts itself: cached comes out below zero.")
    drawn = render.outline(CHARTS["ledger"], tables)
    (bars, _) = drawn["layer"]
    assert bars["encoding"]["x"]["scale"]["domain"][0] <= below["entry_bytes"]


def test_timeline_keeps_the_peak_with_its_asker(sample: Warehouse) -> None:
    for bins in (1, 7, 900):
        tables = CHARTS["timeline"].data(sample, Request(bins=bins))
        highest = max(tables["timeline"].to_pylist(), key=lambda row: row["allocated_bytes"])
        assert (highest["event_ix"], highest["allocated_bytes"]) == (3815, PEAK)
        assert highest["requested_by"] == "LogSoftmaxBackward0"
        assert highest["event_bucket"] == "logits_and_loss"
    said = CHARTS["timeline"].describe(tables)
    assert "peak: 17,053.6 MiB (17,882,019,840 bytes) allocated at event 3,815, step 2, backward" in said
    assert "requested by LogSoftmaxBackward0" in said


def test_the_opening_state_is_named_as_a_place() -> None:
    row = {"event_ix": -1, "step": None, "phase": None}
    assert words.where(row) == words.where({"event_ix": None}) == "the opening state"
    assert words.where({"event_ix": 3815, "step": 2, "phase": "backward"}) == "event 3,815, step 2, backward"


def test_step_shows_what_readings_miss(sample: Warehouse) -> None:
    """The recorder's own readings are the witness: at the end of each phase they show what the marks show."""
    tables = CHARTS["step"].data(sample, Request())
    marks = tables["step"].to_pylist()
    facts = json.loads(lzma.decompress((SAMPLE / "facts.json.xz").read_bytes()))
    readings = {label: allocated for label, allocated, *_ in facts["readings"]}
    by_name = {row["mark"]: row["allocated_bytes"] for row in marks}
    assert by_name["backward"] == readings["2.forward"] == max(row["allocated_bytes"] for row in marks)
    assert by_name["optimizer"] == readings["2.backward"]
    assert by_name["end"] == readings["2.zero_grad"]
    highest = max(marks, key=lambda row: row["highest_bytes"] or 0)
    assert highest["highest_bytes"] == PEAK
    assert highest["requested_by"] == "LogSoftmaxBackward0"
    assert PEAK - readings["2.forward"] == 3_293_577_728
    said = CHARTS["step"].describe(tables)
    assert said.endswith("requested by LogSoftmaxBackward0: 3,141.0 MiB (3,293,577,728 bytes) are missed.")


def test_step_shows_twelve_equal_steps(sample: Warehouse) -> None:
    marks = CHARTS["step"].data(sample, Request())["step"].to_pylist()
    forward = [row for row in marks if row["phase"] == "forward"][1:]
    assert [row["mark"] for row in forward] == [*(f"layer {index}" for index in range(12)), "after the layers"]
    heights = [row["allocated_bytes"] for row in forward]
    assert {f"{(after - before) / 2**20:.1f}" for before, after in pairwise(heights)} == {"769.1"}


def test_step_of_a_moment(sample: Warehouse) -> None:
    of_step = CHARTS["step"].data
    assert of_step(sample, Request(moment="step:1"))["number"].to_pylist() == [{"step": 1}]
    assert of_step(sample, Request(moment="event:3815"))["number"].to_pylist() == [{"step": 2}]
    with pytest.raises(QueryError, match="start lies in no training step"):
        of_step(sample, Request(moment="start"))


def test_flame_is_as_wide_as_what_is_requested(sample: Warehouse) -> None:
    tables = CHARTS["flame"].data(sample, Request())
    nodes = tables["flame"].to_pylist()
    (moment,) = tables["moment"].to_pylist()
    assert (nodes[0]["frame"], nodes[0]["requested_bytes"]) == ("all that is held", moment["requested_bytes"])
    log_softmax = [row for row in nodes if row["frame"] == "LogSoftmaxBackward0"]
    assert [row["requested_bytes"] for row in log_softmax] == [1_646_821_376]


def test_flame_sums_a_line_that_is_reached_on_several_ways() -> None:
    """One line beneath two callers, 30 and 20 bytes, and another with 40."""
    row: dict[str, Any] = {"depth_ix": 1, "origin": "user", "allocation_count": 1, "bucket": "activation"}
    nodes: list[dict[str, Any]] = [
        {**row, "depth_ix": 0, "origin": "none", "label": "all that is held", "from_bytes": 0, "to_bytes": 90},
        {**row, "label": "b.py:1 g", "from_bytes": 0, "to_bytes": 40},
        {**row, "label": "a.py:1 f", "from_bytes": 40, "to_bytes": 70},
        {**row, "label": "a.py:1 f", "from_bytes": 70, "to_bytes": 90},
    ]
    for node in nodes:
        node["requested_bytes"] = (node["to_bytes"] - node["from_bytes"]) * 2**20
    moment = {"event_ix": 7, "step": None, "phase": None}
    said = CHARTS["flame"].describe({"flame": pa.Table.from_pylist(nodes), "moment": pa.Table.from_pylist([moment])})
    assert said.endswith("with most beneath them: a.py:1 f 50.0 MiB, b.py:1 g 40.0 MiB.")


def test_compare_is_the_difference_of_two_accounts(sample: Warehouse) -> None:
    tables = CHARTS["compare"].data(sample, Request(moment="start", other_moment="peak"))
    lines = tables["compare"].to_pylist()
    ledger = CHARTS["ledger"].data(sample, Request())["ledger"].to_pylist()
    assert {row["bucket"]: row["change_bytes"] for row in lines} == {
        row["bucket"]: row["entry_bytes"] for row in ledger
    }
    same = CHARTS["compare"].data(sample, Request(other=sample))
    assert CHARTS["compare"].describe(same).endswith("No line differs.")


def test_a_state_without_events_has_a_ledger_and_no_timeline(shared: Path) -> None:
    from tracekit.analysis import open_any

    with open_any(shared / "captures" / "small_nohistory.pickle.xz") as state:
        assert CHARTS["ledger"].why_not(state, Request()) is None
        assert CHARTS["timeline"].why_not(state, Request()) == "no events were recorded, so there is only one state"
        assert render.spec(CHARTS["ledger"], CHARTS["ledger"].data(state, Request()))["datasets"]["ledger"]


def test_help_names_every_chart_with_its_question() -> None:
    told = CliRunner().invoke(verb.command, ["--help"]).output
    for chart in CHARTS.values():
        assert f"{chart.name:<13}{chart.question}" in told


def test_a_still_timeline_is_small(sample_dataset: Path, tmp_path: Path) -> None:
    """Its rectangles tell how many events are kept; in every one the peak is."""
    file = tmp_path / "timeline.svg"
    sizes: list[int] = []
    for options in ((), ("--bins", "60"), ("--bins", "900")):
        with pytest.raises(SystemExit) as left:
            cli.main(["chart", str(sample_dataset), "timeline", "-o", str(file), "--force", "-q", *options])
        assert left.value.code == 0
        text = file.read_text(encoding="utf-8")
        assert "peak 17,053.6 MiB, LogSoftmaxBackward0" in text
        assert not re.search(r' d="[^"]*\.\d{3}', text)
        sizes.append(len(text))
    assert sizes[1] < sizes[0] < 700_000 < sizes[2]


def test_command_writes_a_file_and_says_what_is_in_it(
    sample_dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ledger.svg"
    with pytest.raises(SystemExit) as left:
        cli.main(["chart", str(sample_dataset), "ledger", "-o", str(file)])
    assert not left.value.code
    assert "activation" in file.read_text(encoding="utf-8")
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"{file}: At event 3,815")
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.svg"]


def test_command_overwrites_nothing_unasked(sample_dataset: Path, tmp_path: Path) -> None:
    file = tmp_path / "ledger.json"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"ledger\.json exists already"):
        run(str(sample_dataset), "ledger", "-o", str(file))
    assert file.read_text(encoding="utf-8") == "mine"
    run(str(sample_dataset), "ledger", "-o", str(file), "--force", "-q")
    assert json.loads(file.read_text(encoding="utf-8"))["datasets"]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["mountain", "-o", "x.svg"], "there is no chart called 'mountain'"),
        (["ledger", "-o", "x.pdf"], "'x.pdf' does not say what to write"),
        (["ledger", "-o", "nowhere/x.svg"], "there is no folder nowhere"),
        (["ledger", "-o", "x.svg", "--at", "noon"], "the recording has no moment 'noon'"),
        (["ledger", "-o", "x.svg", "--device", "3"], "the recording has no device 3"),
    ],
)
def test_command_says_what_is_wrong(
    arguments: list[str], problem: str, sample_dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TracekitError) as found:
        run(str(sample_dataset), *arguments)
    assert found.value.problem.startswith(problem)
    assert list(tmp_path.iterdir()) == []


def run(*arguments: str) -> None:
    verb.command.main(list(arguments), standalone_mode=False)


def test_a_bucket_has_one_colour_by_its_name() -> None:
    colours = list(theme.BUCKET_COLOURS.values())
    assert len(set(colours)) == len(colours)
    first, last = theme.colour("activation"), theme.colour("parameter")
    assert theme.bucket_scale(["activation", "parameter"]).to_dict()["range"] == [first, last]
    assert theme.colour("a_bucket_of_my_own") == theme.colour("a_bucket_of_my_own")


def test_every_bucket_has_a_colour(sample: Warehouse) -> None:
    assert theme.BUCKET_COLOURS.keys() == {row["bucket"] for row in sample.rows("select bucket from bucket")}


def _data(node: Any) -> list[dict[str, Any]]:
    """Every reference to named data in a specification."""
    if isinstance(node, dict):
        here = [node["data"]] if isinstance(node.get("data"), dict) and "name" in node["data"] else []
        return here + [one for name, child in node.items() if name != "datasets" for one in _data(child)]
    return [one for child in node for one in _data(child)] if isinstance(node, list) else []


def test_rectangles_never_lie_on_each_other() -> None:
    """As drawn, the largest first: c and d live after a, and stand where it stood; b lives beside both."""
    a, b, c, d = (0, 10, 100), (5, 20, 60), (10, 20, 50), (15, 30, 50)
    assert places([a, b, c, d]) == [0, 100, 0, 50]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 9)), max_size=30).map(
        lambda lives: sorted(((begin, begin + length, size) for begin, length, size in lives), key=lambda one: -one[2])
    )
)
def test_rectangles_of_any_lives_stand_apart_and_low(lives: list[tuple[int, int, int]]) -> None:
    found = places(lives)
    for (lower, one), (other_lower, other) in combinations(list(zip(found, lives, strict=True)), 2):
        if one[0] < other[1] and other[0] < one[1]:
            assert lower + one[2] <= other_lower or other_lower + other[2] <= lower
    # no rectangle hangs in the air: it stands on the floor or on one that it meets
    for lower, (begin, end, _) in zip(found, lives, strict=True):
        assert lower == 0 or any(
            other_lower + other[2] == lower and other[0] < end and begin < other[1]
            for other_lower, other in zip(found, lives, strict=True)
        )


def test_allocations_and_their_rest_are_all_there_are(sample: Warehouse) -> None:
    tables = CHARTS["allocations"].data(sample, Request())
    largest = tables["allocation"].to_pylist()
    counts = {row["bucket"]: row["allocation_count"] for row in tables["rest"].to_pylist()}
    (whole,) = sample.rows("select count(*) as n from allocation")
    assert f", of 72.0 MiB ({72 * 2**20:,} bytes) and more." in CHARTS["allocations"].describe(tables)
    assert len(largest) + sum(counts.values()) == whole["n"]
    assert [row["held_bytes"] for row in largest] == sorted((row["held_bytes"] for row in largest), reverse=True)
    assert max(row["largest_bytes"] for row in tables["rest"].to_pylist()) <= largest[-1]["held_bytes"]
    # at the end of the recording, what lives on of both is what is held
    (end,) = sample.rows("from moment where moment = 'end'")
    last = max(row["event_ix"] for row in tables["rest"].to_pylist())
    held = sum(row["held_bytes"] for row in tables["rest"].to_pylist() if row["event_ix"] == last)
    assert held + sum(row["held_bytes"] for row in largest if row["is_kept"]) == end["active_bytes"]


def test_allocations_of_which_none_is_left_out_have_no_rest(sample: Warehouse) -> None:
    chart = CHARTS["allocations"]
    tables = chart.data(sample, Request())
    few = {**tables, "allocation": tables["allocation"].slice(0, 3), "rest": tables["rest"].slice(0, 0)}
    drawn = render.outline(chart, few)
    assert {one["name"] for one in _data(drawn)} == {"allocation", "stack"}
    assert drawn["description"].startswith("All 3 allocations. The largest: 1,570.5 MiB")
    assert drawn["title"]["subtitle"][0].startswith("all 3 allocations, as wide as")


def test_segments_are_covered_by_their_pieces(sample: Warehouse) -> None:
    tables = CHARTS["segments"].data(sample, Request())
    segments = {row["segment_ix"]: row["size_bytes"] for row in tables["segment"].to_pylist()}
    covered = dict.fromkeys(segments, 0)
    for row in tables["piece"].to_pylist():
        assert row["from_bytes"] == covered[row["segment_ix"]]
        covered[row["segment_ix"]] = row["to_bytes"]
    assert covered == segments
    (moment,) = tables["panel"].to_pylist()
    left_out = tables["segment"].to_pylist()[0]["left_out_bytes"]
    assert sum(segments.values()) + left_out == moment["reserved_bytes"]


def test_segments_show_why_a_request_failed(shared: Path) -> None:
    """3,053 MiB are the largest free piece, as the replay finds; 4,122.6 were asked for."""
    from tracekit.analysis import open_any

    with open_any(shared / "captures" / "sweep_21_ws8.pickle.xz") as failed:
        tables = CHARTS["segments"].data(failed, Request())
        (pieces,) = failed.rows("select max(size_bytes) as largest from free_piece_at(0, 3816)")
    before, after = tables["panel"].to_pylist()
    assert (before["event_ix"], after["event_ix"]) == (3814, 3816)
    assert before["reserved_bytes"] - after["reserved_bytes"] == 1_056_964_608
    assert after["asked_bytes"] == 4_322_906_112
    free = [row["size_bytes"] for row in tables["piece"].to_pylist() if row["panel_ix"] and row["piece"] == "cached"]
    assert max(free) == pieces["largest"] == after["usable_bytes"] == 3_201_302_528 < after["asked_bytes"]
    svg = render.render(CHARTS["segments"], tables, ".svg").decode()
    reason = "asked for: 4,122.6 MiB in one piece; the largest free one that may serve it has 3,053.0 MiB"
    assert svg.count(f">{reason}</text>") == 2


def test_growth_names_the_leak(shared: Path) -> None:
    from tracekit.analysis import open_any

    with open_any(shared / "captures" / "small_leak.pickle.xz") as leaking:
        tables = CHARTS["growth"].data(leaking, Request())
    growing = [row for row in tables["growth"].to_pylist() if row["verdict"] == "grows"]
    assert [row["change_bytes"] for row in growing] == [512 * index for index in range(7)]
    said = CHARTS["growth"].describe(tables)
    assert "1 stack grows: 0.0 MiB (3,072 bytes) more at the last step than at the first" in said
    assert "nll_loss_forward" in said


def test_growth_says_what_grows() -> None:
    chart, tables = CHARTS["growth"], {"growth": golden.growth_rows()}
    assert chart.describe(tables) == (
        "The beginnings of steps 2 to 5: 1 stack grows: 3.0 MiB (3,145,728 bytes) more at the last step than at the"
        " first. nll_loss_forward, train.py:12 train: 3.0 MiB (3,145,728 bytes) more, 4 allocations."
    )
    svg = render.render(chart, tables, ".svg").decode()
    told = re.findall(r">([^<>]+)</text>", svg)
    assert [one for one in told if one in ("grows", "varies", "stays", "the rest", "bursts")] == [
        "grows",
        "varies",
        "stays",
        "the rest",
    ]
    assert [one for one in told if one.isdecimal()] == 2 * ["2", "3", "4", "5"]
    # the lines that change are named where they end, what stays is not
    assert [one for one in told if ".py" in one] == [line[0] for line in golden.LINES[:2]]


def test_growth_needs_steps_to_compare(sample: Warehouse) -> None:
    assert CHARTS["growth"].why_not(sample, Request()) == (
        "it needs the beginnings of 2 steps after the first one, and the recording has 1"
    )


FIT: dict[str, Any] = {
    "limit_bytes": 400,
    "points": [
        {"value": "1", "kind": "measured", "allocated_bytes": 110, "reserved_bytes": 120, "fits": True},
        {"value": "3", "kind": "measured", "allocated_bytes": 310, "reserved_bytes": 320, "fits": True},
        {"value": "4", "kind": "predicted", "allocated_bytes": 330, "reserved_bytes": 350, "fits": False},
    ],
}


def test_sweep_without_a_limit_names_no_largest_that_fits(tmp_path: Path) -> None:
    file = tmp_path / "fit.json"
    file.write_text(json.dumps({"limit_bytes": None, "points": FIT["points"][:2]}), encoding="utf-8")
    chart = CHARTS["sweep"]
    with empty_warehouse() as nothing:
        tables = chart.data(nothing, Request(sweep=sweep.read(file)))
    assert chart.describe(tables) == "2 values. Allocated grows by 0.0 MiB (100 bytes) for each one more."


def test_sweep_draws_the_line_through_what_was_measured(tmp_path: Path) -> None:
    file = tmp_path / "fit.json"
    file.write_text(json.dumps(FIT), encoding="utf-8")
    chart = CHARTS["sweep"]
    request = Request(sweep=sweep.read(file))
    with empty_warehouse() as nothing:
        assert chart.why_not(nothing, request) is None
        tables = chart.data(nothing, request)
    assert [row["line_bytes"] for row in tables["line"].to_pylist()] == [110, 410]
    assert chart.describe(tables) == (
        "3 values. Allocated grows by 0.0 MiB (100 bytes) for each one more."
        " The largest that fits is 3 (measured), 0.0 MiB (320 bytes) reserved."
        " The smallest that runs out of memory is 4 (predicted)."
    )
    run(str(file), "sweep", "-o", str(tmp_path / "sweep.svg"), "-q")


def test_sweep_tells_measured_from_predicted_and_draws_the_ceiling() -> None:
    tables = golden.tables(CHARTS["sweep"], cast("Warehouse", None))
    svg = ElementTree.fromstring(render.render(CHARTS["sweep"], tables, ".svg"))  # noqa: S314 - made here
    told = [text.text for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert "ceiling 24,576.0 MiB" in told
    assert {"fits", "out of memory"} <= set(told)
    assert "not said" not in told
    filled = {"measured": 0, "predicted": 0}
    for path in svg.iter("{http://www.w3.org/2000/svg}path"):
        kind = re.search(r"kind: (\w+)", path.get("aria-label", ""))
        if kind:
            assert (path.get("fill") is not None) == (kind[1] == "measured")
            assert (path.get("stroke") is not None) == (kind[1] == "predicted")
            filled[kind[1]] += 1
    assert filled == {"measured": 4, "predicted": 4}
    # of two peaks a range is known: a bar each
    bars = [line for line in svg.iter("{http://www.w3.org/2000/svg}line") if "highest: " in line.get("aria-label", "")]
    assert len(bars) == 2


def test_sweep_takes_the_ranges_of_a_fit_where_there_are_any(tmp_path: Path) -> None:
    told = {**FIT["points"][2], "allocated_range_bytes": [330, 330], "reserved_range_bytes": [340, 370]}
    file = tmp_path / "fit.json"
    file.write_text(json.dumps({"limit_bytes": 400, "points": [FIT["points"][0], told]}), encoding="utf-8")
    rows = sweep.tables(sweep.read(file))["sweep"].to_pylist()
    assert [(row["value"], row["what"], row["lowest_bytes"], row["highest_bytes"]) for row in rows] == [
        ("1", "reserved", None, None),
        ("1", "allocated", None, None),
        ("4", "reserved", 340, 370),
        ("4", "allocated", 330, 330),
    ]


def test_sweep_reads_the_folder_of_a_sweep(tmp_path: Path) -> None:
    rows = [
        {"batch": 8, "fits": True, "peak_allocated_bytes": 80, "peak_reserved_bytes": 90, "limit_bytes": 100},
        {"batch": 9, "fits": None, "peak_allocated_bytes": None, "peak_reserved_bytes": None, "limit_bytes": 100},
        {"batch": 4, "fits": False, "peak_allocated_bytes": 40, "peak_reserved_bytes": 50, "limit_bytes": 100},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sweep.parquet")
    points = sweep.read(tmp_path).to_pylist()
    assert [(row["value"], row["position"], row["kind"], row["fits"]) for row in points] == [
        ("4", 4, "measured", False),
        ("8", 8, "measured", True),
    ]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"points": 3, "limit_bytes": 1}', '{"points": [{}], "limit_bytes": 1}']
)
def test_what_is_no_sweep_is_said_so(text: str, tmp_path: Path) -> None:
    file = tmp_path / "fit.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ChartError, match="holds no sweep that can be read"):
        sweep.read(file)
    with pytest.raises(ChartError, match="holds no sweep: No such file"):
        sweep.read(tmp_path / "nothing")
