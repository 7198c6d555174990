"""The page as a person meets it: opened from a disk, looked at, clicked, driven by keys, printed."""

from __future__ import annotations

import json
import pickle
import re
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Page

from tests import hostile
from tests.browser.conftest import Open
from tests.conftest import SHARED
from tracekit import report
from tracekit.analysis import open_any

PEAK = 17_882_019_840

OVERVIEW = ".overview_group .background"
DETAIL = ".detail_group .background"

AXIS = """[...document.querySelectorAll(".detail_group .role-axis-label text")]
    .map((one) => one.textContent.replaceAll(",", "")).filter((one) => /^\\d+$/.test(one)).map(Number)"""
"""The numbers below the detail."""


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


def box_of(page: Page, selector: str) -> FloatRect:
    """Where the first element of a selector is in the window, into which it is scrolled."""
    page.locator(selector).first.scroll_into_view_if_needed()
    box = page.locator(selector).first.bounding_box()
    assert box
    return box


def click(page: Page, selector: str, across: float, down: float) -> None:
    """Click at shares of an element's width and height, and wait until the page has drawn again."""
    box = box_of(page, selector)
    page.mouse.click(box["x"] + across * box["width"], box["y"] + down * box["height"])
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def press(page: Page, control: str, *keys: str) -> None:
    """Press keys where a control has the focus."""
    page.locator(f'[data-control="{control}"]').focus()
    for key in keys:
        page.keyboard.press(key)


def events(page: Page) -> list[int]:
    """The events of the timeline."""
    data = json.loads(page.locator("#data").text_content() or "")
    return data["devices"]["0"]["charts"]["timeline"]["tables"]["timeline"]["columns"]["event_ix"]["values"]


def moment(page: Page) -> int:
    """The event whose account the ledger shows."""
    told = re.match(r"after event ([\d,]+)", page.locator(".moment").inner_text())
    return int(told[1].replace(",", "")) if told else -1


def shown_part(page: Page) -> tuple[int, int]:
    """The events between which the detail shows the timeline."""
    begin, end = (events(page)[int(page.locator(f'[data-control="{end}"]').input_value())] for end in ("from", "to"))
    return begin, end


def drag(page: Page, selector: str, begin: float, end: float) -> None:
    """Drag across an element, between two shares of its width."""
    box = box_of(page, selector)
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
    click(page, DETAIL, 0.6, 0.6)
    page.wait_for_function("() => !document.querySelector('.moment').textContent.includes('3,815')")
    shown = lines(page)
    assert shown != at_peak
    assert adds_up(shown)
    page.get_by_role("button", name="To the peak").click()
    assert lines(page) == at_peak


@pytest.mark.parametrize("part", [None, (0.53, 0.56)], ids=["the whole", "a part"])
def test_each_click_on_the_detail_gives_the_moment_nearest_to_it(
    opened: Open, sample_page: Path, part: tuple[float, float] | None
) -> None:
    """Wherever the pointer is: over areas and above them, at the peak's mark, at the edges, where it has hovered."""
    page = opened(sample_page)
    kept = events(page)
    begin, end = kept[0], kept[-1]
    if part is not None:
        drag(page, OVERVIEW, *part)
        page.wait_for_function("() => document.querySelector('[data-control=to]').value < 2000")
        begin, end = (begin + (end - begin) * share for share in part)
    pixel = (end - begin) / box_of(page, DETAIL)["width"]
    across = [0.002, 0.9985, *(0.0137 + 0.0311 * index for index in range(32))]
    for index, share in enumerate(across):
        click(page, DETAIL, share, (0.02, 0.28, 0.5, 0.74, 0.98)[index % 5])
        at = begin + share * (end - begin)
        gap = min(abs(event - at) for event in kept)
        assert abs(moment(page) - at) <= gap + pixel, (share, at)


