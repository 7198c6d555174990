"""A file of queries/ becomes a named, documented SELECT, and a set of them gets an order to be created in.

The header's grammar is known here and nowhere else. No database is opened here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

LAYERS = ("fact", "label", "ledger", "report", "check")
"""From the ground up: a layer reads the tables, itself and the layers before it, never one after it."""

_FIELD = re.compile(r"(layer|grain|reads|stored|parameters):\s*(.*)")
_COLUMN = re.compile(r" {2,4}(\w+): (.*)")


@dataclass(frozen=True, slots=True)
class SqlFile:
    """One view, or one table macro where it has parameters: the file's stem is its name.

    Attributes:
        doc: what a row is.
        grain: the columns that identify a row.
        reads: the tables and views the SELECT references.
        is_stored: whether `analyze` writes its rows into the dataset, because they are asked for again and again.
        parameters: the macro's parameters in order; none for a view.
        columns: each output column with its meaning, in order.
        text: the SELECT, without its header.
    """

    name: str
    layer: str
    doc: str
    grain: tuple[str, ...]
    reads: tuple[str, ...]
    is_stored: bool
    parameters: tuple[str, ...]
    columns: dict[str, str]
    text: str


@dataclass(slots=True)
class _Header:
    doc: list[str] = field(default_factory=list[str])
    fields: dict[str, str] = field(default_factory=dict[str, str])
    columns: dict[str, str] = field(default_factory=dict[str, str])


def parse(name: str, source: str) -> SqlFile:
    """Read one file: comment lines first (see any file of queries/ for the form), then one SELECT.

    Raises:
        ValueError: where the header lacks a field; these files are the project's own, so this is for its developers.
    """
    lines = source.splitlines()
    count = next((index for index, line in enumerate(lines) if not line.startswith("--")), len(lines))
    header = _Header()
    latest = ""
    for line in lines[:count]:
        text = line[2:].removeprefix(" ")
        column = _COLUMN.fullmatch(text)
        known = _FIELD.fullmatch(text.strip())
        if column and "layer" in header.fields:
            latest = column[1]
            header.columns[latest] = column[2]
        elif latest and text.startswith("    "):
            header.columns[latest] += " " + text.strip()
        elif known:
            header.fields[known[1]] = known[2]
        elif text.strip():
            header.doc.append(text.strip())
    missing = {"layer", "grain", "reads"} - header.fields.keys()
    if missing or not header.doc or not header.columns:
        raise ValueError(f"queries: {name}.sql lacks {', '.join(sorted(missing)) or 'its sentence or its columns'}")
    return SqlFile(
        name=name,
        layer=header.fields["layer"],
        doc=" ".join(header.doc),
        grain=_names(header.fields["grain"]),
        reads=_names(header.fields["reads"]),
        is_stored=header.fields.get("stored", "") == "yes",
        parameters=_names(header.fields.get("parameters", "")),
        columns=header.columns,
        text="\n".join(lines[count:]).strip().removesuffix(";"),
    )


def creation(file: SqlFile) -> str:
    """The statement that creates a view, a stored view's table or a macro."""
    if file.parameters:
        return f"create macro {file.name}({', '.join(file.parameters)}) as table {file.text}"
    return f"create {'table' if file.is_stored else 'view'} {file.name} as {file.text}"


@cache
def load(folder: Path) -> dict[str, SqlFile]:
    """Every view under a folder, ordered so that each comes after what it reads.

    Raises:
        ValueError: for a cycle, two files of one name, or a layer that its folder does not say.
    """
    files: dict[str, SqlFile] = {}
    for path in sorted(folder.rglob("*.sql")):
        file = parse(path.stem, path.read_text(encoding="utf-8"))
        if file.name in files:
            raise ValueError(f"queries: two files are called {file.name}.sql")
        if file.layer != path.parent.name:
            raise ValueError(f"queries: {file.name}.sql says layer {file.layer} and lies in {path.parent.name}/")
        files[file.name] = file
    return {file.name: file for file in ordered(files.values())}


def ordered(files: Iterable[SqlFile]) -> list[SqlFile]:
    """The files sorted so that each comes after what it reads, and otherwise by name: the same order every time.

    Raises:
        ValueError: where they read each other in a circle.
    """
    by_name = {file.name: file for file in files}
    sorter = TopologicalSorter({name: by_name.keys() & file.reads for name, file in by_name.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        raise ValueError(f"queries: these read each other in a circle: {error.args[1]}") from error
    names: list[str] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        names += ready
        sorter.done(*ready)
    return [by_name[name] for name in names]


def resting_on(files: Iterable[SqlFile], table: str) -> set[str]:
    """The views that read a table, or a view that does."""
    found = {table}
    for file in ordered(files):
        if found.intersection(file.reads):
            found.add(file.name)
    return found - {table}


def needed_by(files: Iterable[SqlFile], names: Iterable[str]) -> set[str]:
    """Some views, and every view that they read, directly or not."""
    found = set(names)
    for file in reversed(ordered(files)):
        if file.name in found:
            found.update(file.reads)
    return found


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in re.split(r"[,\s]+", text.strip()) if name and name != "-")
