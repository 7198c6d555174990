"""A chart becomes a file: SVG and PNG by vl-convert, Vega-Lite as JSON, or a page that needs no network.

What is drawn belongs to each chart; here are formats only.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import vl_convert

from tracekit.charts import library, theme
from tracekit.charts.chart import Picture, Tables
from tracekit.errors import ChartError

SUFFIXES = (".svg", ".png", ".html", ".json")
"""What a chart can be written as."""


def suffix_of(path: Path) -> str:
    """How a file is to be written, by its name.

    Raises:
        ChartError: where its suffix is none of `SUFFIXES`.
    """
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ChartError(f"{path.name!r} does not say what to write", f"end the name with one of {', '.join(SUFFIXES)}")
    return suffix


_PATH = re.compile(r' (?:d|transform)="[^"]*"')
_DIGITS = re.compile(r"(\.\d\d)\d+")


def _shorter(path: re.Match[str]) -> str:
    """Where a line goes, to a hundredth of a pixel: Vega writes all digits of a double, most of a file's bytes."""
    return _DIGITS.sub(r"\1", path[0])


def spec(chart: Picture, tables: Tables) -> dict[str, Any]:
    """A chart as plain Vega-Lite, its rows under `datasets` by the tables' names; its config is the theme's to add."""
    drawn = outline(chart, tables)
    drawn["datasets"] = {name: table.to_pylist() for name, table in tables.items()}
    return drawn


def outline(chart: Picture, tables: Tables) -> dict[str, Any]:
    """A chart as plain Vega-Lite without a row of data."""
    drawn: dict[str, Any] = chart.draw(tables).to_dict(validate=False)  # the tests validate each chart
    drawn.pop("config", None)
    drawn["description"] = chart.describe(tables)
    return drawn


def render(chart: Picture, tables: Tables, suffix: str, *, dark: bool = False) -> bytes:
    """The bytes of a file of one of `SUFFIXES`."""
    drawn = spec(chart, tables) | {"config": theme.config(dark=dark)}
    if suffix == ".json":
        return (json.dumps(drawn, indent=1, ensure_ascii=False) + "\n").encode()
    if suffix == ".svg":
        return _PATH.sub(_shorter, vl_convert.vegalite_to_svg(drawn)).encode()
    if suffix == ".png":
        return vl_convert.vegalite_to_png(drawn, scale=1.2)
    return _page(chart, drawn).encode()


def script_json(value: object) -> str:
    """JSON that may stand inside a script element: no text in it can end the element or begin another.

    It is plain ASCII: a zero byte, U+2028 or half a surrogate pair comes out as an escape.
    """
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _page(chart: Picture, drawn: dict[str, Any]) -> str:
    title = html.escape(f"{chart.title} - tracekit")
    options = {"actions": False, "renderer": "canvas"}
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        "<style>body{margin:24px;font-family:system-ui,sans-serif;background:"
        f"{drawn['config']['background']}}}</style></head>\n"
        f'<body><div id="chart" role="img" aria-label="{html.escape(drawn["description"])}"></div>\n'
        f'<script type="module">{library.script()}</script>\n'
        f'<script type="module">vegaEmbed("#chart", {script_json(drawn)}, {json.dumps(options)});</script>\n'
        "</body></html>\n"
    )
