"""One file to write, whole or not at all, and never over another unasked.

Only the standard library and the errors are imported here.
"""

from __future__ import annotations

import os
from pathlib import Path

from tracekit.errors import OutputError


def refuse_existing_file(path: Path, *, force: bool) -> None:
    """Say before the work begins that a file is in the way.

    Raises:
        OutputError: where it is, or where its folder is not there.
    """
    if path.is_dir():
        raise OutputError(f"{path} is a folder", "name a file with -o")
    if path.exists() and not force:
        raise OutputError(f"{path} exists already", "give --force to replace it, or another file with -o")
    if not path.parent.is_dir():
        raise OutputError(f"there is no folder {path.parent}", "make it, or choose another file with -o")


def write_file(path: Path, content: bytes, *, force: bool) -> None:
    """Write a file under a temporary name beside it, then give it its own.

    Raises:
        OutputError: where it is in the way or cannot be written.
    """
    refuse_existing_file(path, force=force)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}", "choose another file with -o") from error
    finally:
        partial.unlink(missing_ok=True)
