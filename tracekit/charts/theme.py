"""Colours and type, the same in every chart: a bucket has one colour, by its name, on light and on dark paper.

No chart and no number is known here.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import altair as alt

BUCKET_COLOURS = {
    "parameter": "#47729c",
    "buffer": "#2899eb",
    "gradient": "#d55e00",
    "gradient_in_flight": "#ab795e",
    "optimizer_state": "#6a4fc5",
    "optimizer_temporary": "#a088d2",
    "activation": "#009e73",
    "logits_and_loss": "#cc79a7",
    "forward_temporary": "#6fa246",
    "backward_temporary": "#9a5500",
    "autocast_cast": "#3e8a90",
    "weight_copy": "#845ce8",
    "library_workspace": "#795f4e",
    "communication": "#b72972",
    "kv_cache": "#00a59d",
    "input": "#81872a",
    "autotune": "#6c652e",
    "before_recording": "#717a81",
    "unattributed": "#e86870",
    "block_slack": "#7e7841",
    "pending_free": "#8295ad",
    "cached": "rgba(140, 150, 162, 0.3)",
}
"""A colour for every built-in bucket, the same on light and on dark paper: families of hue (the model blue, gradients
orange, the optimizer violet, what the forward leaves green), each at least 3:1 against both papers, but for what is
free. Neighbours in a stack differ in lightness or chroma too, so that they stay apart for a reader without one kind of
cone: how far is asserted in tests/charts/test_theme.py, where a new colour is to be tried."""

_BESIDE = {"several": "#5b6673"}
"""What is no bucket and stands among them."""

FURTHER = ("#117733", "#a8842c", "#aa4499", "#4a93c7", "#9a5a4a", "#7a77c9")
"""For buckets of the user's own: which one is told by the name, so that it is the same in every chart."""

FRAME_OPACITY = 0.55
"""How much of its colour a frame with a name on it has, so that the name is read."""

VERDICT_COLOURS = {
    "grows": "#d55e00",
    "bursts": "#9c543c",
    "varies": "#8484fc",
    "settles": "#009e73",
    "shrinks": "#0072b2",
    "stays": "#8a929c",
    "too few moments": "#8a929c",
    "the rest": "#5b6673",
}
"""What the view growth says of a line, which is no bucket; chosen as the buckets' colours are."""

PEAK_COLOURS = {"reserved": "#d55e00", "allocated": "#0072b2"}
"""The two peaks of a run, against each other."""

PHASE_COLOURS = {
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

INK = {False: "#1b1f24", True: "#e6e8eb"}
_FAINT = {False: "#d8dce1", True: "#3a4048"}
_QUIET = {False: "#5b636d", True: "#a2aab4"}
PAPER = {False: "#ffffff", True: "#14171b"}
"""Background by whether the page is dark."""

_FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', Arial, sans-serif"


def colour(bucket: str) -> str:
    """The one colour of a bucket."""
    return BUCKET_COLOURS.get(bucket) or _BESIDE.get(bucket) or FURTHER[zlib.crc32(bucket.encode()) % len(FURTHER)]


def bucket_scale(buckets: Sequence[str]) -> alt.Scale:
    """The scale from these buckets, in their order, to their colours."""
    return alt.Scale(domain=list(buckets), range=[colour(bucket) for bucket in buckets])


def phase_scale() -> alt.Scale:
    """The scale from phases to their tints."""
    return alt.Scale(domain=list(PHASE_COLOURS), range=list(PHASE_COLOURS.values()))


def config(*, dark: bool) -> dict[str, Any]:
    """Vega-Lite's config: everything that paper changes, so that a chart itself is the same on both.

    Styles that charts name: `peak` and `oom` (marks that stand out), `quiet` (secondary lines and text), `blank` (what
    is free), `edge` (the outline between neighbours).
    """
    ink, faint, quiet, paper = INK[dark], _FAINT[dark], _QUIET[dark], PAPER[dark]
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
            "symbolBaseFillColor": ink,
            "symbolBaseStrokeColor": ink,
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
            "on_band": {"color": INK[False]},
            "on_colour": {"color": ink},
            "blank": {"fill": paper, "stroke": quiet},
            "edge": {"stroke": paper},
            "frame": {"filled": False, "color": quiet, "strokeWidth": 0.8},
            "asked": {"filled": False, "color": "#d00000" if not dark else "#ff7b72", "strokeWidth": 1.5},
        },
    }
