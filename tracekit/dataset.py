"""Tables on disk: a folder of Parquet files with a manifest, written whole or not at all.

What the tables mean is said in `schema` and queries/; no SQL runs here.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tracekit.errors import DatasetError
from tracekit.schema import SCHEMA_VERSION, TABLES

MANIFEST = "manifest.json"
STORED = "stored"
"""The subfolder for the rows of stored views; it can be thrown away, and is made again from the tables."""

_FORMAT = "tracekit dataset"


@contextmanager
def new_folder(folder: Path, *, force: bool = False) -> Generator[Path]:
    """A temporary folder beside `folder` that takes its name when the block ends without an error.

    Raises:
        DatasetError: where `folder` exists and `force` is not set, or cannot be written.
    """
    refuse_existing(folder, force=force)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent))
    except OSError as error:
        raise DatasetError(f"cannot write {folder}: {error.strerror}", "choose another folder with -o") from error
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        if folder.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", suffix=".old", dir=folder.parent))
            folder.rename(old / folder.name)
            partial.rename(folder)
            shutil.rmtree(old)
        else:
            partial.rename(folder)
    except OSError as error:
        raise DatasetError(
            f"cannot write {folder}: {error.strerror or error}",
            "free some space or choose another folder with -o",
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_existing(folder: Path, *, force: bool) -> None:
    """Nothing is overwritten unasked, and nothing but a dataset is ever replaced.

    Raises:
        DatasetError: where `folder` is in the way.
    """
    if not folder.exists() and not folder.is_symlink():
        return
    if not force:
        raise DatasetError(f"{folder} exists already", "give --force to replace it, or another folder with -o")
    if folder.is_symlink() or not (folder / MANIFEST).is_file():
        raise DatasetError(f"{folder} exists and is not a tracekit dataset", "choose another folder with -o")


def write_tables(tables: Mapping[str, pa.Table], folder: Path) -> None:
    """Write each table as `NAME.parquet`, zstd-compressed; the same tables give the same bytes."""
    folder.mkdir(exist_ok=True)
    for name, table in tables.items():
        integers = [column.name for column in table.schema if column.type == pa.int64()]
        texts = [column.name for column in table.schema if column.type != pa.int64()]
        pq.write_table(
            table,
            folder / f"{name}.parquet",
            compression="zstd",
            use_dictionary=texts,  # pyright: ignore[reportArgumentType] - a list of names is a documented choice
            column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
        )


def write_manifest(folder: Path, source: Mapping[str, Any], row_counts: Mapping[str, int], fingerprint: str) -> None:
    """Say what the folder is: format, version, source, rows a table, and which SQL its stored views came from."""
    manifest = {
        "format": _FORMAT,
        "schema_version": SCHEMA_VERSION,
        "source": dict(source),
        "row_counts": dict(sorted(row_counts.items())),
        "stored_views": fingerprint,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a dataset that this version can read, all of whose tables are there.

    Raises:
        DatasetError: where the folder is no dataset, an older or newer one, or lacks a table.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(
            f"{folder} is not a tracekit dataset: it has no {MANIFEST}",
            "make one with: tracekit analyze SNAPSHOT",
        ) from None
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{folder / MANIFEST} cannot be read: {error}",
            "make the dataset again with: tracekit analyze --force",
        ) from error
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise DatasetError(
            f"{folder} is not a tracekit dataset: its {MANIFEST} is another program's",
            "make one with: tracekit analyze SNAPSHOT",
        )
    if manifest.get("schema_version") != SCHEMA_VERSION:
        raise DatasetError(
            f"{folder} holds version {manifest.get('schema_version')} of the tables,"
            f" this tracekit reads {SCHEMA_VERSION}",
            "make it again from its snapshot with: tracekit analyze --force",
        )
    missing = [name for name in TABLES if not (folder / f"{name}.parquet").is_file()]
    if missing:
        raise DatasetError(
            f"{folder} is incomplete: {missing[0]}.parquet is missing",
            "make it again from its snapshot with: tracekit analyze --force",
        )
    return manifest


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
