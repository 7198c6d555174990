"""The same program again: what other settings give is what was measured under them, or what the recording was."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import facts_of
from tests.test_commands import run
from tracekit import analysis, ledger, what_if
from tracekit.allocator.settings import Settings
from tracekit.errors import TracekitError
from tracekit.warehouse import Warehouse

MIB = 1 << 20
CAP = 45_440 * MIB


@pytest.fixture(scope="module")
def recording(sample: Warehouse) -> what_if.Recorded:
    return what_if.recorded(sample)


def only(
    recording: what_if.Recorded, name: str, limit: int | None = None, *, keeps_events: bool = False
) -> what_if.Trial:
    (trial,) = what_if.trials(recording, [name], limit, keeps_events=keeps_events)
    return trial


def test_under_its_own_settings_a_program_does_what_was_recorded(recording: what_if.Recorded) -> None:
    outcome = only(recording, "recorded").outcome
    assert (outcome.peak_allocated.value, outcome.peak_allocated.event_ix) == (17_882_019_840, 3815)
    assert outcome.peak_reserved.value == 19_224_592_384
    assert outcome.fits


def test_a_limit_that_is_one_segment_short_fits_after_releasing_the_cache(recording: what_if.Recorded) -> None:
    outcome = only(recording, "recorded", 18_300 * MIB).outcome
    assert outcome.fits
    assert outcome.retries == 1
    assert outcome.peak_allocated.value == 17_882_019_840
    assert outcome.peak_reserved.value <= 18_300 * MIB


def test_a_limit_below_the_allocated_peak_cannot_fit(recording: what_if.Recorded) -> None:
    outcome = only(recording, "recorded", 17_000 * MIB).outcome
    assert outcome.out_of_memory is not None
    assert outcome.out_of_memory.reserved_bytes <= 17_000 * MIB


def test_names_stand_for_settings() -> None:
    base = Settings.parse("expandable_segments:True")
    assert what_if.chosen_settings(base, "recorded") == base
    assert what_if.chosen_settings(base, "default") == Settings()
    both = what_if.chosen_settings(base, "max_split_size_mb:256+roundup_power2_divisions:4")
    assert both == Settings.parse("expandable_segments:True,max_split_size_mb:256,roundup_power2_divisions:4")
    with pytest.raises(TracekitError, match="not an allocator option"):
        what_if.chosen_settings(base, "nonsense:1")


def test_settings_that_come_to_the_same_are_run_once(recording: what_if.Recorded) -> None:
    assert [
        one.name for one in what_if.trials(recording, ["recorded", "default", "expandable_segments:False"], None)
    ] == ["recorded"]


@pytest.mark.parametrize(
    "name", ["recorded", "expandable_segments:True", "max_split_size_mb:256", "roundup_power2_divisions:4"]
)
def test_another_run_is_a_dataset_that_balances_and_replays_exactly(
    recording: what_if.Recorded, tmp_path: Path, name: str
) -> None:
    trial = only(recording, name, keeps_events=True)
    analysis.write_dataset(tmp_path / "out", what_if.tables_of(recording, [trial]), {"replayed": name})
    with Warehouse.open(tmp_path / "out") as warehouse:
        assert {check: rows for check, rows in ledger.failures(warehouse).items() if rows} == {}
        (row,) = ledger.summaries(warehouse)
        (line,) = warehouse.rows("select requested_bytes from ledger where moment = 'peak' and bucket = 'activation'")
    assert row["is_exact"] is True
    assert row["peak_allocated_bytes"] == trial.outcome.peak_allocated.value
    assert row["highest_reserved_bytes"] == trial.outcome.peak_reserved.value
    assert (row["requested_by"], row["peak_step"], row["peak_phase"]) == ("LogSoftmaxBackward0", 2, "backward")
    assert line["requested_bytes"] == 9_728_237_568


def test_a_state_without_a_trace_is_no_program(tmp_path: Path) -> None:
    from tests.snapshots import dumped, segment, snapshot

    (tmp_path / "state.pickle").write_bytes(dumped(snapshot([segment(4096, 2 * MIB)])))
    with (
        Warehouse(analysis.build(tmp_path / "state.pickle")[1]) as warehouse,
        pytest.raises(TracekitError, match="no events"),
    ):
        what_if.recorded(warehouse)


# ------------------------------------------------------------------ against what was measured


def measured(shared: Path, name: str) -> tuple[int, int]:
    """torch's own peaks: allocated and reserved."""
    facts: dict[str, Any] = facts_of(shared / "captures" / f"{name}.pickle.xz")
    steps = facts["step_stats"]
    return (
        max(step["allocated_bytes.all.peak"] for step in steps),
        max(step["reserved_bytes.all.peak"] for step in steps),
    )


