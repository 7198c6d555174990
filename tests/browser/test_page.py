"""The page as a person meets it: opened from a disk, looked at, clicked, driven by keys, printed."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests import hostile
from tests.browser.conftest import Open
from tests.conftest import SHARED
from tracekit import report
from tracekit.analysis import open_any

PEAK = 17_882_019_840


def lines(page: Page) -> dict[str, int]:
    """The exact bytes of every line of the ledger that is shown."""
    rows = page.locator(".ledger tr[data-line]:not([hidden])")
    return {
        row.get_attribute("data-line") or "": int(row.locator("data").get_attribute("value") or "")
        for row in rows.all()
    }


def adds_up(shown: dict[str, int]) -> bool:
    parts = sum(count for name, count in shown.items() if name not in ("allocated", "reserved"))
    beside = shown.get("cached", 0) + shown.get("pending_free", 0)
    return parts == shown["reserved"] and parts - beside == shown["allocated"]


def colours(page: Page) -> tuple[dict[str, str], set[str]]:
    """The colour of every bucket's swatch, and which of them are areas of the timeline."""
    swatches: dict[str, str] = page.evaluate(
        """() => Object.fromEntries([...document.querySelectorAll(".ledger tr[data-line] .swatch")].map(
            (one) => [one.closest("tr").dataset.line, getComputedStyle(one).backgroundColor]))"""
    )
    filled: list[str] = page.evaluate(
        """() => [...document.querySelectorAll('[data-chart="timeline"] .mark-area path')].map(
            (one) => getComputedStyle(one).fill)"""
    )
    return swatches, set(filled) & set(swatches.values())


def drag(page: Page, selector: str, begin: float, end: float) -> None:
    """Drag across an element, between two shares of its width."""
    box = page.locator(selector).first.bounding_box()
    assert box
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + begin * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + end * box["width"], middle, steps=8)
    page.mouse.up()


