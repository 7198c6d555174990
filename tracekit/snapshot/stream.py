"""From what a person gives (a path, `-`, an open file) to the plain bytes of one pickle or JSON text, in memory.

Knows files, compressions and limits; what the bytes mean belongs to `plain` and `shape`.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import re
import sys
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from tracekit.errors import SnapshotError
from tracekit.snapshot.words import RECORD, a, shown
from tracekit.units import GIB, KIB, MIB, format_mib, parse_bytes

Compression = Literal["gzip", "xz", "zstd", "bz2"]
Serialization = Literal["pickle", "json"]

LIMIT_VARIABLE = "TRACEKIT_READ_LIMIT"
"""The environment variable that raises or lowers the number of bytes read, written like 64GiB."""

_CHUNK = 1 * MIB

# A snapshot's addresses and times do not repeat: the most regular ones compress about 40 times. A file that unfolds a
# thousand times is something else; small ones are let through, whatever they unfold to.
_MOST_UNFOLDED = 1000
_ALWAYS_ALLOWED = 64 * MIB

_COMPRESSIONS: dict[bytes, Compression] = {
    b"\x1f\x8b": "gzip",
    b"\xfd7zXZ\x00": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
}

# A pickle of protocol 2 or later announces itself. The older ones begin with a list, a dict or a mark - or, where
# somebody wrote a program instead of data, with a name of two lines, which is let in here to be refused by that name.
_PICKLE = re.compile(rb"\x80|[(\]}]|c[^\n]{1,200}\n[^\n]{1,200}\n")
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?[ \t\r\n]*[\[{]")
_BINARY = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # no text has these

_CHECKPOINT = (
    "seems to be a checkpoint written by torch.save, not a snapshot",
    f"{RECORD}; a snapshot kept with torch.save must be loaded with torch and written again with pickle.dump",
)
_OTHER_FILES: list[tuple[bytes, tuple[str, str]]] = [
    (rb"PK\x03\x04", _CHECKPOINT),
    (rb"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19\.", _CHECKPOINT),
    (rb"\x89PNG|\xff\xd8\xff|GIF8", ("seems to be a picture", RECORD)),
    (rb"%PDF", ("seems to be a PDF document", RECORD)),
    (
        rb"PAR1",
        ("seems to be a Parquet file", f"{RECORD}; a dataset is opened by its folder, not by one of its files"),
    ),
    (rb"\x7fELF|MZ", ("seems to be a program", RECORD)),
    (rb"\x93NUMPY", ("seems to be a NumPy array", RECORD)),
    (
        rb"\s*<",
        ("seems to be an HTML or XML page", "give the pickle that the page was made from, or the file behind the link"),
    ),
    (rb"version https://git-lfs", ("is a Git LFS pointer, not the file itself", "fetch it with git lfs pull")),
    (
        rb"7z\xbc\xaf|Rar!|\x04\x22M\x18|\x1f\x9d",
        ("is packed in a way not read here", "unpack it and give what was in it"),
    ),
    (rb"\x00", ("begins with a zero byte, as a copy that never finished does", "copy it again, or record again")),
]


@dataclass(slots=True)
class Content:
    """Plain bytes, and what was given to get them."""

    data: io.BytesIO
    serialization: Serialization
    byte_count: int
    sha256: str
    compression: Compression | None


def name_of(source: str | os.PathLike[str] | BinaryIO) -> str:
    """The base name of a file, or `-` where there is none."""
    if isinstance(source, (str, os.PathLike)):
        return shown(Path(source).name) or "."
    name: object = getattr(source, "name", None)  # sys.stdin's is <stdin>, a pipe's a number
    return shown(Path(name).name) if isinstance(name, str) and not name.startswith("<") else "-"


def read(source: str | os.PathLike[str] | BinaryIO, limit_bytes: int | None = None) -> Content:
    """Read everything, decompressed where the first bytes are a compression's.

    Args:
        source: a path, `-` for standard input, or a file open for reading bytes, which stays open.
        limit_bytes: the most bytes to hold, after decompression; `default_limit()` where not given.

    Raises:
        SnapshotError: where it cannot be opened or decompressed, is too large, or begins like nothing known here.
    """
    limit = default_limit() if limit_bytes is None else limit_bytes
    try:
        with _opened(source) as file:
            return _read(file, limit)
    except EOFError:
        raise SnapshotError(
            "is cut off: the compressed data ends too early", "copy it again; the dump or the copy did not finish"
        ) from None
    except FileNotFoundError:
        raise SnapshotError("there is no such file", "check the path") from None
    except IsADirectoryError:
        raise SnapshotError("is a folder, not a snapshot", "give a snapshot file inside it") from None
    except PermissionError:
        raise SnapshotError("may not be read by this user", "change its permissions, or copy it") from None
    except (OSError, lzma.LZMAError, zlib.error, ValueError, NotImplementedError) as error:
        why = getattr(error, "strerror", None) or str(error)  # without the path, which is in front already
        raise SnapshotError(f"cannot be read: {shown(why)}", "copy it again; it may be damaged or cut off") from None


def default_limit() -> int:
    """The most bytes read where the caller does not say: `TRACEKIT_READ_LIMIT`, else a quarter of the memory.

    The objects take about five times the bytes of their pickle, so what is larger would not fit anyway.

    Raises:
        SnapshotError: where the variable is set to something that is not a size.
    """
    text = os.environ.get(LIMIT_VARIABLE)
    if text:
        try:
            return parse_bytes(text)
        except ValueError as error:
            raise SnapshotError(f"{LIMIT_VARIABLE}: {error}", "correct the variable, or unset it") from None
    try:
        return max(1 * GIB, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4)
    except (AttributeError, OSError, ValueError):  # Windows has no sysconf
        return 4 * GIB


@contextmanager
def _opened(source: str | os.PathLike[str] | BinaryIO) -> Generator[BinaryIO]:
    if not isinstance(source, (str, os.PathLike)):
        yield source
    elif os.fspath(source) == "-":
        yield sys.stdin.buffer
    else:
        with Path(source).open("rb", buffering=0) as file:
            yield cast(BinaryIO, file)


class _Counted(io.RawIOBase):
    """A file read once, front to back, counted and hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.count = 0
        self.hash = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        filled = 0
        while filled < len(buffer):  # a pipe gives less than asked, and the first bytes must be seen together
            chunk = cast(object, self._file.read(len(buffer) - filled))
            if not isinstance(chunk, bytes):
                raise SnapshotError(f"reading it gives {a(chunk)}, not bytes", "open the file with mode 'rb'")
            if not chunk:
                break
            buffer[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            self.hash.update(chunk)
        self.count += filled
        return filled


def _read(file: BinaryIO, limit: int) -> Content:
    given = _Counted(file)
    front = io.BufferedReader(given, _CHUNK)
    head = front.peek(8)
    compression: Compression | None = next(
        (_COMPRESSIONS[magic] for magic in _COMPRESSIONS if head.startswith(magic)), None
    )
    plain = cast(BinaryIO, front) if compression is None else _decompressed(cast(BinaryIO, front), compression)
    data = io.BytesIO()
    serialization: Serialization | None = None
    while chunk := plain.read(_CHUNK):
        serialization = serialization or _recognised(chunk)
        data.write(chunk)
        _refuse_endless(data.tell(), given.count if compression else None, limit)
    if serialization is None:
        raise SnapshotError(
            "is empty (0 bytes)" if compression is None else "is empty once decompressed",
            "record again: the dump was killed, or the disk was full, before anything was written",
        )
    while front.read(_CHUNK):  # what some decompressors leave unread belongs to the hash too
        _refuse_endless(given.count, None, limit)
    return Content(data, serialization, given.count, given.hash.hexdigest(), compression)


def _decompressed(file: BinaryIO, compression: Compression) -> BinaryIO:
    if compression == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=file))
    if compression == "xz":
        return cast(BinaryIO, lzma.LZMAFile(file))
    if compression == "bz2":
        return cast(BinaryIO, bz2.BZ2File(file))
    import pyarrow as pa  # the standard library learns zstd in 3.14; only such a file pays for the import

    return cast(BinaryIO, pa.input_stream(cast(io.BufferedReader, file), compression="zstd"))


