"""Reads what the recorder wrote, as somebody would who knows only the files."""

from __future__ import annotations

import importlib
import json
import pickle
from pathlib import Path
from typing import IO, Any

Row = dict[str, Any]


def capture(folder: Path) -> Row:
    """capture.json of a run folder."""
    return json.loads((folder / "capture.json").read_text(encoding="utf-8"))


def load(path: Path) -> Row:
    """A dump."""
    return pickle.loads(path.read_bytes())  # noqa: S301  (this test has written it)


def names(folder: Path) -> list[str]:
    """The files of a folder."""
    return sorted(path.name for path in folder.iterdir())


def rows(file: Path | IO[bytes]) -> list[Row]:
    """The rows of a Parquet file."""
    parquet: Any = importlib.import_module("pyarrow.parquet")
    return parquet.ParquetFile(file).read().to_pylist()


def docs(file: Path | IO[bytes]) -> dict[str, str]:
    """The columns of a Parquet file, and what each says it means."""
    parquet: Any = importlib.import_module("pyarrow.parquet")
    schema: Any = parquet.ParquetFile(file).schema_arrow
    return {field.name: field.metadata[b"doc"].decode() if field.metadata else "" for field in schema}
