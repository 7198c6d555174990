"""Where the files that travel with the package lie: the SQL under queries/ and the scripts under capture/.

Only the standard library may be imported here; what is in those files is for their readers to know.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `name`: inside the installed package, or else in the checkout the package is imported from.

    Raises:
        FileNotFoundError: where neither exists, which means a broken installation.
    """
    for candidate in (_PACKAGE / "_shipped" / name, _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"the folder {name!r} is missing from this installation of tracekit")
