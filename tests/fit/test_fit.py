"""Recordings of small programs, given; the sizes, peaks and refusals that must follow."""

from __future__ import annotations

from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from tests.fit.conftest import MIB, Line, Record, alloc, free
from tracekit import analysis, fit, ledger
from tracekit.allocator.whatif import run
from tracekit.errors import TracekitError
from tracekit.fit import report
from tracekit.fit.rule import Kind
from tracekit.warehouse import Warehouse

WEIGHT = 40 * MIB


def step(batch: int, length: int = 1) -> list[Line]:
    """A program with a weight, an activation, a small workspace, and a gradient; the workspace grows by halves."""
    return [
        alloc("weight", WEIGHT, "init"),
        alloc("hidden", batch * length * 3 * MIB, "forward"),
        alloc("scores", batch * length * length * 5 * MIB, "forward"),
        alloc("scratch", 4096 + batch * length * 512, "matmul", "forward"),
        free("scratch"),
        alloc("gradient", WEIGHT, "backward"),
        free("scores"),
        free("hidden"),
        free("gradient"),
    ]


def test_sizes_follow_the_batch(record: Record) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])
    program, _ = model.stream((10,))
    assert program.requested == [WEIGHT, 30 * MIB, 50 * MIB, 4096 + 5120, WEIGHT]
    assert [one.kind for one in model.rules] == [
        Kind.CONSTANT,
        Kind.PROVEN,
        Kind.PROVEN,
        Kind.FITTED,
        Kind.CONSTANT,
    ]
    assert model.matches[0].share == 1


def test_sizes_follow_batch_and_length(record: Record) -> None:
    points = [(2, 2), (4, 2), (2, 4)]
    model = fit.build(["batch", "sequence"], [record(point, step(*point)) for point in points])
    program, _ = model.stream((3, 3))
    assert program.requested == [WEIGHT, 27 * MIB, 135 * MIB, 4096 + 9 * 512, WEIGHT]


def test_lines_and_outer_functions_of_another_version_do_not_matter(record: Record) -> None:
    model = fit.build(
        ["batch"],
        [record(2, step(2)), record(4, step(4), first_line=100, outermost="main")],
    )
    assert model.matches[0].unmatched_count == 0


def test_what_has_no_partner_follows_its_twins_or_the_value_or_keeps_its_size(record: Record) -> None:
    extra = [
        alloc("copy", 4 * 3 * MIB, "contiguous", "forward"),
        alloc("lonely", 7777, "contiguous", "forward"),
        alloc("sorted", 4 * 6_000, "contiguous", "forward"),
        free("copy"),
        free("lonely"),
        free("sorted"),
    ]
    larger = step(4)
    model = fit.build(["batch"], [record(2, step(2)), record(4, larger[:4] + extra + larger[4:])])
    program, _ = model.stream((10,))
    assert [program.requested[number] for number in (4, 5, 6)] == [30 * MIB, 7777, 60_000]
    assert [model.rules[number].kind for number in (4, 5, 6)] == [Kind.TWIN, Kind.KEPT, Kind.SCALED]
    assert any(
        "no partner; it keeps its size" in sentence for sentence in report.notes(fit.fit(model, fit.Conditions()))
    )


def layers(batch: int) -> list[Line]:
    """Layers whose scores at batch 1 are of the size of the copies at batch 16; at batch 1 no copy is needed."""
    lines = [alloc("weight", WEIGHT, "init")]
    for layer in range(3):
        copies = [f"copy{layer}.{index}" for index in range(3 if batch > 1 else 0)]
        scores = [f"scores{layer}.{index}" for index in range(4)]
        for names, size in ((copies[:2], 3 * MIB), (scores, 48 * MIB), (copies[2:], 3 * MIB)):
            lines += [alloc(name, batch * size, "attention", "forward") for name in names]
        lines += [free(name) for name in (*copies, *scores)]
    return lines


def test_sizes_that_happen_to_be_equal_at_two_values_are_not_taken_for_one(record: Record) -> None:
    model = fit.build(["batch"], [record(1, layers(1)), record(16, layers(16))])
    for batch in (4, 20):
        assert model.stream((batch,))[0].requested == [size for kind, _, size, _ in layers(batch) if kind == "alloc"]


def test_at_a_recorded_value_the_recording_is_reproduced(record: Record) -> None:
    sources = [record(2, step(2)), record(4, step(4))]
    model = fit.build(["batch"], sources)
    for source in sources:
        answered = fit.fit(model, fit.Conditions()).answers[source.point]
        recorded = run(source.program)
        assert answered.is_measured
        assert answered.outcome.peak_allocated == recorded.peak_allocated
        assert answered.outcome.peak_reserved == recorded.peak_reserved


def test_the_largest_that_fits_and_who_set_the_peaks(record: Record) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])
    limit = 2 * WEIGHT + 20 * 8 * MIB + 40 * MIB
    fitted = fit.fit(model, fit.Conditions(limit), others=())
    row = report.as_json(fitted)
    values = [point["value"] for point in row["points"]]
    assert row["largest"] == max(value for value in range(1, 40) if run(model.stream((value,))[0], limit=limit).fits)
    assert values == [2, 4, row["largest"], row["largest"] + 1]
    assert not row["points"][-1]["fits"]
    assert row["points"][-1]["oom"]["reserved_bytes"] <= limit
    assert row["points"][0]["kind"] == "measured"
    assert row["points"][2]["kind"] == "predicted"
    assert row["points"][2]["allocated_by"]["request_bytes"] == WEIGHT


