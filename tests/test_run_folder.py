"""A run folder of the recorder: all that it holds becomes tables, labels and a witness; what is wrong in it is said."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import lzma
import math
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import scores
from tests.conftest import SAMPLE, captures, facts_of, recording_name
from tests.queries.test_pattern import agreement, silenced
from tests.run_folders import make_run, read_capture
from tests.test_commands import run
from tracekit.analysis import build, open_any, recordings
from tracekit.errors import RunFolderError
from tracekit.run_folder import find_runs, read_run
from tracekit.schema import RECORDED_TABLES, TABLES
from tracekit.warehouse import Warehouse

# the recorder never records like this: the state alone, or nothing
NOT_THE_RECORDERS = ("small_state", "small_nohistory")
WITH_READINGS = [
    path for path in captures() if recording_name(path) not in NOT_THE_RECORDERS and facts_of(path).get("readings")
]
WITH_TENSORS = [path for path in WITH_READINGS if facts_of(path).get("tensors")]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder with marks and a roll, made from one of the shared recordings."""
    paths = [path for path in WITH_TENSORS if recording_name(path) == "small_metadata"]
    if not paths:
        pytest.skip("the shared recordings are not beside the checkout")
    return make_run(paths[0], tmp_path_factory.mktemp("runs") / "small.run")


@pytest.fixture
def copied(run_folder: Path, tmp_path: Path) -> Path:
    """A copy of it that a test may spoil."""
    return Path(shutil.copytree(run_folder, tmp_path / "copy.run"))


@pytest.fixture
def empty_run(tmp_path: Path) -> Path:
    """A run folder that holds a snapshot, and of the recorder's own files an empty capture.json."""
    folder = tmp_path / "bare.run"
    folder.mkdir()
    (folder / "snapshot.pickle.xz").write_bytes((SAMPLE / "snapshot.pickle.xz").read_bytes())
    (folder / "capture.json").write_text("{}", encoding="utf-8")
    return folder


# ------------------------------------------------------------------------------------------- on real recordings


@dataclass(frozen=True)
class Told:
    """All that is asserted of a real recording and its witness, so that it is read once."""

    seats: list[dict[str, Any]]
    faults: list[dict[str, Any]]
    fully_compared: int
    model: scores.Score | None
    identity_bytes: int
    moved: set[tuple[str, str]]


@cache
def told_of(path: Path) -> Told:
    facts = facts_of(path)
    with TemporaryDirectory() as folder:
        tables = build(make_run(path, Path(folder) / "a.run"))[1]
    with Warehouse({name: table for name, table in tables.items() if name not in RECORDED_TABLES}) as warehouse:
        alone = _buckets(warehouse)
    with Warehouse(tables) as warehouse:
        named = _buckets(warehouse)
        return Told(
            seats=warehouse.rows("select event_ix, problem from mark_seat order by mark_ix"),
            faults=warehouse.rows("from check_marks"),
            fully_compared=warehouse.rows("select count(requested_bytes) as n from mark")[0]["n"],
            model=scores.model_score(warehouse, facts) if facts.get("tensors") else None,
            identity_bytes=sum(
                row["requested_bytes"]
                for row in warehouse.rows("select requested_bytes from allocation_bucket where evidence = 'identity'")
            ),
            moved={(alone[key], bucket) for key, bucket in named.items() if alone[key] != bucket},
        )


@pytest.mark.parametrize("path", WITH_READINGS, ids=recording_name)
def test_the_account_at_every_mark_is_what_torch_had_counted(path: Path) -> None:
    """Allocated, reserved and both peaks at each reading; at the ends of steps requested and active bytes as well."""
    told = told_of(path)
    assert told.faults == []
    problems = {seat["problem"] for seat in told.seats}
    found = [seat["event_ix"] for seat in told.seats]
    if recording_name(path) == "small_ring":  # the others are counted back from its end
        assert told.seats[0]["problem"] == "the ring lost the events that it lies among"
        assert problems == {told.seats[0]["problem"], None}
        assert found[-1] == 899
        found[0] = -1
    else:
        assert problems == {None}
    assert found == sorted(found)
    assert found[0] == -1
    assert len(found) > 4 < found[-1]
    assert told.fully_compared > 0


