"""The palette, for every eye: on both papers each colour is seen, and what lies side by side is told apart.

Judged by published formulas (tests/colour.py), with each kind of cone missing in turn.
"""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from tests import colour
from tracekit.charts import theme
from tracekit.warehouse import Warehouse

GRAPHICS, TEXT = 3.0, 4.5
"""Least contrast of what must be seen and of what must be read: WCAG 2.2, 1.4.11 and 1.4.3."""

BUCKETS = [name for name in theme.BUCKET_COLOURS if name != "cached"]
"""All but what is free: that is as faint as its paper lets it be, under the line of what is reserved."""

MOST = (
    "parameter",
    "gradient",
    "optimizer_state",
    "activation",
    "logits_and_loss",
    "forward_temporary",
    "backward_temporary",
    "library_workspace",
    "input",
    "before_recording",
    "unattributed",
    "block_slack",
)
"""Buckets that nearly every recording has, or that fill one which lost its beginning."""

both_papers = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])


def least(one: str, other: str) -> float:
    """How far two colours are apart for whom they are nearest."""
    return min(colour.apart(one, other).values())


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, -1.0, 2.0), (50.0, 0.0, 0.0), 2.3669),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_yardstick_gives_published_values(
    one: tuple[float, float, float], other: tuple[float, float, float], apart: float
) -> None:
    """Rows of the test data of Sharma, Wu and Dalal."""
    assert colour.difference(one, other) == pytest.approx(apart, abs=1e-4)


def test_the_yardstick_knows_what_eyes_confuse() -> None:
    assert colour.contrast("#000000", "#ffffff") == 21
    assert colour.lab(colour.linear("#ffffff")) == pytest.approx((100, 0, 0), abs=0.01)
    # white stays white for everyone
    for vision in colour.VISIONS:
        assert colour.seen((1, 1, 1), vision) == pytest.approx((1, 1, 1), abs=1e-5)
    # red and a green of its lightness: one colour without red or green cones, two for everybody else
    red_green = colour.apart("#b85450", "#787828")
    assert red_green["deuteranopia"] < red_green["usual"] / 3
    assert colour.apart("#3c82f0", "#149696")["tritanopia"] < colour.apart("#3c82f0", "#149696")["usual"] / 2


@both_papers
def test_every_colour_is_seen_on_its_paper(dark: bool) -> None:
    shown = {
        **{name: theme.colour(name) for name in [*BUCKETS, "several"]},
        **theme.VERDICT_COLOURS,
        **theme.PEAK_COLOURS,
        **{f"further {index}": one for index, one in enumerate(theme.FURTHER)},
        **{name: style["color"] for name, style in theme.config(dark=dark)["style"].items() if name in ("peak", "oom")},
    }
    faint = {name: one for name, one in shown.items() if colour.contrast(one, theme.PAPER[dark]) < GRAPHICS}
    assert faint == {}


@both_papers
def test_letters_are_read(dark: bool) -> None:
    config, paper = theme.config(dark=dark), theme.PAPER[dark]
    letters = {config[part]["color"] for part in ("title", "text")} | {
        config["title"]["subtitleColor"],
        config["axis"]["labelColor"],
        config["legend"]["labelColor"],
        config["style"]["peak"]["color"],
    }
    assert {one for one in letters if colour.contrast(one, paper) < TEXT} == set()
    on_band = config["style"]["on_band"]["color"]
    assert {name for name, one in theme.PHASE_COLOURS.items() if colour.contrast(one, on_band) < TEXT} == set()


@both_papers
def test_names_on_frames_are_read(dark: bool) -> None:
    """A frame of the flame lets its paper through, and its name is written in ink."""
    for name in [*BUCKETS, "several"]:
        frame = colour.mixed(theme.colour(name), theme.PAPER[dark], theme.FRAME_OPACITY)
        assert colour.contrast(frame, theme.INK[dark]) >= TEXT, name


def test_legends_of_shapes_are_seen_on_dark_paper() -> None:
    for dark in (False, True):
        legend = theme.config(dark=dark)["legend"]
        for name in ("symbolBaseFillColor", "symbolBaseStrokeColor"):
            assert colour.contrast(legend[name], theme.PAPER[dark]) >= TEXT


@pytest.mark.parametrize(("places", "apart"), [(1, 12.0), (2, 8.5), (3, 6.5)])
def test_neighbours_in_a_stack_are_told_apart(places: int, apart: float, sample: Warehouse) -> None:
    """In the ledger's order, which is that of every stack; also where the buckets between two hold nothing."""
    order = [row["bucket"] for row in sample.rows("select bucket from bucket order by bucket_order")]
    stacked = [name for name in order if name != "cached"]
    assert stacked == BUCKETS
    near = {pair: least(*map(theme.colour, pair)) for pair in zip(stacked, stacked[places:], strict=False)}
    assert {pair: value for pair, value in near.items() if value < apart} == {}


def test_what_nearly_every_recording_has_is_told_apart() -> None:
    side_by_side = {pair: least(*map(theme.colour, pair)) for pair in pairwise(MOST)}
    assert {pair: value for pair, value in side_by_side.items() if value < 12} == {}
    # a batch of data is thin: these lie on each other in most recordings
    assert least(theme.colour("library_workspace"), theme.colour("block_slack")) >= 10
    any_two = {pair: least(*map(theme.colour, pair)) for pair in combinations(MOST, 2)}
    assert {pair: value for pair, value in any_two.items() if value < 5.5} == {}


def test_any_two_buckets_differ_and_several_from_each() -> None:
    any_two = {pair: least(*map(theme.colour, pair)) for pair in combinations(BUCKETS, 2)}
    assert {pair: value for pair, value in any_two.items() if value < 3.5} == {}
    beside = {name: least(theme.colour(name), theme.colour("several")) for name in BUCKETS}
    assert {name: value for name, value in beside.items() if value < 7.5} == {}


def test_verdicts_and_peaks_are_told_apart() -> None:
    for colours in (theme.VERDICT_COLOURS, theme.PEAK_COLOURS):
        any_two = {pair: least(*pair) for pair in combinations(dict.fromkeys(colours.values()), 2)}
        assert {pair: value for pair, value in any_two.items() if value < 12} == {}
