"""Predictions against recordings: what was measured at a value that the prediction had not seen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SHARED, facts_of
from tests.test_commands import run
from tracekit import analysis, fit
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import Outcome
from tracekit.allocator.whatif import run as run_program
from tracekit.errors import TracekitError
from tracekit.fit import report
from tracekit.fit.answer import likeliest
from tracekit.fit.rule import Point

MIB = 1 << 20
CAP = 45_440 * MIB

SMALLEST = "g2_b1_t1024_ws8"
BATCHES = {
    2: "g2_b2_t1024_ws8",
    3: "g2_b3_t1024_ws8",
    4: "g2_b4_t1024_ws8",
    6: "g2_b6_t1024_ws8",
    8: "gpt2_b8_ws8",
    12: "g2_b12_t1024_ws8",
    16: "sweep_16_ws8",
    20: "sweep_20_ws8",
}
LENGTHS: dict[Point, str] = {
    (4, 512): "g2_b4_t512_ws8",
    (8, 512): "g2_b8_t512_ws8",
    (4, 1024): "g2_b4_t1024_ws8",
    (8, 1024): "gpt2_b8_ws8",
}

Read = Callable[[Point, str], fit.Source]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Read]:
    if not SHARED.is_dir():
        pytest.skip("the shared recordings are not beside the checkout")
    opened: dict[tuple[Point, str], fit.Source] = {}
    with ExitStack() as stack:

        def source(point: Point, name: str) -> fit.Source:
            if (point, name) not in opened:
                folder = tmp_path_factory.mktemp("recorded") / "dataset"
                analysis.analyze(SHARED / "captures" / f"{name}.pickle.xz", folder)
                opened[point, name] = fit.read(point, name, stack.enter_context(analysis.open_any(folder)))
            return opened[point, name]

        yield source


def measured(name: str) -> tuple[int, int]:
    """torch's own peaks: allocated and reserved."""
    steps: list[dict[str, Any]] = facts_of(SHARED / "captures" / f"{name}.pickle.xz")["step_stats"]
    return (
        max(step["allocated_bytes.all.peak"] for step in steps),
        max(step["reserved_bytes.all.peak"] for step in steps),
    )


def predicted(model: fit.Model, point: Point, conditions: fit.Conditions | None = None) -> fit.Answer:
    return fit.fit(model, conditions or fit.Conditions(), [point]).answers[point]


def run_once(model: fit.Model, point: Point) -> Outcome:
    """The program under the likeliest layout alone."""
    program, _ = model.stream(point)
    return run_program(program, layout=likeliest(program, is_recorded=False), keeps_events=False)


@pytest.mark.parametrize("pair", [(8, 16), (4, 8), (2, 4), (6, 12), (2, 3), (1, 16), (2, 4, 8)])
def test_the_golden_run_at_other_batches(read: Read, pair: tuple[int, ...]) -> None:
    model = fit.build(["batch"], [read((value,), BATCHES.get(value, SMALLEST)) for value in pair])
    for value, name in BATCHES.items():
        outcome = predicted(model, (value,)).outcome
        allocated, reserved = measured(name)
        assert (outcome.peak_allocated.value, outcome.peak_reserved.value) == (allocated, reserved), value
    at_18 = predicted(model, (18,)).outcome
    assert at_18.peak_reserved.value == 40_506 * MIB
    assert abs(at_18.peak_allocated.value / MIB - 36_489.8) <= 1


def test_batch_1_goes_another_way_and_asks_for_the_same_at_its_peak(read: Read) -> None:
    model = fit.build(["batch"], [read((value,), BATCHES[value]) for value in (2, 4)])
    outcome = predicted(model, (1,)).outcome
    allocated, reserved = measured(SMALLEST)
    steps: list[dict[str, Any]] = facts_of(SHARED / "captures" / f"{SMALLEST}.pickle.xz")["step_stats"]
    assert outcome.peak_requested.value == max(step["requested_bytes.all.peak"] for step in steps)
    assert abs(outcome.peak_allocated.value / allocated - 1) < 0.0011
    assert outcome.peak_reserved.value == reserved


