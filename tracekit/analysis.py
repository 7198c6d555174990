"""The main road, from a snapshot to a dataset, and the way in for every verb that takes either.

Each step is another module's; nothing is computed or printed here.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracekit import dataset
from tracekit.collector import paused
from tracekit.errors import DatasetError
from tracekit.flatten import flatten
from tracekit.place import place
from tracekit.schema import PLACED_TABLES, SCHEMA_VERSION, TABLES
from tracekit.snapshot import read_snapshot
from tracekit.warehouse import Warehouse, fingerprint, stored_names, stored_tables

Tell = Callable[[str], None]
"""Called with a word on what is being done, for the person who waits."""

_RUN_FACTS, _RUN_SNAPSHOT = "capture.json", "snapshot.pickle"
"""The files by which a run folder is known; the recorder, which writes them, shares nothing else with the analysis."""

_SUFFIXES = (".run", ".gz", ".xz", ".zst", ".bz2", ".pickle", ".pkl", ".json")


def _silent(_: str) -> None:
    """Say nothing."""


def build(source: str | Path, tell: Tell = _silent) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """Read a snapshot and place its allocations.

    Args:
        source: a snapshot file, a run folder, or `-` for standard input.
        tell: told what is being done.

    Returns:
        What the source was, and every table of `tracekit.schema`.

    Raises:
        SnapshotError: where the source is no snapshot that can be read.
    """
    with paused():
        about, raw = _raw(source, tell)
        tell("replaying the allocator")
        tables = raw | place(raw)
    return about, tables | {"user_rule": TABLES["user_rule"].schema.empty_table()}


def _raw(source: str | Path, tell: Tell) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What the source was, and its raw tables; the snapshot itself is let go."""
    tell("reading")
    snapshot = read_snapshot(_snapshot_of(source))
    about = asdict(snapshot.source)
    tell("flattening")
    return about, flatten(snapshot)


def analyze(
    source: str | Path,
    folder: Path,
    *,
    force: bool = False,
    tell: Tell = _silent,
    rules: pa.Table | None = None,
) -> None:
    """Turn a snapshot into a dataset, whole or not at all.

    Args:
        source: a snapshot file, a run folder, or `-` for standard input.
        folder: where the dataset goes.
        force: whether a dataset that is there already may be replaced.
        tell: told what is being done.
        rules: rows of the table user_rule, which the dataset keeps.

    Raises:
        SnapshotError: where the source is no snapshot that can be read.
        DatasetError: where the folder is in the way or cannot be written.
    """
    dataset.refuse_existing(folder, force=force)
    with paused():
        about, raw = _raw(source, tell)
    write_dataset(folder, raw, about, force=force, tell=tell, rules=rules)


def write_dataset(
    folder: Path,
    raw: dict[str, pa.Table],
    about: dict[str, Any],
    *,
    force: bool = False,
    tell: Tell = _silent,
    rules: pa.Table | None = None,
) -> None:
    """Turn raw tables, from wherever they come, into a dataset.

    Args:
        folder: where the dataset goes.
        raw: the raw tables of `tracekit.schema`.
        about: what they come from, for the manifest.
        force: whether a dataset that is there already may be replaced.
        tell: told what is being done.
        rules: rows of the table user_rule, which the dataset keeps.

    Raises:
        DatasetError: where the folder is in the way or cannot be written.
    """
    no_rules = TABLES["user_rule"].schema.empty_table()
    unplaced = {name: TABLES[name].schema.empty_table() for name in PLACED_TABLES}
    early_names, late_names = stored_names()
    # neither Arrow nor DuckDB holds the interpreter while it works, so the replay need not wait for them
    with dataset.new_folder(folder, force=force) as partial, ThreadPoolExecutor(1) as beside:
        early = beside.submit(stored_tables, raw | unplaced | {"user_rule": no_rules}, early_names)
        writing = [beside.submit(dataset.write_tables, raw, partial)]
        tell("replaying the allocator")
        with paused():
            placed = place(raw)
        tell("labelling")
        tables = raw | placed | {"user_rule": no_rules if rules is None else rules}
        writing.append(
            beside.submit(dataset.write_tables, {name: tables[name] for name in tables.keys() - raw.keys()}, partial)
        )
        stored = early.result() | stored_tables(tables, late_names, early.result())
        tell("writing")
        dataset.write_tables(stored, partial / dataset.STORED)
        for done in writing:
            done.result()
        row_counts = {name: len(table) for name, table in tables.items()}
        dataset.write_manifest(partial, about, row_counts, fingerprint())


def dataset_folder(source: str) -> Path:
    """Where a snapshot's dataset goes unless told otherwise: beside it, `NAME.tracekit`; here, for standard input."""
    if source == "-":
        return Path("stdin.tracekit")
    path = Path(source)
    name = path.name
    while (suffix := Path(name).suffix) in _SUFFIXES:
        name = name.removesuffix(suffix)
    return path.with_name(f"{name}.tracekit")


def open_any(source: str | Path, tell: Tell = _silent, rules: pa.Table | None = None) -> Warehouse:
    """Open a dataset, or a snapshot as if it were one.

    Rules are rows of the table user_rule that stand in for the dataset's own.

    A snapshot is analyzed into the user's cache directory (`TRACEKIT_CACHE` names another), under the hash of its
    content, and found there the next time; standard input is analyzed in memory.

    Raises:
        SnapshotError: where the source is neither.
        DatasetError: where it is a dataset of another version.
    """
    if str(source) == "-":
        return _in_memory("-", tell, rules)
    path = Path(_snapshot_of(source))
    if path.is_dir():
        return Warehouse.open(path, rules)
    try:
        folder = _cache() / f"{_digest(path)}-{SCHEMA_VERSION}.tracekit"
    except OSError:
        return _in_memory(path, tell, rules)  # the reader says what is wrong with it
    if not _is_usable(folder):
        try:
            analyze(path, folder, force=True, tell=tell)
        except DatasetError:
            return _in_memory(path, tell, rules)  # no room for a cache is no reason to fail
    return Warehouse.open(folder, rules)


def _snapshot_of(source: str | Path) -> str | Path:
    """The snapshot inside a run folder of `tracekit capture`; whatever else is given, itself."""
    path = Path(source)
    is_run = str(source) != "-" and (path / _RUN_FACTS).is_file()
    return path / _RUN_SNAPSHOT if is_run else source


def _in_memory(source: str | Path, tell: Tell, rules: pa.Table | None) -> Warehouse:
    tables = build(source, tell)[1]
    return Warehouse(tables if rules is None else tables | {"user_rule": rules})


def _is_usable(folder: Path) -> bool:
    """Whether a dataset of the cache is one that this version can read, whichever version left it."""
    try:
        dataset.read_manifest(folder)
    except DatasetError:
        return False
    return True


def _cache() -> Path:
    told = os.environ.get("TRACEKIT_CACHE")
    if told:
        return Path(told)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "tracekit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tracekit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:32]
