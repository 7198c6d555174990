"""What a query may do, and what it is told when it may not."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import tracekit
from tests.conftest import SAMPLE
from tracekit.errors import QueryError
from tracekit.warehouse import Warehouse


def test_tables_come_out_as_arrow(sample: Warehouse) -> None:
    table = sample.table("ledger")
    assert isinstance(table, pa.Table)
    assert table.schema.field("requested_bytes").type == pa.int64()


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('/etc/passwd')",
        "select * from '/etc/passwd'",
        "copy (select 1) to 'out.csv'",
        "attach 'other.db'",
        "install httpfs",
        "load httpfs",
        "select * from read_parquet('https://localhost/x.parquet')",
        "set enable_external_access = true",
        "pragma database_list; copy (select 1) to 'out.csv'",
        "select getenv('HOME')",
        "export database 'out'",
    ],
)
def test_a_query_reaches_no_other_file_no_network_and_no_setting(
    sample: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(QueryError):
        sample.sql(query)
    assert list(tmp_path.iterdir()) == []


def test_a_query_cannot_name_a_variable_of_the_program(sample: Warehouse) -> None:
    secret = pa.table({"x": [1]})  # DuckDB would find it by name
    assert len(secret) == 1
    with pytest.raises(QueryError, match="secret"):
        sample.sql("from secret")


def test_an_error_carries_the_querys_own_line(sample: Warehouse) -> None:
    with pytest.raises(QueryError) as caught:
        sample.sql("select bucket,\n  sum(bytes)\nfrom ledger")
    assert "bytes" in caught.value.problem
    assert "LINE 2" in caught.value.remedy


def test_there_is_no_table_of_that_name(sample: Warehouse) -> None:
    with pytest.raises(QueryError, match="no table or view called 'nonsense'"):
        sample.table("nonsense")


def test_a_failed_query_does_not_stand_in_the_way_of_the_next(sample: Warehouse) -> None:
    with pytest.raises(QueryError):
        sample.sql("select nonsense")
    assert sample.rows("select 1 as one") == [{"one": 1}]


def test_a_dataset_in_memory_answers_alike_and_needs_its_files_no_longer(sample_dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.tracekit"
    shutil.copytree(sample_dataset, copy)
    with Warehouse.open(sample_dataset) as there, Warehouse.open(copy, in_memory=True) as here:
        shutil.rmtree(copy)
        for view in ("ledger", "bucket_highest", "allocation", "trace_event"):
            assert here.table(view).equals(there.table(view))


def test_open_takes_a_dataset_and_a_snapshot_alike(sample_dataset: Path) -> None:
    with tracekit.open(sample_dataset) as dataset, tracekit.open(SAMPLE / "snapshot.pickle.xz") as snapshot:
        assert dataset.table("ledger").equals(snapshot.table("ledger"))


def test_a_snapshot_is_analyzed_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path))
    with tracekit.open(SAMPLE / "snapshot.pickle.xz"):
        (folder,) = tmp_path.iterdir()
        made = folder.stat().st_mtime_ns
    with tracekit.open(SAMPLE / "snapshot.pickle.xz"):
        assert [(path, path.stat().st_mtime_ns) for path in tmp_path.iterdir()] == [(folder, made)]


def test_without_a_cache_a_snapshot_is_analyzed_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path / "file" / "cache"))
    with tracekit.open(SAMPLE / "snapshot.pickle.xz") as warehouse:
        assert warehouse.rows("select count(*) as events from trace_event") == [{"events": 7058}]