@pytest.mark.parametrize("path", WITH_TENSORS, ids=recording_name)
def test_the_roll_agrees_with_what_stacks_and_lifetimes_tell(path: Path) -> None:
    """Every tensor of torch's own list is found by its address, and identity moves no byte that was labelled."""
    told = told_of(path)
    assert told.model is not None
    assert told.model.wrong == {}
    assert told.model.right_bytes == told.model.total_bytes == told.identity_bytes
    if recording_name(path) in scores.CANNOT_TELL:  # who asked is not in the file; the roll knows
        assert told.moved == {("before_recording", name) for name in ("parameter", "buffer", "optimizer_state")}
    else:
        assert told.moved == set()


def _buckets(warehouse: Warehouse) -> dict[int, str]:
    return {
        row["allocation_id"]: row["bucket"]
        for row in warehouse.rows("select allocation_id, bucket from allocation_bucket")
    }


@pytest.mark.parametrize("name", ["gpt2_b8_ws8", "gpt2_b8_ckpt", "gpt2_b2_accum4", "small_nocontext", "small_late"])
def test_marks_tell_phases_and_steps_where_stacks_and_annotations_do_not(
    shared: Path, tmp_path: Path, name: str
) -> None:
    tables = build(make_run(shared / "captures" / f"{name}.pickle.xz", tmp_path / "a.run"))[1]
    with Warehouse(tables) as told, Warehouse(silenced(tables)) as silent:
        assert agreement(told, silent, "phase") >= 0.999  # its first product is in no phase of the recorder's
        assert agreement(told, silent, "step") == 1
        evidence = silent.rows("select distinct phase_evidence, step_evidence from span where step is not null")
        assert evidence == [{"phase_evidence": "mark", "step_evidence": "mark"}]
        assert told.rows("select * from span where 'mark' in (phase_evidence, step_evidence)") == []


def test_names_reach_the_story_and_the_ledger(run_folder: Path) -> None:
    with open_any(run_folder) as warehouse:
        (row,) = warehouse.rows(
            "select allocation_id, requested_bytes from allocation_story"
            " where tensor_name = 'transformer.wte.weight' and tensor_role = 'parameter'"
        )
    text = run("why", run_folder, str(row["allocation_id"])).stdout
    assert "it is the parameter transformer.wte.weight, shape [" in text
    assert "in module transformer.wte\n" in text
    assert "by rule named_parameter: the recorder found a parameter of the model in it (evidence: identity)" in text
    at = ["--at", "mark:2.optimizer", "--format", "json"]
    told = json.loads(run("ledger", run_folder, "--by", "name", *at).stdout)
    names = {line["name"]: line["requested_bytes"] for line in told["ledger"]}
    assert names["transformer.wte.weight"] == 2 * row["requested_bytes"]  # with its gradient
    told = json.loads(run("ledger", run_folder, "--by", "module", *at).stdout)
    modules = {line["module"]: line["requested_bytes"] for line in told["ledger"]}
    assert modules["transformer.wte"] == 4 * row["requested_bytes"]  # and Adam's two moments


def test_the_op_log_gives_operators_and_shapes_that_agree_with_the_stacks(shared: Path, tmp_path: Path) -> None:
    """Every allocation that outlives its call is some call's output, with its bytes, under that operator's frame."""
    folder = make_run(shared / "captures" / "gpt2_b8_dispatch.pickle.xz", tmp_path / "a.run")
    with Warehouse(build(folder)[1]) as warehouse:
        found = warehouse.rows(
            "select op.operator_name, op.shape, op.dtype, allocation.requested_bytes, stack_label.operator,"
            " stack_label.outer_operator, allocation_bucket.bucket, op.allocation_id is not null as is_told"
            " from allocation join allocation_bucket using (allocation_id)"
            " left join allocation_op as op using (allocation_id)"
            " left join stack_label on allocation.stack_id = stack_label.stack_id"
        )
    told = [row for row in found if row["is_told"]]
    assert len(told) > 2000
    width = {"float32": 4, "int64": 8, "bool": 1}
    assert all(math.prod(json.loads(row["shape"])) * width[row["dtype"]] == row["requested_bytes"] for row in told)
    same = [row for row in told if row["operator_name"] == row["operator"]]
    other = {(row["operator_name"], row["operator"]) for row in told if row["operator_name"] != row["operator"]}
    assert len(same) > 0.95 * len(told)
    # one operator inside another: the log has what was dispatched, the stack names the one that does the work
    assert other == {
        ("clone", "matmul"),
        ("embedding", "index_select"),
        ("arange", "arange_start_out"),
    }
    # what no call returned is a library's workspace, or was freed within its call
    assert {row["bucket"] for row in found if not row["is_told"]} == {
        "library_workspace",
        "backward_temporary",
        "forward_temporary",
    }