def _refuse_endless(byte_count: int, compressed_count: int | None, limit: int) -> None:
    if byte_count > limit:
        raise SnapshotError(
            f"holds more than {format_mib(limit)} MiB, the most that is read on this machine",
            f"set {LIMIT_VARIABLE}, for example to {2 * limit // GIB + 1}GiB, if there is memory for five times that",
        )
    if compressed_count is not None and byte_count > max(_ALWAYS_ALLOWED, _MOST_UNFOLDED * compressed_count):
        raise SnapshotError(
            f"unfolds to more than {_MOST_UNFOLDED} times its {compressed_count // KIB:,} KiB, as no snapshot does",
            "if you trust it, decompress it yourself and give the plain file",
        )


def _recognised(head: bytes) -> Serialization:
    for pattern, (problem, remedy) in _OTHER_FILES:
        if re.match(pattern, head):
            raise SnapshotError(problem, remedy)
    if any(map(head.startswith, _COMPRESSIONS)):
        raise SnapshotError("is compressed twice, and one level is undone here", "decompress it once yourself")
    if _PICKLE.match(head):
        return "pickle"
    if _JSON.match(head):
        return "json"
    seems = "some other kind of file" if _BINARY.search(head) else "text"
    raise SnapshotError(f"is neither a pickle nor JSON, but seems to be {seems}", RECORD)