@pytest.mark.parametrize("pair", [(8, 16), (4, 8), (2, 4)])
def test_the_largest_batch_is_the_one_that_the_card_took(read: Read, pair: tuple[int, int]) -> None:
    model = fit.build(["batch"], [read((value,), BATCHES[value]) for value in pair])
    fitted = fit.fit(model, fit.Conditions(CAP), others=())
    row = report.as_json(fitted)
    assert row["largest"] == 20
    oom = next(point["oom"] for point in row["points"] if point["value"] == 21)
    assert (oom["request_bytes"], oom["step"], oom["phase"]) == (4_322_906_112, 2, "backward")
    assert oom["requested_by"] == "LogSoftmaxBackward0"
    # torch's own counters when batch 21 really ran out of memory
    counted = facts_of(SHARED / "captures" / "sweep_21_ws8.pickle.xz")["oom"]["stats"]
    assert oom["reserved_bytes"] == counted["reserved_bytes.all.current"] == 42_042 * MIB
    assert oom["allocated_bytes"] == counted["allocated_bytes.all.current"]


def test_expandable_segments_let_batch_21_fit(read: Read) -> None:
    model = fit.build(["batch"], [read((value,), BATCHES[value]) for value in (8, 16)])
    expandable = Settings.parse("expandable_segments:True")
    answered = predicted(model, (21,), fit.Conditions(CAP, settings=expandable))
    allocated, reserved = measured("sweep_21_ws8_expandable")
    assert answered.fits
    assert answered.outcome.peak_reserved.value == reserved
    assert abs(answered.outcome.peak_allocated.value - allocated) <= MIB


@pytest.mark.parametrize("left_out", [*LENGTHS, None])
def test_batch_and_sequence(read: Read, left_out: Point | None) -> None:
    given = [(point, name) for point, name in LENGTHS.items() if point != left_out]
    model = fit.build(["batch", "sequence"], [read(point, name) for point, name in given])
    if left_out is None:
        notes = report.notes(fit.fit(model, fit.Conditions()))
        assert any("go with batch times sequence squared" in note for note in notes)
    others = {(value, 1024): name for value, name in BATCHES.items()} | LENGTHS
    for point, name in others.items():
        outcome = predicted(model, point).outcome
        allocated, reserved = measured(name)
        assert (outcome.peak_allocated.value, outcome.peak_reserved.value) == (allocated, reserved), point


def test_another_transformer_in_bfloat16(read: Read) -> None:
    model = fit.build(["batch"], [read((1,), "llama_b1"), read((2,), "llama_b2")])
    outcome = predicted(model, (4,)).outcome
    allocated, reserved = measured("llama_b4")
    assert (outcome.peak_allocated.value, outcome.peak_reserved.value) == (allocated, reserved)


@pytest.mark.parametrize(("pair", "left_out"), [((1, 2), 4), ((1, 4), 2), ((2, 4), 1)])
def test_where_ties_decide_the_range_holds_what_was_measured(read: Read, pair: tuple[int, int], left_out: int) -> None:
    model = fit.build(["batch"], [read((value,), f"llama_b{value}") for value in pair])
    answered = predicted(model, (left_out,))
    allocated, reserved = measured(f"llama_b{left_out}")
    assert answered.allocated[0] <= allocated <= answered.allocated[1]
    assert answered.reserved[0] <= reserved <= answered.reserved[1]


def test_every_pair_says_the_same_of_larger_values(read: Read) -> None:
    sources = [read((value,), f"llama_b{value}") for value in (1, 2, 4)]
    models = [fit.build(["batch"], list(pair)) for pair in combinations(sources, 2)]
    for value in (8, 16, 128):
        outcomes = [run_once(model, (value,)) for model in models]
        assert len({outcome.peak_allocated.value for outcome in outcomes}) == 1
        assert len({outcome.peak_reserved.value for outcome in outcomes}) == 1


def test_one_recording_of_the_golden_run_is_a_good_guess(read: Read) -> None:
    model = fit.build(["batch"], [read((8,), BATCHES[8])])
    outcome = predicted(model, (20,)).outcome
    allocated, reserved = measured(BATCHES[20])
    assert outcome.peak_reserved.value == reserved
    assert abs(outcome.peak_allocated.value - allocated) <= MIB