def test_why_tells_the_shape_by_the_op_log(shared: Path, tmp_path: Path) -> None:
    folder = make_run(shared / "captures" / "gpt2_b8_dispatch.pickle.xz", tmp_path / "a.run")
    with open_any(folder) as warehouse:
        (row,) = warehouse.rows(
            "select max(birth_event_ix) as event_ix from allocation_story"
            " where logged_operator = 'aten._log_softmax.default'"
        )
    text = run("why", folder, f"event:{row['event_ix']}").stdout
    assert "by the op log aten._log_softmax.default made it, shape [8192, 50257] float32" in text


def test_a_mark_is_a_moment(run_folder: Path) -> None:
    (path,) = [path for path in WITH_READINGS if recording_name(path) == "small_metadata"]
    readings = {reading[0]: reading for reading in facts_of(path)["readings"]}
    told = json.loads(run("ledger", run_folder, "--at", "mark:2.forward", "--format", "json").stdout)
    held = [line for line in told["ledger"] if line["bucket"] not in ("block_slack", "pending_free", "cached")]
    assert sum(line["held_bytes"] for line in held) == readings["2.forward"][1]
    assert sum(line["entry_bytes"] for line in told["ledger"]) == readings["2.forward"][2]
    done = run("ledger", run_folder, "--at", "mark:nowhere")
    assert done.returncode == 1
    assert "its marks are: mark:begin, mark:warmup, " in done.stderr
    done = run("ledger", SAMPLE / "snapshot.pickle.xz", "--at", "mark:2.forward")
    assert "marks are left by the recorder" in done.stderr


def test_the_facts_of_the_run_are_a_table(run_folder: Path) -> None:
    with open_any(run_folder) as warehouse:
        facts = {row["key"]: json.loads(row["value"]) for row in warehouse.rows("from run_fact")}
        (dump,) = warehouse.rows("from dump")
        assert warehouse.rows("from note") == []
    assert facts["torch"] == "2.11.0+cu130"
    assert facts["recorder"]["max_entries"] == 1_000_000
    assert not {"marks", "dumps"} & facts.keys()
    assert (dump["is_snapshot"], dump["event_count"], dump["is_ring_full"]) == (True, 1947, False)


def test_check_names_a_mark_that_the_account_does_not_reach(copied: Path) -> None:
    assert run("check", copied).returncode == 0
    capture = read_capture(copied)
    capture["marks"][4]["allocated_bytes"] += 512
    (copied / "capture.json").write_text(json.dumps(capture), encoding="utf-8")
    done = run("check", copied)
    assert done.returncode == 3
    assert "torch counted" in done.stdout


# ------------------------------------------------------------------------------------------- folders of folders


@pytest.fixture
def several(empty_run: Path) -> Path:
    """Two ranks, the second of which was started again, a rank without a dump, and what is none of ours."""
    folder = empty_run.parent / "job"
    for name in ("rank0", "rank10", "rank10/restart1"):
        shutil.copytree(empty_run, folder / name, dirs_exist_ok=True)
    (folder / "rank2").mkdir()
    (folder / "rank2" / "capture.json").write_text("{}", encoding="utf-8")
    (folder / "logs" / "deep").mkdir(parents=True)
    return folder


def test_a_folder_of_run_folders_stands_for_each(several: Path) -> None:
    assert [str(path.relative_to(several)) for path in find_runs(several)] == [
        "rank0",
        "rank2",
        "rank10",
        "rank10/restart1",
    ]
    told: list[str] = []
    found = recordings(str(several), told.append)
    assert [one.name for one in found] == ["rank0.tracekit", "rank10.tracekit", "rank10_restart1.tracekit"]
    assert told[0] == f"{several} holds 4 run folders: rank0, rank2, rank10, rank10/restart1"
    assert told[1].startswith("left out: ")
    assert "rank2 holds no snapshot.pickle" in told[1]


