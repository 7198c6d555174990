"""A real browser without a network, and pages in it that must ask for nothing and complain of nothing.

Skipped by name where Chromium is missing; `make test-browser` installs it, and then a skip is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tracekit import report
from tracekit.warehouse import Warehouse

Open = Callable[..., Page]

_NAMES = ("chromium", "chromium-browser", "google-chrome")
REQUIRED = "TRACEKIT_BROWSER_REQUIRED"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker("browser")


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)("there is no Chromium here: make test-browser")
    with sync_playwright() as playwright:
        # no name resolves, so that nothing outside of this machine can be reached even by mistake
        options = ["--host-resolver-rules=MAP * ~NOTFOUND", *(["--no-sandbox"] if os.getuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=found, args=options)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser: Browser) -> Iterator[Open]:
    """Opens a page from its file, drawn; afterwards it must have asked for nothing else and logged nothing."""
    asked: list[str] = []
    said: list[str] = []
    pages: list[Page] = []

    def note_request(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            asked.append(request.url)

    def note_message(message: ConsoleMessage) -> None:
        said.append(f"{message.type}: {message.text}")

    def open_page(path: Path, *, width: int = 1400, dark: bool = False) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            offline=True,
        )
        page = context.new_page()
        pages.append(page)
        page.on("request", note_request)
        page.on("console", note_message)
        page.on("pageerror", lambda error: said.append(f"error: {error}"))
        page.goto(path.as_uri())
        page.wait_for_selector('html[data-drawn="all"]', state="attached", timeout=60_000)
        return page

    yield open_page
    files = [page.url for page in pages]
    for page in pages:
        page.context.close()
    assert asked == []
    assert said == []
    assert files
    assert all(url.startswith("file:") for url in files)


@pytest.fixture(scope="session")
def sample_page(sample: Warehouse, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of the sample."""
    path = tmp_path_factory.mktemp("page") / "sample.html"
    path.write_text(report.html(sample, "snapshot.pickle.xz"), encoding="utf-8")
    return path
