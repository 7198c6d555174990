"""The verbs as a person and a script meet them: what they print, where, and how they end."""

from __future__ import annotations

import csv
import io
import json
import lzma
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, SAMPLE
from tests.snapshots import block, dumped, event, frame, segment, snapshot
from tracekit.cli import VERBS

SNAPSHOT = SAMPLE / "snapshot.pickle.xz"
PEAK = 17_882_019_840


def run(
    *arguments: str | Path, stdin: bytes = b"", folder: Path = ROOT, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The console script in a process of its own."""
    import os

    done = subprocess.run(
        [sys.executable, "-m", "tracekit", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_analyze_prints_the_account_and_says_where_the_dataset_is(tmp_path: Path) -> None:
    done = run("analyze", SNAPSHOT, "-o", tmp_path / "out")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith("snapshot.pickle.xz, device 0: 7,058 events, 2 steps")
    assert lines[1] == "peak 17,053.6 MiB allocated (17,882,019,840 bytes) at event 3,815 in step 2, backward"
    assert lines[2] == "set by a request for 1,570.5 MiB (1,646,821,376 bytes) by LogSoftmaxBackward0"
    assert done.stderr == f"dataset: {tmp_path / 'out'}\nreport: {tmp_path / 'out' / 'report.html'}\n"
    assert "Traceback" not in done.stderr


def test_analyze_as_json_is_what_scripts_rely_on(tmp_path: Path) -> None:
    done = run("analyze", SNAPSHOT, "-o", tmp_path / "out", "--format", "json", "--quiet")
    assert done.stderr == ""
    told: dict[str, Any] = json.loads(done.stdout)
    (device,) = told["devices"]
    assert told["dataset"] == str(tmp_path / "out")
    assert (device["device"], device["event_count"], device["step_count"]) == (0, 7058, 2)
    assert device["peak"] == {
        "event_ix": 3815,
        "allocated_bytes": PEAK,
        "requested_bytes": 17_877_285_964,
        "reserved_bytes": 19_224_592_384,
        "step": 2,
        "phase": "backward",
        "requested_by": "LogSoftmaxBackward0",
        "request_bytes": 1_646_821_376,
    }
    assert device["peak_reserved_bytes"] == 19_224_592_384
    assert device["replay"]["is_exact"] is True
    assert device["replay"]["mismatch_count"] == 0
    held = [line for line in device["ledger"] if line["bucket"] not in ("block_slack", "pending_free", "cached")]
    assert sum(line["held_bytes"] for line in held) == PEAK


def test_several_snapshots_are_a_list_and_go_into_one_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.pickle").write_bytes(lzma.decompress(SNAPSHOT.read_bytes()))
    done = run("analyze", "a.pickle", "b.pickle", "-o", "out", "--format", "json", folder=tmp_path)
    assert [one["dataset"] for one in json.loads(done.stdout)] == ["out/a.tracekit", "out/b.tracekit"]
    assert (tmp_path / "out" / "b.tracekit" / "manifest.json").is_file()


def test_a_snapshot_may_come_through_a_pipe(tmp_path: Path) -> None:
    done = run("ledger", "-", "--format", "csv", stdin=SNAPSHOT.read_bytes(), folder=tmp_path)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert sum(int(row["entry_bytes"]) for row in rows) == 19_224_592_384
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_stands_for_its_snapshot(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2.run"
    folder.mkdir()
    (folder / "capture.json").write_text("{}", encoding="utf-8")
    (folder / "snapshot.pickle").write_bytes(lzma.decompress(SNAPSHOT.read_bytes()))
    told = json.loads(run("analyze", "gpt2.run", "--format", "json", folder=tmp_path).stdout)
    assert told["dataset"] == "gpt2.tracekit"
    assert told["devices"][0]["peak"]["allocated_bytes"] == PEAK
    assert json.loads(run("ledger", "gpt2.run", "--format", "json", folder=tmp_path).stdout)["event_ix"] == 3815


@pytest.mark.parametrize(
    ("at", "allocated"),
    [("peak", PEAK), ("start", 0), ("end", 18_087_936), ("step:1", 16_877_981_696), ("event:3815", PEAK)],
)
def test_ledger_at_a_moment(sample_dataset: Path, at: str, allocated: int) -> None:
    told = json.loads(run("ledger", sample_dataset, "--at", at, "--format", "json").stdout)
    beside = ("block_slack", "pending_free", "cached")
    assert told["moment"] == at
    assert sum(line["held_bytes"] for line in told["ledger"] if line["bucket"] not in beside) == allocated


@pytest.mark.parametrize(
    ("arguments", "problem", "remedy"),
    [
        (["ledger", "DATASET", "--at", "step:9"], "no moment 'step:9'", "it has: start, peak, step:1, step:2, end"),
        (["ledger", "DATASET", "--at", "event:9999999"], "no event 9,999,999", "from 0 to 7,057"),
        (["ledger", "DATASET", "--device", "3"], "no device 3", "devices in it: 0"),
        (["why", "DATASET", "999999"], "no allocation 999999", "list them with"),
        (["why", "DATASET", "event:0"], "event 0 neither allocates nor frees", "list them with"),
        (["why", "DATASET", "nonsense"], "'nonsense' names no allocation", "allocation_id"),
        (["sql", "DATASET", "select nonsense from ledger"], "nonsense", "LINE 1"),
        (["sql", "DATASET", "from read_csv('/etc/passwd')"], "disabled", "no other file"),
        (["sql", "DATASET", "--file", "absent.sql"], "cannot read absent.sql", "text file"),
        (["schema", "--name", "nonsense"], "no table or view called 'nonsense'", "tracekit schema"),
        (["analyze", "absent.pickle"], "absent.pickle", ""),
        (["ledger", "absent.tracekit"], "absent.tracekit", ""),
        (["ledger", "."], "not a tracekit dataset", "tracekit analyze SNAPSHOT"),
    ],
)
def test_what_cannot_be_done_is_said_in_two_lines(
    sample_dataset: Path, tmp_path: Path, arguments: list[str], problem: str, remedy: str
) -> None:
    done = run(*[str(sample_dataset) if word == "DATASET" else word for word in arguments], folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    first, _, rest = done.stderr.partition("\n")
    assert first.startswith("tracekit: ")
    assert problem in first
    assert remedy in rest


@pytest.mark.parametrize(
    "arguments", [["ledger"], ["nonsense"], ["analyze"], ["ledger", "x", "--at"], ["sql", "x", "y", "z"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert run(*arguments).returncode == 2


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("empty.pickle", b""),
        ("zero.pickle", b"\0" * 100),
        ("text.pickle", b"hello"),
        ("cut.pickle", dumped(snapshot())[:-20]),
        ("code.pickle", b"cposix\nsystem\n(S'true'\ntR."),
        ("memo.pickle", b"\x80\x02]r\xff\xff\xff\x7f."),
        ("number.pickle", dumped(7)),
        ("cut.xz", lzma.compress(dumped(snapshot()))[:-10]),
        ("page.html", b"<!DOCTYPE html><html></html>"),
        ("other.json", b'{"a": 1}'),
    ],
)
def test_a_bad_file_gets_an_answer_and_leaves_nothing(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    done = run("analyze", name, folder=tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith(f"tracekit: {name}: ")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_check_is_clean_on_the_sample(sample_dataset: Path) -> None:
    told = json.loads(run("check", sample_dataset, "--format", "json").stdout)
    assert told["is_clean"] is True
    assert all(check["row_count"] == 0 for check in told["checks"])


def test_check_ends_with_3_and_names_the_rows(tmp_path: Path) -> None:
    raw = snapshot([segment(4096, 2 << 20, [block(4096, 512)])], [[event("snapshot", 0, 512)]])
    (tmp_path / "bad.pickle").write_bytes(dumped(raw))
    done = run("check", "bad.pickle", folder=tmp_path)
    assert done.returncode == 3
    assert "its blocks add up to 512 bytes, not 2097152" in done.stdout


def test_why_tells_one_allocations_story(sample_dataset: Path) -> None:
    done = run("why", sample_dataset, "event:3815")
    assert "1,570.5 MiB (1,646,821,376 bytes) requested by LogSoftmaxBackward0" in done.stdout
    assert "born at event 3,815, in step 2, backward" in done.stdout
    assert "bucket logits_and_loss" in done.stdout
    assert "torch::autograd::generated::LogSoftmaxBackward0::apply" in done.stdout
    told = json.loads(run("why", sample_dataset, "event:3815", "--format", "json").stdout)
    place = (
        f"{told['address'] + 100:#x}@4000"
        if told["free_requested_event_ix"] > 4000
        else f"{told['address'] + 100}@3816"
    )
    again = json.loads(run("why", sample_dataset, place, "--format", "json").stdout)
    assert again["allocation_id"] == told["allocation_id"]
    assert json.loads(run("why", sample_dataset, str(told["allocation_id"]), "--format", "json").stdout) == told


def test_sql_prints_rows_in_each_format(sample_dataset: Path, tmp_path: Path) -> None:
    query = "select bucket, requested_bytes from ledger where moment = 'peak' and bucket = 'parameter'"
    assert json.loads(run("sql", sample_dataset, query, "--format", "json").stdout) == [
        {"bucket": "parameter", "requested_bytes": 497_759_232}
    ]
    assert (
        run("sql", sample_dataset, query, "--format", "csv").stdout == "bucket,requested_bytes\nparameter,497759232\n"
    )
    table = run("sql", sample_dataset, query).stdout
    assert "497759232" in table
    (tmp_path / "query.sql").write_text(query, encoding="utf-8")
    assert run("sql", sample_dataset, "--file", tmp_path / "query.sql").stdout == table


def test_sql_says_what_it_left_out(sample_dataset: Path) -> None:
    done = run("sql", sample_dataset, "select event_ix from trace_event order by 1", "--rows", "10")
    assert len(done.stdout.splitlines()) == 12
    assert "7,048 more rows" in done.stderr


def test_sql_prompt_reads_queries_from_a_pipe(sample_dataset: Path) -> None:
    done = run("sql", sample_dataset, "--format", "csv", stdin=b"select 1 as a;\nselect\n 2 as b;\n")
    assert done.stdout == "a\n1\nb\n2\n"
    assert run("sql", sample_dataset, stdin=b"select nonsense;\n").returncode == 1


def test_schema_documents_every_table_view_and_column(sample_dataset: Path) -> None:
    told = json.loads(run("schema", sample_dataset, "--format", "json").stdout)
    relations = {one["name"]: one for one in told}
    assert relations["trace_event"]["row_count"] == 7058
    assert relations["ledger"]["kind"] == "ledger view"
    assert all(column["doc"] and column["type"] for one in told for column in one["columns"])
    text = run("schema").stdout
    assert all(name in text for name in relations)


def test_a_recording_cannot_drive_the_terminal(tmp_path: Path) -> None:
    evil = [frame("f\x1b[31m", "/home/x/\x1b]0;owned\x07.py", 1)]
    raw = snapshot(
        [segment(4096, 2 << 20, [block(4096, 512), block(4608, (2 << 20) - 512, "inactive")])],
        [[event("segment_alloc", 4096, 2 << 20), event("alloc", 4096, 512, frames=evil)]],
    )
    (tmp_path / "evil.pickle").write_bytes(dumped(raw))
    for arguments in (
        ["analyze", "evil.pickle"],
        ["why", "evil.pickle", "event:1"],
        ["sql", "evil.pickle", "from frame"],
    ):
        done = run(*arguments, folder=tmp_path)
        assert done.returncode == 0
        assert "\x1b" not in done.stdout + done.stderr
        assert "\\x1b" in done.stdout


def test_a_narrow_terminal_and_a_pipe_lose_no_number(sample_dataset: Path) -> None:
    for columns in ("40", "80"):
        assert "17,877,285,964" in run("ledger", sample_dataset, COLUMNS=columns).stdout


def test_a_reader_that_leaves_early_is_no_error(sample_dataset: Path) -> None:
    done = subprocess.run(  # noqa: S602 - the pipe is what is tested
        f"{sys.executable} -m tracekit sql {sample_dataset} 'from trace_event' --format csv | head -n 1",
        shell=True,
        capture_output=True,
        cwd=ROOT,
        check=False,
    )
    assert done.stdout.startswith(b"device,event_ix,")
    assert done.stderr == b""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself_and_stands_in_the_readme(verb: str) -> None:
    done = run(verb, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: tracekit " + verb)
    assert f"tracekit {verb}" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_help_needs_nothing_heavy() -> None:
    script = (
        "import sys, tracekit.cli as cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: print(sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, cwd=ROOT, check=True)
    for heavy in (b"'pyarrow'", b"'duckdb'", b"'altair'", b"'torch'", b"'rich'"):
        assert heavy not in done.stderr
