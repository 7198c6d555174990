"""The stacks as a person looks into them: a click makes a frame as wide as the picture, a double click goes back."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Locator, Page

from tests.browser.conftest import Open

PIXELS = 12
"""How far what is drawn may be from the edge of the picture."""


def drawing(page: Page) -> Locator:
    return page.locator('[data-chart="flame"] .drawing')


def names(page: Page) -> list[str]:
    """What is written on the frames, in the order of letters."""
    return sorted(one for one in drawing(page).locator(".mark-text text").all_text_contents() if one)


def frames(page: Page) -> dict[str, list[float]]:
    """Widths of the frames, by the frame that each is of."""
    drawn: list[tuple[str, float]] = page.evaluate(
        """() => [...document.querySelectorAll('[data-chart="flame"] .drawing .mark-rect path')].map(
            (one) => [one.__data__.datum.frame, one.getBoundingClientRect().width])"""
    )
    found: dict[str, list[float]] = {}
    for frame, width in drawn:
        found.setdefault(frame, []).append(width)
    return {frame: sorted(widths) for frame, widths in found.items()}


def click(page: Page, frame: str, *, times: int = 1) -> None:
    """Click in the middle of a frame: once on it, or twice to go back."""
    page.mouse.move(0, 0)
    middle: dict[str, float] = page.evaluate(
        """(name) => {
            const one = [...document.querySelectorAll('[data-chart="flame"] .drawing .mark-rect path')].find(
                (one) => one.__data__.datum.frame === name);
            one.scrollIntoView({ block: "center" });
            const box = one.getBoundingClientRect();
            return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
        }""",
        frame,
    )
    page.mouse.click(middle["x"], middle["y"], click_count=times)
    page.wait_for_timeout(500)


def test_python_frames_lead_to_operators(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    told = frames(page)
    assert {"all that is held", "LogSoftmaxBackward0", "addmm"} <= told.keys()
    assert any(re.search(r"gpt2\.py:\d+ forward", frame) for frame in told)
    # what C++ did is folded into who asked, and torch's way of calling a module is left out
    assert [frame for frame in told if "::" in frame or "_call_impl" in frame] == []


def test_a_click_looks_into_a_frame_and_a_double_click_goes_back(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    before, shown = frames(page), names(page)
    (whole,) = before["all that is held"]
    (narrow,) = before["NllLossBackward0"]
    assert narrow < whole / 4
    click(page, "NllLossBackward0")
    inside = frames(page)
    # the frame is as wide as the picture, what it was called by stays above it, and its neighbours are gone
    assert abs(inside["NllLossBackward0"][0] - whole) < PIXELS
    assert abs(inside["all that is held"][0] - whole) < PIXELS
    assert "LogSoftmaxBackward0" not in inside
    assert names(page) != shown
    click(page, "NllLossBackward0", times=2)
    assert (frames(page), names(page)) == (before, shown)
    # and so does a click on the whole, which is always there
    click(page, "NllLossBackward0")
    assert frames(page) != before
    click(page, "all that is held")
    assert (frames(page), names(page)) == (before, shown)


def test_a_name_is_cut_where_its_frame_ends(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    right = drawing(page).locator("svg").bounding_box()
    assert right
    for text in drawing(page).locator(".mark-text text").all():
        if (text.text_content() or "").strip():
            box = text.bounding_box()
            assert box
            assert box["x"] + box["width"] <= right["x"] + right["width"]
    told = frames(page)
    for name in names(page):
        if name.endswith("…"):
            full = [frame for frame in told if re.sub(r"^.*/", "", frame).startswith(name[:-1])]
            assert full, name
