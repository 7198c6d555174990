"""`tracekit schema`: every table, view and column with its meaning, printed from their own documentation."""

from __future__ import annotations

from typing import Any

import click

from tracekit.commands import options


@click.command("schema", short_help="Every table, view and column with its meaning and unit.")
@click.argument("dataset", metavar="[DATASET]", required=False)
@click.option("--name", "only", metavar="NAME", help="One table or view only.")
@options.output_format
def command(dataset: str | None, only: str | None, style: str) -> None:
    """Print what can be asked of a dataset: its tables and views, and what each column means.

    With a DATASET, a row count stands beside each of its tables.
    """
    from pathlib import Path

    from tracekit import catalog, terminal
    from tracekit.dataset import read_manifest
    from tracekit.errors import QueryError

    counts: dict[str, int] = {} if dataset is None else read_manifest(Path(dataset))["row_counts"]
    relations = [one for one in catalog.relations() if only in (None, one.name)]
    if not relations:
        raise QueryError(f"there is no table or view called {only!r}", "see their names with: tracekit schema")
    if style == "json":
        terminal.write_json(
            [{**one.as_dict(), **({"row_count": counts[one.name]} if one.name in counts else {})} for one in relations]
        )
        return
    if style == "csv":
        rows: list[dict[str, Any]] = [
            {
                "relation": one.name,
                "kind": one.kind,
                "column": column.name,
                "type": column.type,
                "unit": column.unit,
                "doc": column.doc,
            }
            for one in relations
            for column in one.columns
        ]
        terminal.write_rows(rows, style)
        return
    for one in relations:
        count = f", {counts[one.name]:,} rows" if one.name in counts else ""
        print(f"{one.title} ({one.kind}{count}): {one.doc}\n")
        terminal.write_grid(
            ["column", "type", "unit", "meaning"],
            [[column.name, column.type, column.unit or "", column.doc] for column in one.columns],
            [False, False, False, False],
        )
        print()
