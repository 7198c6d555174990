"""Bytes become a `Snapshot`: every way of storing one, every torch release, one shape; or a refusal in one sentence.

The only place that unpickles. What the data means is said by later rooms; nothing is computed or written here.

`stream` knows files and compressions, `plain` knows pickle and JSON, `shape` knows what torch writes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from tracekit.collector import paused
from tracekit.errors import SnapshotError
from tracekit.snapshot import plain, shape, stream
from tracekit.snapshot.shape import Allowance

__all__ = ["Allowance", "Snapshot", "Source", "read_snapshot"]


@dataclass(frozen=True, slots=True)
class Source:
    """What was given: enough to know the file again, and nothing about where it lay.

    Attributes:
        name: the file's base name, `-` for standard input or a nameless stream.
        byte_count: bytes as given, before decompression.
        sha256: of those bytes.
        compression: how they were compressed, None where they were not.
        serialization: what they held.
        pickle_protocol: None for JSON; 0 stands for protocols 0 and 1, which do not say.
        layout: "dict" since torch 2.0, "list" for a bare list of segments.
    """

    name: str
    byte_count: int
    sha256: str
    compression: stream.Compression | None
    serialization: stream.Serialization
    pickle_protocol: int | None
    layout: Literal["dict", "list"]


@dataclass(slots=True)
class Snapshot:
    """A memory snapshot in the shape that torch 2.11 gives it, whichever release wrote it.

    Every key stands as it was found, also the unknown ones. Added where an older release leaves them out:
    - a block's `address`, by summing sizes from the segment's; torch 2.0 and earlier;
    - a block's `requested_size` and `frames`, from the newest of its `history`, unless it is inactive; the same;
    - `frames` of a segment or block of which nothing is known: the empty list, as torch writes since 2.1.
    Trace entries are untouched, and lists of frames are the very objects that the file shares: `id()` tells two apart.

    Attributes:
        segments: of every device, each with its `blocks`; `segment_pool_id` is a tuple where there is one.
        device_traces: the entries of each device, oldest first; empty where the file has none.
        external_annotations: the record_function marks; empty where the file has none.
        allocator_settings: None where the file does not say.
        host_segments: of pinned host memory; None where the file does not say.
        host_traces: the same for its trace.
        extra: top-level keys of no known meaning.
        source: what was read.
    """

    segments: list[dict[str, Any]]
    device_traces: list[list[dict[str, Any]]]
    external_annotations: list[dict[str, Any]]
    allocator_settings: dict[str, Any] | None
    host_segments: list[Any] | None
    host_traces: list[Any] | None
    extra: dict[str, Any]
    source: Source


def read_snapshot(source: str | os.PathLike[str] | BinaryIO, *, limit_bytes: int | None = None) -> Snapshot:
    """Read a snapshot: a pickle or JSON, plain or compressed with gzip, xz, zstd or bz2, told apart by content.

    No object that a pickle names is ever built, and neither time nor memory grows faster than the file.

    Args:
        source: a path, `-` for standard input, or a file open for reading bytes, which stays open.
        limit_bytes: the most bytes to read, after decompression. Where not given, the environment variable
            TRACEKIT_READ_LIMIT says, else it is a quarter of the machine's memory.

    Raises:
        SnapshotError: where there is nothing to read, or what is read is no snapshot or not a whole one.
    """
    name = stream.name_of(source)
    try:
        with paused():
            content = stream.read(source, limit_bytes)
            allowance = Allowance(content.data.tell())
            if content.serialization == "json":
                raw, protocol = plain.load_json(content.data), None
            else:
                raw, protocol = plain.load_pickle(content.data)
            parts = shape.parts_of(raw, allowance)
    except MemoryError:
        raise SnapshotError(f"{name}: does not fit into memory", "read it on a machine with more memory") from None
    except SnapshotError as error:
        raise SnapshotError(f"{name}: {error.problem}", error.remedy) from None
    return Snapshot(
        segments=parts.segments,
        device_traces=parts.device_traces,
        external_annotations=parts.external_annotations,
        allocator_settings=parts.allocator_settings,
        host_segments=parts.host_segments,
        host_traces=parts.host_traces,
        extra=parts.extra,
        source=Source(
            name=name,
            byte_count=content.byte_count,
            sha256=content.sha256,
            compression=content.compression,
            serialization=content.serialization,
            pickle_protocol=protocol,
            layout="list" if isinstance(raw, list) else "dict",
        ),
    )