def of_capture(shared: Path, name: str) -> what_if.Recorded:
    with Warehouse(analysis.build(shared / "captures" / f"{name}.pickle.xz")[1]) as warehouse:
        return what_if.recorded(warehouse)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("expandable_segments:True", "gpt2_b8_expandable"),
        ("max_split_size_mb:256,roundup_power2_divisions:4", "gpt2_b8_maxsplit"),
    ],
)
def test_other_settings_give_what_was_measured_under_them(shared: Path, options: str, name: str) -> None:
    outcome = only(of_capture(shared, "gpt2_b8_saved"), options).outcome
    assert (outcome.peak_allocated.value, outcome.peak_reserved.value) == measured(shared, name)


def test_batch_20_fits_under_the_cap_as_it_did(shared: Path) -> None:
    outcome = only(of_capture(shared, "sweep_20_ws8"), "recorded", CAP).outcome
    assert outcome.fits
    assert outcome.peak_reserved.value == 44_948 * MIB


def test_batch_21_runs_out_of_memory_as_it_did(shared: Path) -> None:
    oom = only(of_capture(shared, "sweep_21_ws8"), "recorded", CAP).outcome.out_of_memory
    assert oom is not None
    assert oom.event_ix == 3816
    assert oom.request_bytes == 4_322_906_112
    assert round(oom.allocated_bytes / MIB, 2) == 38_204.36
    assert oom.reserved_bytes == 42_042 * MIB
    assert oom.released_bytes == 1_008 * MIB


# ------------------------------------------------------------------ the command


def test_replay_as_json_is_what_scripts_rely_on(sample_dataset: Path) -> None:
    told = json.loads(
        run(
            "replay", sample_dataset, "--set", "expandable_segments:True", "--limit", "17GiB", "--format", "json"
        ).stdout
    )
    assert told["settings"]["expandable_segments"] is True
    assert told["limit_bytes"] == 17 * 1024 * MIB
    assert told["fits"] is (told["oom"] is None)
    assert {"peak_allocated_bytes", "peak_reserved_bytes"} <= told.keys()


def test_replay_tells_how_it_ran_out(sample_dataset: Path) -> None:
    done = run("replay", sample_dataset, "--limit", "15000MiB")
    assert done.returncode == 0
    assert "runs out of memory" in done.stdout
    assert "MiB were left to reserve" in done.stdout
    oom = json.loads(run("replay", sample_dataset, "--limit", "15000MiB", "--format", "json").stdout)["oom"]
    assert {"event_ix", "request_bytes", "allocated_bytes", "reserved_bytes", "requested_by"} <= oom.keys()
    assert oom["requested_by"]


def test_suggest_ranks_by_reserved_peak(sample_dataset: Path) -> None:
    rows = json.loads(run("replay", sample_dataset, "--suggest", "--format", "json").stdout)
    peaks = [row["peak_reserved_bytes"] for row in rows]
    assert peaks == sorted(peaks)
    assert rows[0]["name"] == "expandable_segments:True"
    assert len({row["name"] for row in rows}) == len(rows)


def test_replay_leaves_a_dataset(sample_dataset: Path, tmp_path: Path) -> None:
    done = run("replay", sample_dataset, "--set", "expandable_segments:True", "-o", tmp_path / "out")
    assert done.stderr == f"dataset: {tmp_path / 'out'}\n"
    assert run("check", tmp_path / "out").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "code", "problem"),
    [
        (["--set", "nonsense:1"], 1, "'nonsense' is not an allocator option"),
        (["--limit", "plenty"], 2, "is not a size"),
        (["--suggest", "--compare", "default"], 2, "give one of"),
        (["--suggest", "-o", "out"], 2, "one set of settings"),
        (["--device", "5"], 1, "no events to run again on device 5"),
    ],
)
def test_replay_says_what_it_cannot_do(
    sample_dataset: Path, tmp_path: Path, arguments: list[str], code: int, problem: str
) -> None:
    done = run("replay", sample_dataset, *arguments, folder=tmp_path)
    assert done.returncode == code
    assert problem in done.stderr
    assert "Traceback" not in done.stderr