def test_analyze_makes_a_dataset_of_each_rank(several: Path, tmp_path: Path) -> None:
    shutil.rmtree(several / "rank10")
    shutil.copytree(several / "rank0", several / "rank1")
    done = run("analyze", several, "-o", tmp_path / "out", "--format", "json")
    assert done.returncode == 0
    assert [Path(one["dataset"]).name for one in json.loads(done.stdout)] == ["rank0.tracekit", "rank1.tracekit"]
    assert "holds 3 run folders: rank0, rank1, rank2" in done.stderr
    assert (tmp_path / "out" / "rank1.tracekit" / "manifest.json").is_file()


def test_analyze_makes_a_dataset_of_each_size_of_a_sweep(empty_run: Path, tmp_path: Path) -> None:
    """A sweep's folder holds its own tables and a run folder a size; the size that never ran has no snapshot."""
    sweep = tmp_path / "gpt2.sweep"
    for name in ("batch_0008", "batch_0016"):
        shutil.copytree(empty_run, sweep / name)
    (sweep / "batch_0100").mkdir()
    (sweep / "batch_0100" / "capture.json").write_text("{}", encoding="utf-8")
    for name in ("sweep.json", "sweep.csv", "sweep.parquet"):
        (sweep / name).write_text("{}", encoding="utf-8")
    done = run("analyze", sweep, "--format", "json", "--no-report")
    assert done.returncode == 0
    assert [Path(one["dataset"]).relative_to(sweep).as_posix() for one in json.loads(done.stdout)] == [
        "batch_0008.tracekit",
        "batch_0016.tracekit",
    ]
    assert "left out: " in done.stderr


def test_a_verb_that_takes_one_dataset_does_not_choose(several: Path) -> None:
    done = run("ledger", several)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].endswith("holds 4 run folders: rank0, rank2, rank10, rank10/restart1")
    assert "name one of them" in done.stderr


def test_a_folder_whose_runs_have_no_snapshot_says_so(tmp_path: Path) -> None:
    (tmp_path / "job" / "rank0").mkdir(parents=True)
    (tmp_path / "job" / "rank0" / "capture.json").write_text("{}", encoding="utf-8")
    for place in ("job", "job/rank0"):
        done = run("analyze", tmp_path / place, folder=tmp_path)
        assert done.returncode == 1
        assert "snapshot" in done.stderr
        assert "Traceback" not in done.stderr


# ------------------------------------------------------------------------------------------- untrusted input


def test_a_snapshot_without_a_run_folder_has_empty_tables(sample: Warehouse) -> None:
    assert {name: sample.table(name).num_rows for name in RECORDED_TABLES} == dict.fromkeys(RECORDED_TABLES, 0)


BAD_CAPTURES = {
    "no JSON": b"{",
    "another kind of file": b"\x80\x04.",
    "no object": b"[1, 2]",
    "nested without end": b"[" * 100_000,
}


@pytest.mark.parametrize("content", BAD_CAPTURES.values(), ids=BAD_CAPTURES)
def test_a_capture_that_cannot_be_read_is_refused_with_the_way_out(empty_run: Path, content: bytes) -> None:
    (empty_run / "capture.json").write_bytes(content)
    done = run("analyze", empty_run, "-o", empty_run.parent / "out")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 2
    assert done.stderr.splitlines()[1] == f"use the recording alone: tracekit analyze {empty_run}/snapshot.pickle.xz"
    assert not (empty_run.parent / "out").exists()


def _table(**columns: Any) -> pa.Table:
    """A roll of one row, columns changed or (None) taken out."""
    good: dict[str, Any] = {
        "address": [1],
        "byte_count": [4],
        "storage_bytes": [4],
        "storage_offset_bytes": [0],
        "shape": pa.array([[2, 2]], pa.list_(pa.int64())),
        "dtype": ["float32"],
        "role": ["parameter"],
        "name": ["a"],
        "device": [0],
        "step": [1],
        "time_us": [5],
        "alloc_count": [7],
    }
    return pa.table({name: value for name, value in (good | columns).items() if value is not None})


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (_table(role=None), "lacks the column role"),
        (_table(address=["0x10"]), "has string in the column address, not int64"),
        (_table(address=[1.5]), "has double in the column address, not int64"),
        (_table(name=[3]), "has int64 in the column name, not string"),
        (_table(shape=[4]), "has int64 in the column shape, not a list of integers"),
        (_table(shape=[["a"]]), "in the column shape, not a list of integers"),
    ],
)
def test_a_roll_of_another_shape_is_refused(empty_run: Path, table: pa.Table, problem: str) -> None:
    pq.write_table(table, empty_run / "tensors.parquet")
    with pytest.raises(RunFolderError, match=r"tensors\.parquet") as caught:
        read_run(empty_run)
    assert problem in caught.value.problem
    assert caught.value.remedy


