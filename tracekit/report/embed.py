"""What goes into the page besides words: data that no script element can be broken out of, and who may run.

No recording is opened here, and no markup is written.
"""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tracekit.terminal import brief


def columns(table: pa.Table) -> dict[str, Any]:
    """A table by columns, as page.js reads it: a repeated value is written once, and so is each distinct text.

    Returns:
        `length`, and `columns` by name, each `{"all": value}`, `{"words": [...], "index": [...]}` or
        `{"values": [...]}`.
    """
    return {
        "length": len(table),
        "columns": {
            name: _column(_safe(table.column(index).to_pylist())) for index, name in enumerate(table.column_names)
        },
    }


def _column(values: list[Any]) -> dict[str, Any]:
    if values and all(value == values[0] for value in values):
        return {"all": values[0]}
    if any(isinstance(value, str) for value in values):
        words = list(dict.fromkeys(values))
        places = {word: index for index, word in enumerate(words)}
        return {"words": words, "index": [places[value] for value in values]}
    return {"values": values}


def _safe(value: Any) -> Any:
    """A value with every text in it made short."""
    if isinstance(value, str):
        return brief(value)
    if isinstance(value, list):
        return [_safe(one) for one in value]
    if isinstance(value, dict):
        return {key: _safe(one) for key, one in value.items()}
    return value


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy under which these scripts run and nothing else does, nor is anything fetched."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
