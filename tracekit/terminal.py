"""How rows look: a table for a person, CSV or JSON for a program. The one door to rich.

Rows come in finished; nothing is computed here but widths, and nothing is read but the terminal's size.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from tracekit.units import format_mib

Row = Mapping[str, Any]


_WIDE = 10_000
"""Columns given to rich where output is no terminal: a pipe has no right margin, so nothing is cut or wrapped."""


def write_rows(rows: Sequence[Row], style: str, columns: Sequence[str] | None = None) -> None:
    """Print rows to standard output as a table (MiB with one decimal), CSV or JSON (exact bytes).

    Args:
        rows: dicts of one shape.
        style: table, csv or json.
        columns: the columns to print, in order; those of the first row otherwise.
    """
    names = list(columns) if columns is not None else list(rows[0]) if rows else []
    if style == "json":
        write_json([{name: row[name] for name in names} for row in rows])
    elif style == "csv":
        write_csv(names, ([row[name] for name in names] for row in rows))
    else:
        headers = [_header(name) for name in names]
        cells = [[_cell(name, row[name]) for name in names] for row in rows]
        right = [any(isinstance(row[name], int | float | Decimal) for row in rows) for name in names]
        write_grid(headers, cells, right)


def write_grid(
    headers: Sequence[str], cells: Sequence[Sequence[str]], right: Sequence[bool], totals: Sequence[int] = ()
) -> None:
    """Print a grid of finished texts; on a narrow terminal cells wrap, in a pipe they never do.

    Args:
        headers: a title for each column.
        cells: the rows.
        right: whether a column is set flush right.
        totals: the rows (by position) that a rule is drawn above, and that stand out.
    """
    from rich.box import Box
    from rich.table import Table
    from rich.text import Text

    # a rule under the headers and above each total, and nothing else
    rules = Box("    \n    \n ── \n    \n ── \n    \n    \n    \n")
    grid = Table(box=rules, pad_edge=False, show_edge=False)
    for header, is_right in zip(headers, right, strict=True):
        # names may be long and wrap; numbers may not
        grid.add_column(Text(header), justify="right" if is_right else "left", no_wrap=is_right, overflow="fold")
    for index, row in enumerate(cells):
        if index in totals and index:
            grid.add_section()
        grid.add_row(*map(Text, row), style="bold" if index in totals else None)
    console = _console()
    # Text() above and markup=False: what a recording says is shown, never interpreted
    console.print(grid, markup=False, highlight=False)


def write_csv(names: Sequence[str], rows: Iterator[Sequence[Any]]) -> None:
    """Print rows as CSV with a header; lists as JSON."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_plain(value) for value in row] for row in rows)


def write_json(value: object) -> None:
    """Print plain data as indented JSON."""
    json.dump(value, sys.stdout, indent=2, default=_jsonable)
    sys.stdout.write("\n")


def tell(text: str) -> None:
    """Say something to the person, on standard error."""
    print(text, file=sys.stderr)  # noqa: T201 - the one place that talks


@contextmanager
def progress(*, quiet: bool) -> Generator[Callable[[str], None]]:
    """A line on standard error that says what is being done, where that is a terminal; silence elsewhere."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status("") as status:
        yield lambda doing: status.update(f"{doing} ...")


def exact(value: Any) -> str:
    """A value as it is, made safe for the terminal."""
    return printable(str(_plain(value)))


def mib(count: int | None) -> str:
    """Bytes as MiB with one decimal, nothing where they are not known."""
    return "" if count is None else format_mib(count)


def _console() -> Any:
    from rich.console import Console

    console = Console(emoji=False)
    return console if console.is_terminal else Console(emoji=False, width=_WIDE, no_color=True)


def _header(name: str) -> str:
    if name.endswith("_bytes"):
        return f"{name.removesuffix('_bytes')} MiB".replace("_", " ")
    return name.replace("_", " ")


def _cell(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name.endswith("_bytes") and isinstance(value, int):
        return format_mib(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_count"):
        return f"{value:,}"
    return exact(value)


def _plain(value: Any) -> Any:
    if isinstance(value, list | dict):
        return json.dumps(value, default=_jsonable)
    if isinstance(value, Decimal):
        return _jsonable(value)
    return value


def _jsonable(value: object) -> object:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


def brief(text: str, longest: int = 300) -> str:
    """`printable`, and no longer than that many characters: a recording may hold a name of a megabyte."""
    return printable(text[:longest]) + ("…" if len(text) > longest else "")


def printable(text: str) -> str:
    """Text with control characters shown as escapes, so that a recording cannot drive the terminal."""
    return "".join(
        character if character.isprintable() or character == "\n" else repr(character)[1:-1] for character in text
    )


def some(names: Sequence[str]) -> str:
    """Names one after another; of more than twelve, the first and the last few."""
    return ", ".join(names if len(names) <= 12 else [*names[:6], "...", *names[-5:]])