def test_a_click_on_the_overview_chooses_a_moment_and_brings_the_detail_there(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    kept = events(page)
    span = kept[-1] - kept[0]
    click(page, OVERVIEW, 0.25, 0.2)
    assert abs(moment(page) - (kept[0] + 0.25 * span)) <= 10
    assert shown_part(page) == (kept[0], kept[-1])
    drag(page, OVERVIEW, 0.5, 0.6)
    page.wait_for_function("() => document.querySelector('[data-control=to]').value < 2000")
    assert abs(moment(page) - (kept[0] + 0.25 * span)) <= 10  # a drag is no click
    click(page, OVERVIEW, 0.8, 0.9)
    assert abs(moment(page) - (kept[0] + 0.8 * span)) <= 10
    begin, end = shown_part(page)
    assert begin == pytest.approx(kept[0] + 0.75 * span, abs=20)
    assert end == pytest.approx(kept[0] + 0.85 * span, abs=20)
    page.get_by_role("button", name="To the peak").click()
    begin, end = shown_part(page)
    assert begin < 3815 < end
    assert end - begin == pytest.approx(0.1 * span, abs=20)
    page.get_by_role("button", name="Show all").click()
    assert shown_part(page) == (kept[0], kept[-1])


def test_hovering_names_a_bucket_and_its_bytes(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    box = box_of(page, DETAIL)
    for height, bucket in ((0.985, "parameter"), (0.8, "activation"), (0.2, "cached")):
        for share in (0.5398, 0.54):  # the first move draws what the second one finds
            page.mouse.move(box["x"] + share * box["width"], box["y"] + height * box["height"])
        page.locator("#vg-tooltip-element.visible", has_text=re.compile(rf"bucket\s*{bucket}")).wait_for()
    told = page.locator("#vg-tooltip-element").inner_text()
    assert re.search(r"bytes\s+[\d,]+\n", told)
    assert "null" not in told
    page.mouse.move(3, 3)
    page.wait_for_function("() => !document.querySelector('#vg-tooltip-element').classList.contains('visible')")


def test_moment_and_part_are_moved_by_keys(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    kept = events(page)
    peak = kept.index(3815)
    press(page, "moment", "ArrowRight")
    assert moment(page) == kept[peak + 1]
    press(page, "moment", "ArrowLeft", "ArrowLeft")
    assert moment(page) == kept[peak - 1]
    press(page, "moment", "End")
    assert moment(page) == kept[-1]
    assert adds_up(lines(page))
    press(page, "moment", "PageDown")
    assert kept[0] < moment(page) < kept[-1] - 100
    press(page, "moment", "Home")
    assert page.locator(".moment").inner_text() == "the opening state"

    press(page, "from", "PageUp", "PageUp", "ArrowRight")
    press(page, "to", "PageDown", "PageDown", "PageDown")
    begin, end = shown_part(page)
    assert kept[0] < begin < end < kept[-1]
    page.wait_for_function(f"(part) => {AXIS}.every((event) => part[0] <= event && event <= part[1])", arg=[begin, end])
    whole = box_of(page, OVERVIEW)
    left, width, _ = line_of(page, ".brush_brush path")
    assert (left - whole["x"]) / whole["width"] == pytest.approx((begin + 1) / (kept[-1] + 1), abs=0.005)
    assert width / whole["width"] == pytest.approx((end - begin) / (kept[-1] + 1), abs=0.005)
    # the part follows a moment that leaves it, and keeps its width
    press(page, "moment", "End")
    assert shown_part(page)[1] == kept[-1]
    assert shown_part(page)[1] - shown_part(page)[0] == pytest.approx(end - begin, abs=20)
    # the ends never meet
    press(page, "from", "End")
    press(page, "to", "Home")
    begin, end = shown_part(page)
    assert (begin, end) == (kept[0], kept[1])


def test_what_has_the_focus_is_seen(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    for _ in range(12):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(({outlineStyle, outlineWidth}) => [outlineStyle, outlineWidth])(getComputedStyle(document.activeElement))"
        )
        assert style == ["solid", "2px"]


def line_of(page: Page, selector: str) -> tuple[float, float, float]:
    """Where the last element of a selector begins across, how wide it is, and its upper edge, without its stroke."""
    left, width, top = page.locator(selector).last.evaluate(
        """(one) => { const [box, place] = [one.getBBox(), one.getScreenCTM()];
            return [place.e + box.x, box.width, place.f + box.y]; }"""
    )
    return left, width, top


def readable(page: Page) -> None:
    """Each label of the detail lies within it, above what is reserved, and over no other."""
    detail = box_of(page, DETAIL)
    _, _, reserved = line_of(page, ".detail_group .mark-line path")
    labels = [
        box
        for one in page.locator(".detail_group .mark-text.role-mark text").all()
        if (box := one.bounding_box()) and one.text_content()
    ]
    assert labels
    for box in labels:
        assert detail["y"] <= box["y"]
        assert box["y"] + box["height"] <= reserved
        assert detail["x"] - 1 <= box["x"]
        assert box["x"] + box["width"] <= detail["x"] + detail["width"] + 1
    for above, below in pairwise(sorted(labels, key=lambda box: box["y"])):
        assert above["y"] + above["height"] <= below["y"] + 2


@pytest.mark.parametrize("width", [1400, 400])
def test_the_peaks_label_is_readable(opened: Open, sample_page: Path, width: int) -> None:
    readable(opened(sample_page, width=width))


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
    assert max(page.evaluate(AXIS)) == 7000
    drag(page, OVERVIEW, 0.5, 0.6)
    page.wait_for_function(f"() => {AXIS}.every((event) => 3500 < event && event < 4300)")
    assert shown_part(page) == pytest.approx((3529, 4235), abs=20)


def test_slider_and_play_button_move_the_step(opened: Open, sample_page: Path) -> None:
    page = opened(sample_page)
    step = page.locator('[data-chart="step"]')
    slider, play = step.locator('[data-control="step"]'), step.locator('[data-control="play"]')
    step.get_by_text("backward", exact=True).nth(1).wait_for()
    step.get_by_text("a reading shows 13,912.6 MiB allocated").wait_for()
    slider.fill("3")
    step.get_by_text("layer 1, forward").wait_for()
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
    section = page.locator('[data-chart="allocations"]')
    picked = section.locator(".picked")
    largest = picked.inner_text()
    assert "1,646,821,376 bytes" in largest
    section.locator(".mark-rect path").nth(20).click(force=True)
    page.wait_for_function("(was) => document.querySelector('.picked').innerText !== was", arg=largest)
    assert re.search(r"^allocation [\d,]+, \w+\n+[\d,.]+ MiB asked for, [\d,]+ bytes\n", picked.inner_text())
    frames = picked.locator("li").all_text_contents()
    assert any(re.search(r"\.py:\d+ \w", frame) for frame in frames)
    chosen = picked.locator("h3").inner_text()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('.picked li'))")
    assert page.evaluate("getSelection().toString()").strip() == frames[0]
    press(page, "allocation", "Home")
    assert picked.inner_text() == largest
    press(page, "allocation", "PageUp")
    assert picked.locator("h3").inner_text() not in (chosen, largest.splitlines()[0])


@pytest.mark.parametrize("width", [1400, 400])
def test_it_fits_its_window(opened: Open, sample_page: Path, width: int) -> None:
    page = opened(sample_page, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    for name in ("timeline", "allocations"):
        drawn = page.locator(f'[data-chart="{name}"] .drawing')
        edge = drawn.evaluate("(one) => one.getBoundingClientRect().right")
        ends = drawn.evaluate(
            "(one) => [...one.querySelectorAll('text')].map((it) => it.getBoundingClientRect().right)"
        )
        assert max(ends) <= edge + 1
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
    stacks: list[str] = []
    for index in range(int(page.locator('[data-control="allocation"]').get_attribute("max") or "") + 1):
        page.locator('[data-control="allocation"]').fill(str(index))
        stacks += page.locator(".picked li").all_text_contents()
    assert any(hostile.MARKUP in frame for frame in stacks)
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
    if page.locator(DETAIL).count():
        readable(page)
