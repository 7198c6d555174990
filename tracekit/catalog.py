"""What can be asked of a dataset: tables and views with their columns, from their own documentation.

Types of view columns are asked of DuckDB over empty tables; no dataset is opened here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

_TYPES = {pa.int64(): "bigint", pa.string(): "varchar", pa.bool_(): "boolean"}
_UNITS = {"_bytes": "bytes", "_us": "us"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name, its type in SQL, its unit where it has one, and its meaning."""

    name: str
    type: str
    unit: str | None
    doc: str


@dataclass(frozen=True, slots=True)
class Relation:
    """A table, a view or a table macro.

    Attributes:
        name: its name in SQL.
        title: its name with the parameters of a macro.
        kind: table, or the layer of a view.
        doc: what a row is.
        grain: the columns that identify a row.
        columns: its columns in order.
    """

    name: str
    title: str
    kind: str
    doc: str
    grain: tuple[str, ...]
    columns: tuple[Column, ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def empty_warehouse() -> Warehouse:
    """Every view over tables without rows."""
    return Warehouse({name: spec.schema.empty_table() for name, spec in TABLES.items()})


def relations() -> list[Relation]:
    """Every table, then every view in the order of its layers."""
    found = [
        Relation(
            name=spec.name,
            title=spec.name,
            kind="table",
            doc=spec.doc,
            grain=spec.key,
            columns=tuple(
                Column(field.name, _TYPES[field.type], _metadata(field, "unit"), _metadata(field, "doc") or "")
                for field in spec.schema
            ),
        )
        for spec in TABLES.values()
    ]
    with empty_warehouse() as warehouse:
        for view in warehouse.views.values():
            arguments = ", ".join(["null"] * len(view.parameters))
            described = warehouse.rows(f"describe from {view.name}" + (f"({arguments})" if view.parameters else ""))
            types = {row["column_name"]: str(row["column_type"]).lower() for row in described}
            found.append(
                Relation(
                    name=view.name,
                    title=view.name + (f"({', '.join(view.parameters)})" if view.parameters else ""),
                    kind=f"{view.layer} view" if not view.parameters else f"{view.layer} macro",
                    doc=view.doc,
                    grain=view.grain,
                    columns=tuple(
                        Column(name, types.get(name, ""), _unit(name), doc) for name, doc in view.columns.items()
                    ),
                )
            )
    return found


def _unit(column: str) -> str | None:
    return next((unit for suffix, unit in _UNITS.items() if column.endswith(suffix)), None)


def _metadata(field: pa.Field, key: str) -> str | None:
    value = (field.metadata or {}).get(key.encode())
    return None if value is None else value.decode()
