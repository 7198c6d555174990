"""What a run folder of the recorder holds beside its snapshot becomes tables: its facts, dumps, marks, roll and op log.

Where run folders lie and which file is which is known here; no snapshot is read and no meaning is given to a row. The
recorder, which writes these files, shares nothing with the analysis but them. They are untrusted input.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tracekit.errors import RunFolderError
from tracekit.schema import RECORDED_TABLES, TABLES

Row = dict[str, Any]
Notes = Counter[tuple[str, str]]

CAPTURE = "capture.json"
"""The file by which a run folder is known."""

_VERSION = 1
_SNAPSHOTS = tuple(f"snapshot.pickle{suffix}" for suffix in ("", ".xz", ".gz", ".zst", ".bz2"))
_TENSORS, _OPS = "tensors.parquet", "ops.parquet"
_PART = re.compile(r"(rank|restart|batch_)\d+")
"""What a recorder or a sweep calls a folder in a folder: batch_0016/rank0/restart1."""

_MOST_ROWS = 20_000_000
"""Rows of a Parquet file that are read; the recorder keeps two million."""

# our column -> the recorder's, and what its type must be
_MARK: Mapping[str, str] = {
    "device": "device",
    "name": "label",
    "step": "step",
    "time_us": "time_us",
    "allocated_bytes": "allocated_bytes",
    "reserved_bytes": "reserved_bytes",
    "peak_allocated_bytes": "peak_allocated_bytes",
    "peak_reserved_bytes": "peak_reserved_bytes",
    "peak_since_us": "peak_since_us",
    "alloc_count": "alloc_count",
    "free_count": "free_count",
    "segment_alloc_count": "segment_alloc_count",
    "segment_free_count": "segment_free_count",
}
_MAY_LACK = frozenset(["step", "peak_since_us"])
_BYTES_FROM_STATS: Mapping[str, str] = {
    "requested_bytes": "requested_bytes.all.current",
    "active_bytes": "active_bytes.all.current",
}
_COUNTS_FROM_STATS: Mapping[str, str] = {
    "completed_count": "active.all.freed",
    "device_alloc_count": "num_device_alloc",
    "device_free_count": "num_device_free",
    "oom_count": "num_ooms",
}
_TENSOR: Mapping[str, str] = {
    "device": "device",
    "address": "address",
    "storage_bytes": "storage_bytes",
    "storage_offset_bytes": "storage_offset_bytes",
    "tensor_bytes": "byte_count",
    "shape": "shape",
    "dtype": "dtype",
    "role": "role",
    "name": "name",
    "step": "step",
    "time_us": "time_us",
    "alloc_count": "alloc_count",
}
_OP: Mapping[str, str] = {name: name for name in TABLES["op"].schema.names if name != "op_row_ix"}


def is_run_folder(path: Path) -> bool:
    """Whether a folder is what a recorder left."""
    return (path / CAPTURE).is_file()


def find_runs(folder: Path) -> list[Path]:
    """The run folders in a folder, itself first where it is one: of ranks, of restarts, of a sweep's sizes."""
    found = [folder] if is_run_folder(folder) else []
    level = _folders(folder)
    while level:
        found += [path for path in level if is_run_folder(path)]
        level = [path for parent in level if _PART.fullmatch(parent.name) for path in _folders(parent)]
    return sorted(found, key=lambda path: [_natural(part) for part in path.relative_to(folder).parts])


def snapshot_of(folder: Path) -> Path:
    """The snapshot in a run folder: the recorder's last dump, or the one it made when memory ran out.

    Raises:
        RunFolderError: where there is none.
    """
    for name in _SNAPSHOTS:
        if (folder / name).is_file():
            return folder / name
    raise RunFolderError(
        f"{folder} holds no snapshot.pickle: the run recorded no events, or ended before its first dump",
        f"see the notes in {folder / CAPTURE}, and record again with: tracekit capture",
    )


def files_of(folder: Path) -> list[Path]:
    """The files of a run folder that a dataset is made from."""
    return [snapshot_of(folder), *(path for name in (CAPTURE, _TENSORS, _OPS) if (path := folder / name).is_file())]


def empty_tables() -> dict[str, pa.Table]:
    """What a snapshot without a run folder has in these tables: nothing."""
    return {name: TABLES[name].schema.empty_table() for name in RECORDED_TABLES}


def read_run(folder: Path, noted: pa.Table | None = None) -> dict[str, pa.Table]:
    """Read what lies beside the snapshot in a run folder.

    Args:
        folder: the run folder.
        noted: the table note so far.

    Returns:
        A table for each name in `tracekit.schema.RECORDED_TABLES`, and the table note with what was met here as well.

    Raises:
        RunFolderError: where a file cannot be used; it names the file, and the way to do without it.
    """
    notes: Notes = Counter()
    capture = _read_capture(folder, notes)
    tables = empty_tables()
    facts = {key: value for key, value in capture.items() if key not in ("marks", "dumps")}
    tables["run_fact"] = _rows("run_fact", [{"key": key, "value": json.dumps(facts[key])} for key in sorted(facts)])
    tables["dump"] = _rows("dump", _dumps(capture, notes))
    tables["mark"] = _rows("mark", _marks(capture, notes))
    if (folder / _TENSORS).is_file():
        tables["tensor"] = _read_parquet(folder / _TENSORS, "tensor", "tensor_ix", _TENSOR)
    if (folder / _OPS).is_file():
        tables["op"] = _read_parquet(folder / _OPS, "op", "op_row_ix", _OP)
    tables["note"] = _rows("note", _all_notes(noted, notes))
    return tables


def _all_notes(noted: pa.Table | None, notes: Notes) -> list[Row]:
    rows: list[Row] = [] if noted is None else noted.to_pylist()
    rows += [{"place": place, "what": what, "occurrence_count": count} for (place, what), count in notes.items()]
    return sorted(rows, key=lambda row: (row["place"], row["what"]))


