"""The verbs that explain, as a person and a script meet them: ledger --by, why, growth, oom-message."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.conftest import facts_of
from tests.test_commands import run


def test_ledger_by_layer_needs_no_names(sample_dataset: Path) -> None:
    """Each of the twelve blocks holds 769.125 MiB at the peak, which the seed had to work out from the code."""
    told = json.loads(run("ledger", sample_dataset, "--by", "layer", "--format", "json").stdout)
    layers = {row["layer"]: row["requested_bytes"] for row in told["ledger"] if row["layer"] is not None}
    assert told["by"] == ["layer"]
    assert layers == {str(layer_ix): 806_486_016 for layer_ix in range(12)}


def test_ledger_by_two_columns_balances_in_print(sample_dataset: Path) -> None:
    text = run("ledger", sample_dataset, "--by", "phase,bucket", "--top", "3").stdout
    lines = [line.split() for line in text.splitlines()]
    assert lines[4][:2] == ["forward", "activation"]
    assert "(8 more)" in text
    assert ["requested", "17,049.1", "17,877,285,964"] in [line[:3] for line in lines]
    assert ["reserved", "18,334.0", "19,224,592,384"] in [line[:3] for line in lines]


def test_ledger_by_as_csv_at_any_event(sample_dataset: Path) -> None:
    text = run("ledger", sample_dataset, "--by", "user_line", "--at", "event:2000", "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text)))
    account = json.loads(run("ledger", sample_dataset, "--at", "event:2000", "--format", "json").stdout)["ledger"]
    assert sum(int(row["requested_bytes"]) for row in rows) == sum(
        line["requested_bytes"] for line in account if line["bucket"] not in ("block_slack", "pending_free", "cached")
    )


@pytest.mark.parametrize(
    "options",
    [
        ["--by", "nonsense"],
        ["--by", "phase,bucket,node"],
        ["--by", "phase,phase"],
        ["--top", "3"],
        ["--by", "phase", "--pool"],
    ],
)
def test_ledger_options_that_make_no_sense_are_wrong_usage(sample_dataset: Path, options: list[str]) -> None:
    done = run("ledger", sample_dataset, *options)
    assert (done.returncode, done.stdout) == (2, "")


def test_ledger_and_analyze_say_what_the_labels_rest_on(sample_dataset: Path) -> None:
    line = "the labels rest on: stack 15,478.5 MiB (90.8 %), size 1,570.5 MiB (9.2 %), lifetime 0.1 MiB (0.0 %)"
    assert line in run("ledger", sample_dataset).stdout
    told = json.loads(run("ledger", sample_dataset, "--format", "json").stdout)
    assert sum(row["requested_bytes"] for row in told["evidence"]) == 17_877_285_964


def test_why_tells_of_slack_segment_and_who_freed_it(sample_dataset: Path) -> None:
    text = run("why", sample_dataset, "event:10").stdout
    assert "799,744 bytes of slack, 799,744 left on the block because it was too little to split off" in text
    assert "nothing else lay in its segment when it was born" in text
    text = run("why", sample_dataset, "event:5352").stdout
    assert "bucket gradient_in_flight" in text
    assert "freed at event 5,394, in step 2, backward by the autograd engine" in text
    assert "shared its segment with 24 allocations of 142.5 MiB" in text
    told = json.loads(run("why", sample_dataset, "event:5352", "--format", "json").stdout)
    assert len(told["segment_sharers"]) == 24
    assert {row["bucket"] for row in told["segment_sharers"]} == {"gradient", "optimizer_state"}


def test_growth_finds_the_leak_of_one_block_a_step_and_nothing_more(shared: Path) -> None:
    leak = shared / "captures" / "small_leak.pickle.xz"
    (told,) = json.loads(run("growth", leak, "--format", "json").stdout)
    assert (told["moment_count"], told["first_step"], told["last_step"]) == (7, 2, 8)
    (found,) = [row for row in told["rows"] if row["verdict"] != "stays"]
    assert (found["verdict"], found["growth_bytes"], found["first_bytes"], found["last_bytes"]) == (
        "grows",
        512,
        512,
        3584,
    )
    assert (found["first_count"], found["last_count"]) == (1, 7)
    assert found["requested_by"] == "nll_loss_forward"
    text = run("growth", leak).stdout
    assert "grows: 1 stack, 0.0 MiB (3,584 bytes) at the last of them, 512 bytes more each step" in text
    assert "gpt2.py:95 forward" in text


@pytest.mark.parametrize("name", ["small_long", "frag_dynamic"])
def test_growth_is_not_seen_where_there_is_none(shared: Path, name: str) -> None:
    (told,) = json.loads(run("growth", shared / "captures" / f"{name}.pickle.xz", "--format", "json").stdout)
    assert told["can_tell"]
    assert {row["verdict"] for row in told["rows"]} <= {"stays", "varies"}


def test_growth_gives_no_verdict_where_the_recording_cannot_tell(sample_dataset: Path) -> None:
    text = run("growth", sample_dataset).stdout
    assert "the recording cannot tell: growth needs the beginnings of 3 steps" in text


def test_analyze_explains_the_request_that_failed(shared: Path, tmp_path: Path) -> None:
    """Batch 21 under a cap of 45,440 MiB, which the file does not say: its second step asks for one more logits."""
    snapshot = shared / "captures" / "sweep_21_ws8.pickle.xz"
    done = run("analyze", snapshot, "-o", tmp_path / "out", "--format", "json")
    ((row,),) = [device["oom"] for device in json.loads(done.stdout)["devices"]]
    facts = facts_of(snapshot)["oom"]
    assert (row["event_ix"], row["step"], row["phase"], row["outcome"]) == (3816, 2, "backward", "fatal")
    assert row["asked_bytes"] == 21 * 1024 * 50257 * 4
    assert row["segment_bytes"] == facts["alloc"]
    assert row["device_free_bytes"] == facts["free"]
    assert row["allocated_bytes"] == facts["stats"]["allocated_bytes.all.current"]
    assert row["reserved_bytes"] == facts["stats"]["reserved_bytes.all.current"]
    assert sum(line["entry_bytes"] for line in row["ledger"]) == row["reserved_bytes"]
    assert row["verdict"] == "fragmented"
    assert row["limit_from_bytes"] < facts["total"] < row["limit_below_bytes"]
    assert [twin["bucket"] for twin in row["twins"]] == ["logits_and_loss"] * 3


def test_what_a_replay_says_would_have_passed_is_what_passed(shared: Path, tmp_path: Path) -> None:
    """The same run with expandable segments was recorded, too: it fits, with 42,940.0 MiB reserved at most."""
    snapshot = shared / "captures" / "sweep_21_ws8.pickle.xz"
    text = run("analyze", snapshot, "-o", tmp_path / "out").stdout
    assert "out of memory at event 3,816 in step 2, backward: 4,122.6 MiB (4,322,906,112 bytes)" in text
    assert "so a limit set on the process refused it, not the card" in text
    assert "  expandable_segments:True: yes, 42,940.0 MiB reserved at most" in text
    other = facts_of(shared / "captures" / "sweep_21_ws8_expandable.pickle.xz")
    reserved = max(stats["reserved_bytes.all.peak"] for stats in other["step_stats"])
    assert f"{reserved / (1 << 20):,.1f}" == "42,940.0"


def test_which_witness_told_the_phases_is_said(sample_dataset: Path, shared: Path, tmp_path: Path) -> None:
    assert "born at event 10, load (phase told by annotation)" in run("why", sample_dataset, "event:10").stdout
    snapshot = shared / "captures" / "gpt2_b8_ws8.pickle.xz"
    text = run("analyze", snapshot, "-o", tmp_path / "one").stdout
    assert "phases are told by annotations and stacks" in text
    bare = shared / "captures" / "small_nohistory.pickle.xz"
    assert "nothing in the recording tells phases" in run("analyze", bare, "-o", tmp_path / "two").stdout
