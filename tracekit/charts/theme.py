"""Colours and type, the same in every chart: a bucket has one colour, by its name, on light and on dark paper.

No chart and no number is known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import altair as alt

BUCKET_COLOURS = {
    "parameter": "#0b5394",
    "buffer": "#56b4e9",
    "gradient": "#d55e00",
    "gradient_in_flight": "#f2a477",
    "optimizer_state": "#332288",
    "optimizer_temporary": "#9a8fd0",
    "activation": "#009e73",
    "logits_and_loss": "#cc79a7",
    "forward_temporary": "#8fd19e",
    "backward_temporary": "#e69f00",
    "autocast_cast": "#7fcdbb",
    "library_workspace": "#7a5230",
    "communication": "#882255",
    "kv_cache": "#44aa99",
    "input": "#f0e442",
    "autotune": "#999933",
    "before_recording": "#8a8a8a",
    "unattributed": "#ff5a5f",
    "block_slack": "#c9b79c",
    "pending_free": "#b5b5b5",
    "cached": "rgba(140, 150, 162, 0.3)",
}
"""A colour for every built-in bucket: families of hue (the model blue, gradients orange, what the forward saves green)
whose members differ in lightness, so that they stay apart for a reader who does not tell red from green."""

_BESIDE = {"several": "#6f7680"}
"""What is no bucket and stands among them."""

_FURTHER = ("#117733", "#ddcc77", "#aa4499", "#88ccee", "#661100", "#6699cc")
"""For buckets of the user's own: which one is told by the name, so that it is the same in every chart."""

_PHASE_COLOURS = {
    "load": "#b8c4cf",
    "data": "#d9d2c0",
    "forward": "#a9cfe8",
    "backward": "#f3c7a5",
    "optimizer": "#c9c2e3",
    "zero_grad": "#bfe0cb",
    "other": "#cfcfcf",
    "several": "#9aa2ab",
}
"""Tints for phases, which are no bucket: light enough for dark letters on them."""

_INK = {False: "#1b1f24", True: "#e6e8eb"}
_FAINT = {False: "#d8dce1", True: "#3a4048"}
_QUIET = {False: "#5b636d", True: "#a2aab4"}
PAPER = {False: "#ffffff", True: "#14171b"}
"""Background by whether the page is dark."""

_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


def colour(bucket: str) -> str:
    """The one colour of a bucket."""
    return BUCKET_COLOURS.get(bucket) or _BESIDE.get(bucket) or _FURTHER[zlib.crc32(bucket.encode()) % len(_FURTHER)]


def bucket_scale(buckets: Sequence[str]) -> alt.Scale:
    """The scale from these buckets, in their order, to their colours."""
    return alt.Scale(domain=list(buckets), range=[colour(bucket) for bucket in buckets])


def phase_scale() -> alt.Scale:
    """The scale from phases to their tints."""
    return alt.Scale(domain=list(_PHASE_COLOURS), range=list(_PHASE_COLOURS.values()))


def config(*, dark: bool) -> dict[str, Any]:
    """Vega-Lite's config: everything that paper changes, so that a chart itself is the same on both.

    Styles that charts name: `peak` and `oom` (marks that stand out), `quiet` (secondary lines and text), `blank` (what
    is free), `edge` (the outline between neighbours).
    """
    ink, faint, quiet, paper = _INK[dark], _FAINT[dark], _QUIET[dark], PAPER[dark]
    return {
        "background": paper,
        "font": _FONT,
        "view": {"stroke": None},
        "title": {
            "anchor": "start",
            "color": ink,
            "fontSize": 15,
            "subtitleColor": quiet,
            "subtitleFontSize": 12,
            "subtitlePadding": 4,
            "offset": 12,
        },
        "axis": {
            "domainColor": faint,
            "gridColor": faint,
            "gridOpacity": 0.6,
            "tickColor": faint,
            "labelColor": quiet,
            "labelFontSize": 11,
            "titleColor": quiet,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
        },
        "legend": {
            "labelColor": ink,
            "labelFontSize": 11,
            "titleColor": quiet,
            "titleFontSize": 11,
            "titleFontWeight": "normal",
            "symbolType": "square",
        },
        "header": {"labelColor": ink, "titleColor": quiet},
        "text": {"color": ink, "fontSize": 11},
        "rule": {"color": ink},
        "line": {"color": ink},
        "tick": {"color": ink},
        "point": {"color": ink, "filled": True},
        "style": {
            "peak": {"color": "#d00000" if not dark else "#ff7b72", "fontWeight": "bold"},
            "oom": {"color": "#d00000" if not dark else "#ff7b72", "fontWeight": "bold"},
            "quiet": {"color": quiet},
            "missed": {"color": "#d00000" if not dark else "#ff7b72", "fillOpacity": 0.16},
            "on_band": {"color": _INK[False]},
            "on_colour": {"color": ink},
            "blank": {"fill": paper, "stroke": quiet},
            "edge": {"stroke": paper},
            "frame": {"filled": False, "color": quiet, "strokeWidth": 0.8},
            "asked": {"filled": False, "color": "#d00000" if not dark else "#ff7b72", "strokeWidth": 1.5},
        },
    }
