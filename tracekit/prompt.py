"""The prompt of `tracekit sql`, and how the rows of a query are printed.

A line is read, a query is run, its rows are printed: what a query may do is decided by the warehouse.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pyarrow as pa

from tracekit import terminal
from tracekit.errors import QueryError
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

_HELP = """\
End a query with ; to run it. It sees these tables and views, and nothing else:
{names}
.schema NAME shows the columns of one, .quit (or Ctrl-D) leaves.
"""


def write_result(table: pa.Table, style: str, most: int) -> None:
    """Print the rows of a query as they are, without turning bytes into MiB.

    Args:
        table: the rows.
        style: table, csv or json.
        most: so many rows of a table are printed, 0 for all; what is left out is said on standard error.
    """
    names = _distinct(table.column_names)
    table = table.rename_columns(names)
    if style == "csv":
        terminal.write_csv(
            names,
            ([row[name] for name in names] for batch in table.to_batches(10_000) for row in batch.to_pylist()),
        )
    elif style == "json":
        terminal.write_json(table.to_pylist())
    elif names:
        shown = table.slice(0, most) if most else table
        right = [
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
            for kind in table.schema.types
        ]
        cells = [
            ["" if row[name] is None else terminal.exact(row[name]) for name in names] for row in shown.to_pylist()
        ]
        terminal.write_grid(names, cells, right)
        if len(shown) < len(table):
            terminal.tell(f"{len(table) - len(shown):,} more rows: --rows 0 prints all, as do --format csv and json")


def run(warehouse: Warehouse, style: str, most: int) -> None:
    """Read queries until the end of input: with history and editing on a terminal, plainly from a pipe."""
    is_person = sys.stdin.isatty()
    history = _load_history() if is_person else None
    if is_person:
        terminal.tell("tracekit sql: end a query with ; to run it, .help for help, .quit to leave")
    waiting: list[str] = []
    try:
        while True:
            line = input("...> " if waiting and is_person else "sql> " if is_person else "")
            if not waiting and line.strip().startswith("."):
                if line.strip() in (".quit", ".exit"):
                    return
                _answer(line.split(), warehouse)
                continue
            waiting.append(line)
            if line.rstrip().endswith(";"):
                query, waiting = "\n".join(waiting), []
                _try(warehouse, query, style, most)
    except EOFError:
        if "".join(waiting).strip():
            _try(warehouse, "\n".join(waiting), style, most)
    except KeyboardInterrupt:
        terminal.tell("")
    finally:
        if history is not None:
            _save_history(history)


def _try(warehouse: Warehouse, query: str, style: str, most: int) -> None:
    try:
        write_result(warehouse.sql(query), style, most)
    except QueryError as error:
        if not sys.stdin.isatty():
            raise
        terminal.tell(f"{error.problem}\n{error.remedy}".rstrip())


def _answer(words: list[str], warehouse: Warehouse) -> None:
    if words[0] == ".schema" and len(words) == 2:
        columns = (
            {field.name: (field.metadata or {}).get(b"doc", b"").decode() for field in TABLES[words[1]].schema}
            if words[1] in TABLES
            else warehouse.views[words[1]].columns
            if words[1] in warehouse.views
            else None
        )
        if columns is not None:
            terminal.write_grid(["column", "meaning"], [[name, doc] for name, doc in columns.items()], [False, False])
            return
    terminal.tell(_HELP.format(names=", ".join([*TABLES, *warehouse.views])))


def _distinct(names: list[str]) -> list[str]:
    """Column names made unlike each other: a join may give two of one name."""
    seen: dict[str, int] = {}
    distinct: list[str] = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        distinct.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return distinct


def _load_history() -> Path | None:
    try:
        import readline
    except ImportError:  # Windows without pyreadline: a prompt without history
        return None
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tracekit"
    path = state / "sql_history"
    with contextlib.suppress(OSError):
        readline.read_history_file(path)
    readline.set_history_length(1000)
    return path


def _save_history(path: Path) -> None:
    import readline

    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        readline.write_history_file(path)
