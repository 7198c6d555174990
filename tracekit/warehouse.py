"""The DuckDB door: a dataset and the SQL of queries/ become a database that answers with Arrow tables.

No other module imports duckdb. What the views mean is said in queries/, and nothing is drawn or printed here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa
import pyarrow.dataset as pad
import pyarrow.parquet as pq

from tracekit import dataset, shipped, sqlfile
from tracekit.errors import QueryError
from tracekit.schema import PLACED_TABLES, SPARSE_TABLES, TABLES

Source = pa.Table | pad.Dataset


class Warehouse:
    """The views over one set of tables, read-only: no SQL run here can reach another file or the network.

    Attributes:
        views: every view by name, with its documentation.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        stored: Mapping[str, Source] | None = None,
        only: Iterable[str] | None = None,
    ) -> None:
        """Create every view over `sources`, which hold each table of `tracekit.schema`.

        Args:
            sources: a table or dataset by table name; of a run folder's and the user's own, those left out are empty.
            stored: rows of stored views by view name; a stored view without them is computed now.
            only: views that are wanted, with what they read; all of them otherwise.
        """
        self.views = sqlfile.load(shipped.folder("queries"))
        self._connection = duckdb.connect(":memory:")
        run = self._connection.execute
        run("set enable_progress_bar = false")
        run("set python_enable_replacements = false")  # a query may not name a variable of the program
        run("set asof_loop_join_threshold = 0")  # estimates mislead it: the loop can be a thousand times the merge
        run("set enable_external_access = false")
        for name in TABLES:
            source = sources.get(name) if name in SPARSE_TABLES else sources[name]
            self._connection.register(name, TABLES[name].schema.empty_table() if source is None else source)
        wanted = None if only is None else sqlfile.needed_by(self.views.values(), only)
        for view in self.views.values():
            if wanted is not None and view.name not in wanted:
                continue
            if view.is_stored and stored is not None and view.name in stored:
                self._connection.register(view.name, stored[view.name])
            else:
                run(sqlfile.creation(view))
        run("set lock_configuration = true")

    @classmethod
    def open(cls, folder: Path, rules: pa.Table | None = None, *, in_memory: bool = False) -> Self:
        """Open a dataset's folder.

        Args:
            folder: the dataset.
            rules: rows of the table user_rule in place of the dataset's own; what rests on them is computed anew.
            in_memory: whether every table is read now, for who asks so much that each would be read many times.

        Raises:
            DatasetError: where the folder is no dataset of this version.
        """
        manifest = dataset.read_manifest(folder)
        paths = {name: folder / f"{name}.parquet" for name in TABLES}
        stored: dict[str, Source] | None = None
        if manifest.get("stored_views") == fingerprint():
            names = [view.name for view in sqlfile.load(shipped.folder("queries")).values() if view.is_stored]
            kept = {name: folder / dataset.STORED / f"{name}.parquet" for name in names}
            if all(path.is_file() for path in kept.values()):
                stored = {name: _source(path, in_memory=in_memory) for name, path in kept.items()}
        # what is computed anew scans the tables many times, and wants them in memory
        is_scanned_often = in_memory or stored is None or rules is not None
        sources = {name: _source(path, in_memory=is_scanned_often) for name, path in paths.items()}
        if rules is not None:
            sources["user_rule"] = rules
            if stored is not None:
                views = sqlfile.load(shipped.folder("queries"))
                stale = sqlfile.resting_on(views.values(), "user_rule")
                stored = {name: table for name, table in stored.items() if name not in stale}
        return cls(sources, stored)

    def sql(self, query: str, parameters: Sequence[object] | Mapping[str, object] | None = None) -> pa.Table:
        """The rows of one query, all of them.

        Raises:
            QueryError: with DuckDB's words and the query's line, where it fails or asks for what it may not have.
        """
        try:
            relation = self._connection.sql(query, params=parameters)
            if relation is None:  # pyright: ignore[reportUnnecessaryComparison] - so it is for what is no SELECT
                return pa.table({})
            return relation.to_arrow_table()
        except (duckdb.BinderException, duckdb.CatalogException) as error:
            raise _query_error(self._located(query, parameters, error)) from error
        except duckdb.Error as error:
            raise _query_error(error) from error
        except RecursionError as error:
            raise QueryError("the query is nested too deeply", "write it with fewer parentheses") from error

    def _located(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] | None, error: duckdb.Error
    ) -> duckdb.Error:
        """The same error with its line of the query, which the relational door leaves out and `execute` does not."""
        try:
            self._connection.execute(query, parameters)
        except duckdb.Error as located:
            return located
        return error

    def rows(
        self, query: str, parameters: Sequence[object] | Mapping[str, object] | None = None
    ) -> list[dict[str, Any]]:
        """The rows of a small query as dicts.

        Raises:
            QueryError: as `sql`.
        """
        return self.sql(query, parameters).to_pylist()

    def table(self, name: str) -> pa.Table:
        """One table or view, whole.

        Raises:
            QueryError: where there is none of that name.
        """
        if name not in TABLES and (name not in self.views or self.views[name].parameters):
            raise QueryError(f"there is no table or view called {name!r}", "see their names with: tracekit schema")
        return self.sql(f'select * from "{name}"')  # noqa: S608 - a name from the two lists just checked

    def close(self) -> None:
        """Let go of the database; the dataset on disk stays as it is."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _source(path: Path, *, in_memory: bool) -> Source:
    return pq.read_table(path) if in_memory else pad.dataset(path, format="parquet")


def stored_tables(
    sources: Mapping[str, Source], names: Iterable[str], given: Mapping[str, Source] | None = None
) -> dict[str, pa.Table]:
    """The rows of some stored views over these tables, to be written beside them.

    Args:
        sources: a table by table name.
        names: the stored views.
        given: rows of stored views that they read and that are there already.
    """
    wanted = list(names)
    with Warehouse(sources, given or {}, wanted) as warehouse:
        return {name: warehouse.table(name) for name in wanted}


def stored_names() -> tuple[list[str], list[str]]:
    """The stored views: those that need raw tables only, and those that need placements or the user's own rules."""
    files = sqlfile.load(shipped.folder("queries"))
    late = {name for table in (*PLACED_TABLES, "user_rule") for name in sqlfile.resting_on(files.values(), table)}
    stored = [name for name, file in files.items() if file.is_stored]
    return [name for name in stored if name not in late], [name for name in stored if name in late]


def fingerprint() -> str:
    """Which SQL the stored views come from: another one, and their rows are computed anew."""
    digest = hashlib.sha256()
    for _, view in sorted(sqlfile.load(shipped.folder("queries")).items()):
        digest.update(f"{view.name}\0{view.text}\0".encode())
    return digest.hexdigest()


def _query_error(error: duckdb.Error) -> QueryError:
    """DuckDB's message in two parts: what was wrong, and where in the query."""
    problem, _, where = str(error).partition("\n\n")
    problem = problem.replace("\n", " ")
    if isinstance(error, duckdb.PermissionException):
        return QueryError(problem, "a query sees the tables and views of its dataset, no other file and no network")
    return QueryError(problem, where or "see the tables, views and columns with: tracekit schema")
