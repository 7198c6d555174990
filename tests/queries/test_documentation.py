"""Every view says what it is, truly: its header against what DuckDB makes of its SELECT."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
from typing import Any

import duckdb
import pytest

from tracekit import shipped, sqlfile
from tracekit.catalog import empty_warehouse
from tracekit.schema import TABLES
from tracekit.sqlfile import LAYERS, SqlFile

VIEWS = sqlfile.load(shipped.folder("queries"))


@pytest.fixture(scope="module")
def columns() -> dict[str, dict[str, str]]:
    """The columns and types of every view over empty tables, as DuckDB describes them."""

    def call(view: SqlFile) -> str:
        return f"{view.name}({', '.join(['null'] * len(view.parameters))})" if view.parameters else view.name

    with empty_warehouse() as warehouse:
        return {
            view.name: {
                row["column_name"]: str(row["column_type"]) for row in warehouse.rows(f"describe from {call(view)}")
            }
            for view in VIEWS.values()
        }


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_header_names_the_columns_that_come_out(view: SqlFile, columns: dict[str, dict[str, str]]) -> None:
    assert list(columns[view.name]) == list(view.columns)


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_no_column_is_a_hugeint_or_unsigned(view: SqlFile, columns: dict[str, dict[str, str]]) -> None:
    types = columns[view.name]
    assert {name: kind for name, kind in types.items() if "HUGEINT" in kind or kind.startswith("U")} == {}


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_reads_is_what_the_select_references(view: SqlFile) -> None:
    assert set(view.reads) == referenced(view.text)


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_a_layer_reads_nothing_above_it(view: SqlFile) -> None:
    assert view.layer in LAYERS
    above = {
        name for name in view.reads if name in VIEWS and LAYERS.index(VIEWS[name].layer) > LAYERS.index(view.layer)
    }
    assert above == set()


@pytest.mark.parametrize("view", VIEWS.values(), ids=list(VIEWS))
def test_grain_is_columns_of_its_own(view: SqlFile) -> None:
    assert set(view.grain) <= set(view.columns)


def test_no_view_has_the_name_of_a_table() -> None:
    assert VIEWS.keys() & TABLES.keys() == set()


def referenced(text: str) -> set[str]:
    """The tables a SELECT references, as DuckDB parses it: every base table that is no CTE of its own."""
    found = duckdb.connect().execute("select json_serialize_sql(?)", [text]).fetchone()
    assert found is not None
    tree = json.loads(found[0])
    assert not tree["error"], tree
    tables: set[str] = set()
    ctes: set[str] = set()

    def walk(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("type") == "BASE_TABLE":
                tables.add(node["table_name"])
            if node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"] in VIEWS:
                tables.add(node["function"]["function_name"])
            for entry in (node.get("cte_map") or {}).get("map", []):
                ctes.add(entry["key"])
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(tree)
    return tables - ctes