def test_a_margin_is_kept_free(record: Record) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])
    plain = fit.fit(model, fit.Conditions(500 * MIB), others=()).found
    spared = fit.fit(model, fit.Conditions(500 * MIB, 100 * MIB), others=()).found
    same = fit.fit(model, fit.Conditions(400 * MIB), others=()).found
    assert plain is not None
    assert spared is not None
    assert same is not None
    assert spared.largest == same.largest
    assert (plain.largest or 0) > (spared.largest or 0)


def test_the_generated_stream_is_a_dataset_that_balances(record: Record, tmp_path: Path) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])
    conditions = fit.Conditions(500 * MIB)
    analysis.write_dataset(tmp_path / "out", fit.tables_at(model, (10,), conditions), {})
    answered = fit.fit(model, conditions, [(10,)]).answers[10,]
    with Warehouse.open(tmp_path / "out") as warehouse:
        assert [rows for rows in ledger.failures(warehouse).values() if rows] == []
        (row,) = warehouse.rows("from device_summary")
    assert row["peak_allocated_bytes"] == answered.outcome.peak_allocated.value
    assert row["highest_reserved_bytes"] == answered.outcome.peak_reserved.value


def test_what_would_make_a_value_fit(record: Record) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])
    conditions = fit.Conditions(WEIGHT + 300 * MIB)
    fitted = fit.fit(model, conditions, [(40,)])
    assert not fitted.answers[40,].fits
    made = report.make_fit(fitted, (40,))
    assert made["settings"][0]["name"] == "recorded"
    helping = [one for one in made["buckets"] if one["fits_at_percent"] is not None]
    assert helping
    assert all(one["reserved_bytes"] <= WEIGHT + 300 * MIB for one in helping)


def test_one_recording_is_a_guess_and_says_so(record: Record) -> None:
    model = fit.build(["batch"], [record(4, step(4))])
    assert {one.kind for one in model.rules} <= {Kind.GUESSED, Kind.KEPT}
    assert any("guess" in sentence for sentence in report.notes(fit.fit(model, fit.Conditions())))


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        (step(2), "no size differs"),
        ([alloc(f"other{index}", 3 * MIB, "elsewhere") for index in range(9)], "not the same program"),
        ([*step(4)[:1], alloc("hidden", 5 * MIB, "forward"), alloc("scores", 501 * MIB + 1, "forward")], "not explain"),
    ],
)
def test_what_cannot_be_one_program_is_refused(record: Record, second: list[Line], problem: str) -> None:
    with pytest.raises(TracekitError, match=problem):
        fit.build(["batch"], [record(2, step(2)), record(4, second)])


def test_recordings_that_do_not_tell_two_variables_apart_are_refused(record: Record) -> None:
    sources = [record(point, step(*point)) for point in ((2, 2), (4, 2))]
    with pytest.raises(TracekitError, match="do not tell"):
        fit.build(["batch", "sequence"], sources)
    with pytest.raises(TracekitError, match="one recording does not tell"):
        fit.build(["batch", "sequence"], sources[:1])


def test_a_program_without_surprises_is_predicted_to_the_byte(record: Record) -> None:
    model = fit.build(["batch"], [record(2, step(2)), record(4, step(4))])

    @given(st.integers(1, 10_000).filter(lambda batch: batch not in (2, 4)))
    def every_batch(batch: int) -> None:
        asked = [size for kind, _, size, _ in step(batch) if kind == "alloc"]
        assert model.stream((batch,))[0].requested == asked

    every_batch()


@pytest.mark.parametrize("sizes", [(0, 0), (0, 512), (512, 0)])
def test_an_allocation_of_nothing_is_no_obstacle(record: Record, sizes: tuple[int, int]) -> None:
    programs = [[*step(batch), alloc("nothing", size, "forward")] for batch, size in zip((2, 4), sizes, strict=True)]
    model = fit.build(["batch"], [record(batch, lines) for batch, lines in zip((2, 4), programs, strict=True)])
    assert fit.fit(model, fit.Conditions(), [(10,)]).answers[10,].fits


def test_what_has_no_rule_is_also_taken_in_proportion_where_that_decides(record: Record) -> None:
    # the scratch memory of a library, 100 MiB and a bit at 2 and 100 MiB and another bit at 4: no rule in whole bytes
    def program(batch: int, scratch: int) -> list[Line]:
        return [
            alloc("weight", 2_000 * MIB, "init"),
            alloc("hidden", batch * 3 * MIB, "forward"),
            alloc("scratch", scratch, "matmul", "forward"),
            free("scratch"),
        ]

    model = fit.build(["batch"], [record(2, program(2, 100 * MIB)), record(4, program(4, 101 * MIB + 1))])
    assert model.rules[2].kind is Kind.NEARLY
    answered = fit.fit(model, fit.Conditions(), [(40,)]).answers[40,]
    assert answered.outcome.peak_allocated.value < 2_300 * MIB
    assert answered.allocated[1] >= (2_000 + 10 * (12 + 101)) * MIB
    assert fit.fit(model, fit.Conditions(2_600 * MIB), [(40,)]).answers[40,].fit_count == 12
    assert not fit.fit(model, fit.Conditions(2_600 * MIB), [(40,)]).answers[40,].fits
