"""The JavaScript that draws: Vega, Vega-Lite and Vega-Embed as one file, out of the package vl-convert.

No page is known here. Making the file takes seconds, so it is kept in the user's cache.
"""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

from tracekit.analysis import cache_folder

_SNIPPET = "window.vegaEmbed = vegaEmbed;"


def script() -> str:
    """The library as one script, which leaves `vegaEmbed` behind; three-clause BSD, see https://vega.github.io."""
    import vl_convert

    kept = cache_folder() / f"vega-embed-of-vl-convert-{version('vl-convert-python')}.js"
    try:
        return kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        made: str = vl_convert.javascript_bundle(_SNIPPET)
        _keep(kept, made)
        return made


def _keep(path: Path, text: str) -> None:
    """Leave a file for the next time, whole or not at all; without room for a cache, nothing is left."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(partial).replace(path)
    except OSError:
        return