def test_it_reads_as_an_answer(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    assert page.locator("h1").inner_text() == "17,053.6\u00a0MiB at the peak"
    assert "LogSoftmaxBackward0 asked for 1,570.5\u00a0MiB" in page.locator(".story").inner_text()
    shown = lines(page)
    assert shown["allocated"] == PEAK
    assert shown["activation"] == 9_728_237_568
    assert adds_up(shown)


def test_every_number_has_its_exact_bytes(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    numbers = page.locator("data").all()
    assert len(numbers) > 20
    for number in numbers:
        value = int(number.get_attribute("value") or "")
        assert number.get_attribute("title") == f"{value:,} bytes"


def test_each_picture_has_a_question_an_answer_in_words_and_its_rows(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    sections = page.locator("section.chart").all()
    assert sections
    for section in sections:
        assert section.locator("h2").inner_text().endswith("?")
        if not section.locator(".drawing").count():
            assert section.locator(".note").inner_text().startswith("Nothing to draw: ")
            continue
        assert section.locator(".drawing svg").count() == 1
        described = section.locator(".drawing").get_attribute("aria-describedby")
        assert len(page.locator(f"#{described}").inner_text()) > 40
        section.locator("details summary").click()
        section.locator("details tbody tr").first.wait_for()


def test_a_click_on_the_timeline_changes_the_ledger(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    at_peak = lines(page)
    box = page.locator('[data-chart="timeline"] .drawing svg').bounding_box()
    assert box
    page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.6)
    page.wait_for_function("() => !document.querySelector('.moment').textContent.includes('3,815')")
    shown = lines(page)
    assert shown != at_peak
    assert adds_up(shown)
    page.get_by_role("button", name="To the peak").click()
    assert lines(page) == at_peak


def test_every_moment_of_the_slider_adds_up(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    slider = page.locator('[data-control="moment"]')
    last = int(slider.get_attribute("max") or "")
    assert last > 1000
    for index in range(0, last, last // 20):
        slider.fill(str(index))
        assert adds_up(lines(page)), index


def test_a_brush_changes_what_the_detail_shows(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    labels = '[data-chart="timeline"] .role-axis-label text'

    def shown() -> list[int]:
        found = [one.inner_html().replace(",", "") for one in page.locator(labels).all()]
        return [int(one) for one in found if re.fullmatch(r"\d+", one)]

    assert max(shown()) == 7000
    drag(page, '[data-chart="timeline"] .concat_1_group .background', 0.5, 0.6)
    page.wait_for_function(
        "(was) => document.querySelector(was[0]) && ![...document.querySelectorAll(was[0])]"
        ".some((one) => one.textContent === '7,000')",
        arg=[labels],
    )
    assert min(shown()) > 3000
    assert max(shown()) < 5000


def test_slider_and_play_button_move_the_step(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    step = page.locator('[data-chart="step"]')
    slider, play = step.locator('[data-control="step"]'), step.locator('[data-control="play"]')
    step.get_by_text("mark 15: backward").wait_for()
    step.get_by_text("a reading shows 13,912.6 MiB allocated").wait_for()
    slider.fill("3")
    step.get_by_text("mark 3: layer 1").wait_for()
    play.click()
    assert play.inner_text() == "Pause"
    page.wait_for_function("() => Number(document.querySelector('[data-control=step]').value) >= 5")
    play.click()
    assert play.inner_text() == "Play"
    assert int(slider.input_value()) >= 5
    slider.fill("31")
    play.click()
    page.wait_for_function("() => Number(document.querySelector('[data-control=step]').value) < 20")


def test_a_click_on_an_allocation_shows_its_stack(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    drawing = page.locator('[data-chart="allocations"] .drawing')

    def told() -> list[str]:
        return [one for one in drawing.locator(".mark-text text").all_text_contents() if one]

    before = told()
    drawing.locator(".mark-rect path").nth(7).click(force=True)
    page.wait_for_timeout(1000)
    (name,) = [one for one in told() if re.match(r"allocation \d+, ", one)]
    assert name not in before
    assert [one for one in told() if re.search(r"\.py:\d+ |::", one)]


@pytest.mark.parametrize("width", [1400, 400])
def test_it_fits_its_window(opened: Open, sample_page: Path, width: int) -> None:
    page = opened(sample_page, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for drawing in page.locator(".drawing").all() if width > 1000 else []:  # a narrow one scrolls within itself
        assert drawing.evaluate("(one) => one.scrollWidth - one.clientWidth") <= 0


def test_dark_paper_keeps_the_colours_of_the_buckets(opened: Open, sample_page: Path) -> None:
    light = opened(sample_page)
    dark = opened(sample_page, dark=True)
    paper = "getComputedStyle(document.body).backgroundColor"
    assert light.evaluate(paper) != dark.evaluate(paper)
    (light_swatches, light_areas), (dark_swatches, dark_areas) = colours(light), colours(dark)
    for swatches in (light_swatches, dark_swatches):
        swatches.pop("cached")  # what is free is as faint as the paper lets it be
    assert light_swatches == dark_swatches
    assert len(light_areas & dark_areas) >= 6
    dark.locator("#theme").click()
    assert dark.evaluate(paper) == light.evaluate(paper)


def test_the_controls_are_reached_and_driven_by_keys(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    reached: list[str] = []
    name = "(({activeElement: one}) => one.id || one.dataset.control || one.tagName)(document)"
    for _ in range(40):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(name))
    assert reached[:2] == ["theme", "moment"]
    assert {"step", "play", "SUMMARY"} <= set(reached)
    page.locator('[data-control="moment"]').focus()
    before = lines(page)
    page.keyboard.press("ArrowRight")
    assert lines(page) != before


def test_it_prints_on_light_paper_without_its_controls(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page, dark=True)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#theme").is_visible()
    assert not page.locator(".controls").first.is_visible()
    assert page.locator(".ledger table").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_hostile_texts_stay_texts(opened: Open, tmp_path: Path) -> None:
    snapshot = tmp_path / "a<b onclick=x>'\".pickle"
    snapshot.write_bytes(pickle.dumps(hostile.recording(), protocol=4))
    path = tmp_path / "page.html"
    with open_any(snapshot) as warehouse:
        path.write_text(report.html(warehouse, report.name_of(str(snapshot))), encoding="utf-8")
    assert path.stat().st_size < 2_000_000
    page = opened(path)
    assert page.title().startswith(snapshot.name)
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 3
    text = page.inner_text("main")
    assert hostile.MARKUP[:30] in text
    for summary in page.locator("details summary").all():
        summary.click()
    page.mouse.move(700, 700)
    assert page.locator("img").count() == 0
    assert not page.title().startswith("taken")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the shared recordings are not beside the checkout")
@pytest.mark.parametrize(
    "name",
    ["sweep_21_ws8", "small_state", "small_nohistory", "mempool", "small_streams", "small_cudagraph", "small_leak"],
)
def test_other_recordings_are_drawn(opened: Open, tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.html"
    with open_any(SHARED / "captures" / f"{name}.pickle.xz") as warehouse:
        path.write_text(report.html(warehouse, name), encoding="utf-8")
    page = opened(path)
    assert adds_up(lines(page))
