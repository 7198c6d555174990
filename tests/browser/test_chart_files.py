"""What `tracekit chart NAME -o x.html` writes: one file that draws itself, asks for nothing and can be played with."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.charts import golden
from tracekit.charts import CHARTS, Request, render
from tracekit.warehouse import Warehouse


def opened(browser: Browser, path: Path, said: list[str]) -> Page:
    page = browser.new_context(viewport={"width": 1500, "height": 1000}, offline=True).new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: said.append(request.url) if not request.url.startswith("file:") else None)
    page.goto(path.as_uri())
    page.wait_for_selector("canvas")
    return page


@pytest.mark.parametrize("name", CHARTS)
def test_each_chart_draws_itself(name: str, browser: Browser, sample: Warehouse, tmp_path: Path) -> None:
    tables = golden.tables(CHARTS[name], sample, Request(bins=60))
    path = tmp_path / f"{name}.html"
    path.write_bytes(render.render(CHARTS[name], tables, ".html"))
    said: list[str] = []
    page = opened(browser, path, said)
    assert page.locator("#chart").get_attribute("aria-label") == CHARTS[name].describe(tables)
    assert page.title() == f"{CHARTS[name].title} - tracekit"
    page.context.close()
    assert said == []


def test_the_slider_of_the_step_moves_its_account(browser: Browser, sample: Warehouse, tmp_path: Path) -> None:
    path = tmp_path / "step.html"
    path.write_bytes(render.render(CHARTS["step"], CHARTS["step"].data(sample, Request()), ".html"))
    said: list[str] = []
    page = opened(browser, path, said)
    before = page.evaluate("document.querySelector('canvas').toDataURL()")
    slider = page.locator("input[type=range]")
    assert slider.get_attribute("max") == "31"
    slider.fill("3")
    page.wait_for_function("(was) => document.querySelector('canvas').toDataURL() !== was", arg=before)
    page.context.close()
    assert said == []