def _folders(parent: Path) -> list[Path]:
    try:
        return [path for path in parent.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def _natural(name: str) -> list[tuple[int, str]]:
    """A sort key that puts rank10 after rank2."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"(\d+)", name)]


# ------------------------------------------------------------------------------------------------- capture.json


def _read_capture(folder: Path, notes: Notes) -> Row:
    path = folder / CAPTURE
    try:
        capture = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise _refused(path, f"cannot be read: {error}") from error
    if not isinstance(capture, dict):
        raise _refused(path, "does not hold a JSON object")
    found = cast("Row", capture)
    if isinstance(found.get("version"), int) and found["version"] > _VERSION:
        notes["capture", f"version {found['version']}, and this tracekit knows {_VERSION}"] += 1
    return found


def _dumps(capture: Row, notes: Notes) -> Iterable[Row]:
    for dump_ix, dump in enumerate(_dicts(capture, "dumps", notes)):
        row = {
            "dump_ix": dump_ix,
            **{name: _text(dump.get(name)) for name in ("file", "reason", "phase")},
            **{name: _integer(dump.get(name)) for name in ("step", "time_us")},
            "is_snapshot": isinstance(dump.get("file"), str) and dump["file"] == capture.get("snapshot"),
        }
        counts, rings = _list(dump.get("event_count")), _list(dump.get("is_ring_full"))
        for device, count in enumerate(counts):
            is_full = rings[device] if device < len(rings) else None
            yield row | {
                "device": device,
                "event_count": _integer(count),
                "is_ring_full": is_full if isinstance(is_full, bool) else None,
            }


def _marks(capture: Row, notes: Notes) -> Iterable[Row]:
    marks = _dicts(capture, "marks", notes)
    stats = [_dict(mark.get("stats")) for mark in marks]
    # torch's counters come without those that are zero: a count that no mark has may be unknown to this torch, and
    # bytes can only be zero where none are allocated
    known = {name for one in stats for name in one}
    for mark_ix, (mark, counters) in enumerate(zip(marks, stats, strict=True)):
        row: Row = {"mark_ix": mark_ix, "stats": json.dumps(counters, sort_keys=True)}
        for column, key in _MARK.items():
            value = mark.get(key)
            row[column] = _text(value) if column == "name" else _integer(value)
            if row[column] is None and (value is not None or column not in _MAY_LACK):
                notes["mark", f"{key} that is {'missing' if value is None else type(value).__name__}"] += 1
        for column, key in _BYTES_FROM_STATS.items():
            row[column] = _integer(counters.get(key, 0 if row["allocated_bytes"] == 0 else None))
        for column, key in _COUNTS_FROM_STATS.items():
            row[column] = _integer(counters.get(key, 0)) if counters and key in known else None
        yield row


def _dicts(capture: Row, key: str, notes: Notes) -> list[Row]:
    """The list of dicts under a key; what is none is left out, and noted."""
    value = capture.get(key)
    if value is not None and not isinstance(value, list):
        notes["capture", f"{key} of type {type(value).__name__}"] += 1
    listed = _list(value)
    found = [cast("Row", one) for one in listed if isinstance(one, dict)]
    if len(found) < len(listed):
        notes["capture", f"{key} that are no objects"] += len(listed) - len(found)
    return found


def _list(value: object) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def _dict(value: object) -> Row:
    return cast("Row", value) if isinstance(value, dict) else {}


def _integer(value: object) -> int | None:
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


def _text(value: object) -> str | None:
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else None


# ------------------------------------------------------------------------------------------------- Parquet


def _read_parquet(path: Path, name: str, key: str, columns: Mapping[str, str]) -> pa.Table:
    """One of the recorder's tables in our columns, numbered by `key`."""
    schema = TABLES[name].schema
    try:
        with pq.ParquetFile(path) as file:
            missing = [source for source in columns.values() if source not in file.schema_arrow.names]
            if missing:
                raise _refused(path, f"lacks the column {missing[0]}")
            if file.metadata.num_rows > _MOST_ROWS:
                raise _refused(path, f"has {file.metadata.num_rows:,} rows, and {_MOST_ROWS:,} are the most")
            table = file.read(list(dict.fromkeys(columns.values())))
            table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _refused(path, f"cannot be read: {error}") from error
    arrays: dict[str, Any] = {key: pa.array(range(len(table)), pa.int64())}
    for column, source in columns.items():
        try:
            arrays[column] = _converted(table[source], schema.field(column))
        except (pa.ArrowException, TypeError) as error:
            wanted = "a list of integers" if column == "shape" else str(schema.field(column).type)
            raise _refused(path, f"has {table[source].type} in the column {source}, not {wanted}") from error
    return pa.table([arrays[column] for column in schema.names], schema=schema)


def _converted(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """A column as the schema has it; lists of integers become JSON text."""
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        if not pa.types.is_integer(column.type.value_type) or field.type != pa.string():
            raise TypeError
        joined = pc.binary_join(column.cast(pa.list_(pa.string())), ", ")
        return cast("pa.ChunkedArray", pc.replace_substring_regex(joined, r"\A(.*)\z", r"[\1]"))
    wanted = pa.types.is_integer if field.type == pa.int64() else _is_text
    if not (wanted(column.type) or pa.types.is_null(column.type)):
        raise TypeError
    return column.cast(field.type)


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _rows(name: str, rows: Iterable[Row]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=TABLES[name].schema)


def _refused(path: Path, what: str) -> RunFolderError:
    return RunFolderError(
        f"{path} {what}".replace("\n", " "), f"use the recording alone: tracekit analyze {snapshot_of(path.parent)}"
    )
