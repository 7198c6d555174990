"""A dataset on disk: the same bytes for the same snapshot, whole or not at all, refused when it is another's."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.conftest import ROOT, SAMPLE
from tracekit import dataset
from tracekit.analysis import analyze, dataset_folder
from tracekit.errors import DatasetError, SnapshotError
from tracekit.schema import SCHEMA_VERSION, TABLES
from tracekit.warehouse import Warehouse

SNAPSHOT = SAMPLE / "snapshot.pickle.xz"


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_same_snapshot_gives_the_same_bytes(sample_dataset: Path, tmp_path: Path) -> None:
    analyze(SNAPSHOT, tmp_path / "again")
    assert contents(tmp_path / "again") == contents(sample_dataset)


def test_the_bytes_do_not_depend_on_the_process(sample_dataset: Path, tmp_path: Path) -> None:
    """Another process hashes strings otherwise, and nothing may come in an order that hashes decide."""
    pages: list[bytes] = []
    for seed in ("1", "2"):
        subprocess.run(
            [sys.executable, "-m", "tracekit", "analyze", str(SNAPSHOT), "-o", str(tmp_path / seed), "--quiet"],
            check=True, capture_output=True, cwd=ROOT, env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        found = contents(tmp_path / seed)
        pages.append(found.pop("report.html"))
        assert found == contents(sample_dataset)
    assert pages[0] == pages[1]


def test_each_parquet_file_documents_itself(sample_dataset: Path) -> None:
    for name, spec in TABLES.items():
        schema = pq.read_schema(sample_dataset / f"{name}.parquet")
        assert schema.equals(spec.schema, check_metadata=True), name
        assert schema.metadata[b"schema_version"] == str(SCHEMA_VERSION).encode()


def test_manifest_says_what_it_was_made_from(sample_dataset: Path) -> None:
    manifest = dataset.read_manifest(sample_dataset)
    assert manifest["source"]["name"] == "snapshot.pickle.xz"
    assert manifest["source"]["compression"] == "xz"
    assert manifest["row_counts"]["trace_event"] == 7058


def test_nothing_is_overwritten_unasked(sample_dataset: Path) -> None:
    with pytest.raises(DatasetError, match="exists already"):
        analyze(SNAPSHOT, sample_dataset)


def test_force_replaces_a_dataset_and_nothing_else(sample_dataset: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample_dataset, tmp_path / "copy")
    (copy / "leftover").write_text("x", encoding="utf-8")
    analyze(SNAPSHOT, copy, force=True)
    assert contents(copy) == contents(sample_dataset)
    other = tmp_path / "photos"
    other.mkdir()
    (other / "cat.jpg").write_text("meow", encoding="utf-8")
    with pytest.raises(DatasetError, match="is not a tracekit dataset"):
        analyze(SNAPSHOT, other, force=True)
    assert (other / "cat.jpg").read_text(encoding="utf-8") == "meow"


def test_a_failure_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(dataset, "write_manifest", fail)
    with pytest.raises(DatasetError, match="No space left on device"):
        analyze(SNAPSHOT, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_bad_snapshot_leaves_nothing_behind(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pickle"
    bad.write_bytes(b"")
    with pytest.raises(SnapshotError):
        analyze(bad, tmp_path / "out")
    assert list(tmp_path.iterdir()) == [bad]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"schema_version": SCHEMA_VERSION - 1}, "this tracekit reads"),
        ({"format": "someone else's"}, "is another program's"),
    ],
)
def test_a_dataset_of_another_kind_is_refused_with_the_way_out(
    sample_dataset: Path, tmp_path: Path, change: dict[str, object], problem: str
) -> None:
    copy = shutil.copytree(sample_dataset, tmp_path / "copy")
    manifest = json.loads((copy / dataset.MANIFEST).read_text(encoding="utf-8"))
    (copy / dataset.MANIFEST).write_text(json.dumps(manifest | change), encoding="utf-8")
    with pytest.raises(DatasetError, match=problem) as caught:
        Warehouse.open(copy)
    assert "tracekit analyze" in caught.value.remedy


def test_a_dataset_that_lacks_a_table_is_refused(sample_dataset: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample_dataset, tmp_path / "copy")
    (copy / "block.parquet").unlink()
    with pytest.raises(DatasetError, match=r"block\.parquet is missing"):
        Warehouse.open(copy)


def test_stored_views_are_made_anew_where_they_are_missing_or_stale(sample_dataset: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(sample_dataset, tmp_path / "copy")
    shutil.rmtree(copy / dataset.STORED)
    with Warehouse.open(copy) as anew, Warehouse.open(sample_dataset) as stored:
        for name in ("span", "moment", "allocation_bucket", "ledger"):
            assert anew.table(name).equals(stored.table(name)), name


@pytest.mark.parametrize(
    ("source", "folder"),
    [
        ("runs/gpt2.pickle", "runs/gpt2.tracekit"),
        ("gpt2.pickle.xz", "gpt2.tracekit"),
        ("oom.rank0.json.gz", "oom.rank0.tracekit"),
        ("snapshot", "snapshot.tracekit"),
        ("-", "stdin.tracekit"),
    ],
)
def test_the_output_is_named_after_the_input(source: str, folder: str) -> None:
    assert dataset_folder(source) == Path(folder)