def test_a_file_that_is_no_parquet_is_refused(empty_run: Path) -> None:
    (empty_run / "tensors.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_run(empty_run)


def test_values_of_the_wrong_kind_are_noted_and_left_out(empty_run: Path) -> None:
    mark = {"label": "begin", "device": 0, "time_us": 1, "allocated_bytes": "many", "alloc_count": 2**70, "stats": 3}
    capture = {
        "version": 9,
        "marks": [mark, 7, {**mark, "label": "\ud800"}],
        "dumps": {"file": "x"},
        "torch": "2.99",
    }
    (empty_run / "capture.json").write_text(json.dumps(capture), encoding="utf-8")
    tables = read_run(empty_run)
    notes = tables["note"]
    assert [row["name"] for row in tables["mark"].to_pylist()] == ["begin", "\\ud800"]
    assert tables["mark"]["alloc_count"].to_pylist() == [None, None]
    assert tables["dump"].num_rows == 0
    told = {(row["place"], row["what"]): row["occurrence_count"] for row in notes.to_pylist()}
    assert told["capture", "version 9, and this tracekit knows 1"] == 1
    assert told["capture", "marks that are no objects"] == 1
    assert told["capture", "dumps of type dict"] == 1
    assert told["mark", "allocated_bytes that is str"] == 2
    assert told["mark", "alloc_count that is int"] == 2
    with open_any(empty_run) as warehouse:
        assert warehouse.rows("select distinct event_ix from mark_seat") == [{"event_ix": None}]
        assert warehouse.rows("select count(*) as n from note")[0]["n"] == notes.num_rows


def test_the_roll_and_the_op_log_are_read_as_the_recorder_writes_them(empty_run: Path) -> None:
    from tracekit.recorder.ops import COLUMNS as OP_COLUMNS
    from tracekit.recorder.roll import write_roll, write_table

    roll = {"address": 16, "byte_count": 8, "shape": [2, 1], "dtype": "float32", "role": "buffer", "name": "mask"}
    with (empty_run / "tensors.parquet").open("wb") as file:
        write_roll([{**roll, "device": 0, "step": 1}, {**roll, "shape": []}], file)
    with (empty_run / "ops.parquet").open("wb") as file:
        write_table([{"op_ix": 3, "operator": "aten.mm.default", "shape": [4]}, {"op_ix": 4}], OP_COLUMNS, file)
    tables = read_run(empty_run)
    assert tables["tensor"].schema == TABLES["tensor"].schema
    assert tables["tensor"].select(["tensor_ix", "tensor_bytes", "shape"]).to_pylist() == [
        {"tensor_ix": 0, "tensor_bytes": 8, "shape": "[2, 1]"},
        {"tensor_ix": 1, "tensor_bytes": 8, "shape": "[]"},
    ]
    assert tables["op"].select(["op_row_ix", "op_ix", "operator", "shape"]).to_pylist() == [
        {"op_row_ix": 0, "op_ix": 3, "operator": "aten.mm.default", "shape": "[4]"},
        {"op_row_ix": 1, "op_ix": 4, "operator": None, "shape": None},
    ]


def test_a_run_folder_is_known_again_by_all_that_it_holds(
    empty_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path / "cache"))
    for torch in ("2.11", "2.12"):
        (empty_run / "capture.json").write_text(json.dumps({"torch": torch}), encoding="utf-8")
        with open_any(empty_run) as warehouse:
            assert warehouse.rows("from run_fact") == [{"key": "torch", "value": f'"{torch}"'}]
    assert len(list((tmp_path / "cache").iterdir())) == 2


def test_the_snapshot_of_a_run_may_be_compressed_or_not(empty_run: Path) -> None:
    packed = empty_run / "snapshot.pickle.xz"
    (empty_run / "snapshot.pickle").write_bytes(lzma.decompress(packed.read_bytes()))
    packed.write_bytes(b"another")
    assert build(empty_run)[0]["compression"] is None
