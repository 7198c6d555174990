"""The main road, from a snapshot to a dataset, and the way in for every verb that takes either.

Each step is another module's; nothing is computed or printed here.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from tracekit import dataset, run_folder
from tracekit.collector import paused
from tracekit.errors import DatasetError, RunFolderError
from tracekit.flatten import flatten
from tracekit.place import place
from tracekit.schema import PLACED_TABLES, RECORDED_TABLES, SCHEMA_VERSION, SPARSE_TABLES, TABLES
from tracekit.snapshot import read_snapshot
from tracekit.terminal import some
from tracekit.warehouse import Warehouse, fingerprint, stored_names, stored_tables

Tell = Callable[[str], None]
"""Called with a word on what is being done, for the person who waits."""

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
        RunFolderError: where it is a run folder that cannot be used.
    """
    with paused():
        about, raw = _raw(source, tell)
        tell("replaying the allocator")
        tables = _nothing(SPARSE_TABLES) | raw | place(raw)
    return about, {name: tables[name] for name in TABLES}


def _raw(source: str | Path, tell: Tell) -> tuple[dict[str, Any], dict[str, pa.Table]]:
    """What the source was, and its raw tables with those of its run folder; the snapshot itself is let go."""
    tell("reading")
    folder = _run_of(source)
    snapshot = read_snapshot(source if folder is None else run_folder.snapshot_of(folder))
    about = asdict(snapshot.source)
    tell("flattening")
    raw = flatten(snapshot)
    if folder is None:
        return about, raw
    return about | {"run_folder": folder.resolve().name}, raw | run_folder.read_run(folder, raw["note"])


def _nothing(names: Iterable[str]) -> dict[str, pa.Table]:
    """Tables without rows."""
    return {name: TABLES[name].schema.empty_table() for name in names}


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
        RunFolderError: where it is a run folder that cannot be used.
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
        raw: the raw tables of `tracekit.schema`; those of a run folder may be left out.
        about: what they come from, for the manifest.
        force: whether a dataset that is there already may be replaced.
        tell: told what is being done.
        rules: rows of the table user_rule, which the dataset keeps.

    Raises:
        DatasetError: where the folder is in the way or cannot be written.
    """
    raw = _nothing(RECORDED_TABLES) | raw
    no_rules = _nothing(["user_rule"])
    early_names, late_names = stored_names()
    # neither Arrow nor DuckDB holds the interpreter while it works, so the replay need not wait for them
    with dataset.new_folder(folder, force=force) as partial, ThreadPoolExecutor(1) as beside:
        early = beside.submit(stored_tables, raw | _nothing(PLACED_TABLES) | no_rules, early_names)
        writing = [beside.submit(dataset.write_tables, raw, partial)]
        tell("replaying the allocator")
        with paused():
            placed = place(raw)
        tell("labelling")
        tables = raw | placed | (no_rules if rules is None else {"user_rule": rules})
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


@dataclass(frozen=True, slots=True)
class Recording:
    """One recording of those that a path stands for.

    Attributes:
        source: a snapshot file, a run folder, or `-`.
        folder: where its dataset goes unless told otherwise, see `dataset_folder`.
        name: the dataset's name in a folder of several.
    """

    source: str
    folder: Path
    name: str


def recordings(source: str, tell: Tell = _silent) -> list[Recording]:
    """What a path given to `tracekit analyze` stands for: itself, or the run folders that lie in it.

    A run of several ranks leaves a folder of run folders, one that was started again leaves one in another, a sweep
    one for each size. Those without a snapshot are left out where others have one.

    Args:
        source: a snapshot file, a run folder, a folder of those, or `-`.
        tell: told what the person may not expect.

    Raises:
        RunFolderError: where a folder's runs have no snapshot.
    """
    path = Path(source)
    runs = run_folder.find_runs(path) if source != "-" and path.is_dir() else []
    if not runs or runs == [path]:
        folder = dataset_folder(source)
        return [Recording(source, folder, folder.name)]
    tell(f"{source} holds {len(runs):,} run folders: {_names(runs, path)}")
    found: list[Recording] = []
    for run in runs:
        try:
            run_folder.snapshot_of(run)
        except RunFolderError as error:
            tell(f"left out: {error.problem}")
            continue
        folder = dataset_folder(str(run))
        above = run.relative_to(path).parts[:-1]
        found.append(Recording(str(run), folder, "_".join([*above, folder.name])))
    if not found:
        raise RunFolderError(
            f"{source} holds {len(runs):,} run folders, and none has a snapshot",
            f"see the notes in {runs[0] / run_folder.CAPTURE}",
        )
    return found


def _names(runs: list[Path], folder: Path) -> str:
    return some([str(run.relative_to(folder)) for run in runs])


def open_any(
    source: str | Path, tell: Tell = _silent, rules: pa.Table | None = None, *, in_memory: bool = False
) -> Warehouse:
    """Open a dataset, or a snapshot or run folder as if it were one.

    Rules are rows of the table user_rule that stand in for the dataset's own; in_memory as `Warehouse.open` has it.

    A snapshot is analyzed into the user's cache directory (`TRACEKIT_CACHE` names another), under the hash of its
    content, and found there the next time; standard input is analyzed in memory.

    Raises:
        SnapshotError: where the source is neither.
        RunFolderError: where it is a folder of several runs, or a run folder that cannot be used.
        DatasetError: where it is a dataset of another version.
    """
    if str(source) == "-":
        return _in_memory("-", tell, rules)
    path = Path(source)
    run = _run_of(source)
    if run is None and path.is_dir():
        _refuse_several(path)
        return Warehouse.open(path, rules, in_memory=in_memory)
    try:
        files = [path] if run is None else run_folder.files_of(run)
        folder = cache_folder() / f"{_digest(files)}-{SCHEMA_VERSION}.tracekit"
    except OSError:
        return _in_memory(path, tell, rules)  # the reader says what is wrong with it
    if not _is_usable(folder):
        try:
            analyze(path, folder, force=True, tell=tell)
        except DatasetError:
            return _in_memory(path, tell, rules)  # no room for a cache is no reason to fail
    return Warehouse.open(folder, rules, in_memory=in_memory)


def _run_of(source: str | Path) -> Path | None:
    """The run folder that a source is; None where it is something else."""
    path = Path(source)
    return path if str(source) != "-" and run_folder.is_run_folder(path) else None


def _refuse_several(path: Path) -> None:
    """A folder of run folders is no dataset, and a verb that takes one must not choose for the person."""
    runs = [] if (path / dataset.MANIFEST).exists() else run_folder.find_runs(path)
    if runs:
        raise RunFolderError(
            f"{path} holds {len(runs):,} run folders: {_names(runs, path)}",
            f"name one of them, such as {runs[0]}, or make a dataset of each with: tracekit analyze {path}",
        )


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


def cache_folder() -> Path:
    """Where what can be made again is kept: `TRACEKIT_CACHE`, or the place of the user's system for such things."""
    told = os.environ.get("TRACEKIT_CACHE")
    if told:
        return Path(told)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "tracekit" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tracekit"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tracekit"


def _digest(paths: Sequence[Path]) -> str:
    """A hash of what the files hold, one after another; of one file, its own."""
    digests: list[str] = []
    for path in paths:
        with path.open("rb") as file:
            digests.append(hashlib.file_digest(file, "sha256").hexdigest())
    if len(digests) == 1:
        return digests[0][:32]
    return hashlib.sha256(" ".join(digests).encode()).hexdigest()[:32]
