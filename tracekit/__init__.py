"""The package's front door: the version and, lazily, `open`.

Nothing heavy may be imported here, so that `import tracekit.recorder` in a training script costs nothing.
"""

from __future__ import annotations

from os import PathLike, fspath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.warehouse import Warehouse

__version__ = "0.1.0"


def open(source: str | PathLike[str]) -> Warehouse:  # noqa: A001 - tracekit.open(path), as one says it
    """Open a dataset, or a snapshot as if it were one, and ask it for Arrow tables.

    Args:
        source: a dataset's folder, or a snapshot file of any kind that `tracekit analyze` takes.

    Returns:
        The database of its tables and views: `.table("ledger")`, `.sql("select ...")`, `.views`.

    Raises:
        tracekit.errors.TracekitError: where it is neither, with what to do.
    """
    from tracekit.analysis import open_any

    return open_any(fspath(source))