def test_with_no_stack_at_all_order_and_lifetime_are_enough(read: Read) -> None:
    model = fit.build(["batch"], [read((2,), BATCHES[2]), read((4,), BATCHES[4])])
    blind = [
        replace(source, python=[()] * len(source.python), native=[()] * len(source.native)) for source in model.sources
    ]
    program, _ = fit.build(["batch"], blind).stream((20,))
    told = model.stream((20,))[0].requested
    differing = [(size, other) for size, other in zip(program.requested, told, strict=True) if size != other]
    assert differing == []


@pytest.mark.parametrize(
    ("first", "second", "problem"),
    [
        ("llama_b4", "gpt2_b8_ws8", "the models differ"),
        ("gpt2_b8_bf16_sdpa", "gpt2_b8_ws8", "not the same program"),
        ("gpt2_b8_ckpt", "gpt2_b8_ws8", "not the same program"),
        ("resnet_b32", "zoo_resnet50_b32", "training steps"),
        ("sweep_21_ws8", "gpt2_b8_ws8", "ran out of memory"),
        ("gpt2_b8_expandable", "gpt2_b8", "no size differs"),
    ],
)
def test_other_programs_are_refused(read: Read, first: str, second: str, problem: str) -> None:
    with pytest.raises(TracekitError, match=problem):
        fit.build(["batch"], [read((4,), first), read((8,), second)])


# ------------------------------------------------------------------ the command


def test_as_json_it_is_what_scripts_rely_on(shared: Path, tmp_path: Path) -> None:
    captures = shared / "captures"
    words = [f"{value}={captures / BATCHES[value]}.pickle.xz" for value in (2, 4)]
    done = run("fit", *words, "--limit", "20GiB", "--at", "5", "-o", tmp_path / "out", "--format", "json")
    told = json.loads(done.stdout)
    assert {"variable", "largest", "limit_bytes", "points", "notes"} <= told.keys()
    assert (told["variable"], told["limit_bytes"]) == ("batch", 20 << 30)
    keys = {"value", "allocated_bytes", "reserved_bytes", "fits", "oom"}
    assert all(keys <= point.keys() for point in told["points"])
    assert [point["value"] for point in told["points"]] == [2, 4, 5, told["largest"], told["largest"] + 1]
    assert run("check", tmp_path / "out").returncode == 0
    assert done.stderr == f"dataset: {tmp_path / 'out'}\n"


# ------------------------------------------------------------------ synthetic recordings


def test_a_synthetic_run_at_other_lengths_whose_positions_grow_with_them(read_synthetic: Read) -> None:
    # its C++ frames are drawn by chance, so that only Python's say what is the same; its noise is drawn by chance too
    given: list[Point] = [(4, 128), (8, 128), (4, 256), (8, 512)]
    model = fit.build(["batch", "sequence"], [read_synthetic(point, fit.told(point)) for point in given])
    recorded = run_program(read_synthetic((8, 384), "8x384").program, keeps_events=False)
    answered = predicted(model, (8, 384))
    assert abs(answered.outcome.peak_allocated.value - recorded.peak_allocated.value) <= MIB
    assert answered.reserved[0] <= recorded.peak_reserved.value <= answered.reserved[1]


@pytest.fixture
def read_synthetic(tmp_path: Path, shared: Path) -> Iterator[Read]:
    """The shared generator's run at a batch and a length."""
    with ExitStack() as stack:

        def source(point: Point, name: str) -> fit.Source:
            path = tmp_path / f"{name}.pickle"
            batch, length = map(str, point)
            size = ["--layers", "2", "--width", "128", "--batch", batch, "--seq", length, "-n", "3000"]
            tool = shared / "tools" / "gen_snapshot.py"
            subprocess.run([sys.executable, tool, *size, "-o", path], check=True, stdout=subprocess.DEVNULL)
            return fit.read(point, name, stack.enter_context(analysis.open_any(path)))

        yield source
