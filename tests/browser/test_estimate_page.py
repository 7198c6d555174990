"""The page of an estimate in a real browser: whatever is chosen, it says what the Python formulas say."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open
from tracekit.estimate import fit
from tracekit.estimate.answer import Answer, answer
from tracekit.estimate.ledger import Estimate, estimate
from tracekit.estimate.rows import precisions, presets
from tracekit.estimate.run import CODES, LOGITS, Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.templates import choices
from tracekit.estimate.traced.cards import CARDS
from tracekit.report.estimate import html
from tracekit.units import MIB

GPT2 = presets()["gpt2"]
SEED = Run(attention="eager")
LIMIT = 45_440 * MIB

Show = Callable[..., Page]

CHOOSE = """(values) => {
    choose(values);
    form.dispatchEvent(new Event("input", { bubbles: true }));
    const read = (cell) => Number(cell.querySelector("data")?.value ?? 0);
    const rows = [...document.querySelectorAll(".moments :is(tbody, tfoot) tr")];
    return {
        moments: Object.fromEntries(rows.map((row) => [row.cells[0].textContent, [...row.cells].slice(1).map(read)])),
        peak: Number(document.querySelector("h1 data").value),
        story: document.querySelector(".story").textContent,
    };
}"""


@pytest.fixture
def show(opened: Open, tmp_path: Path) -> Show:
    """Opens the page of an estimate."""

    def shown(one: Answer, **how: Any) -> Page:
        path = tmp_path / "estimate.html"
        path.write_text(html(one), encoding="utf-8")
        return opened(path, **how)

    return shown


def table(made: Estimate) -> dict[str, list[int]]:
    """What the page's table of moments must hold."""
    lines = [account.by_bucket() for account in made.accounts]
    buckets = {bucket for line in lines for bucket in line}
    return {
        **{bucket: [line.get(bucket, 0) for line in lines] for bucket in buckets},
        "requested": [account.requested_bytes for account in made.accounts],
    }


def words(run: Run) -> dict[str, Any]:
    """A run as the form says it."""
    named = {name: getattr(getattr(run, name), "name", getattr(run, name)) for name in choices()}
    return named | {"batch": run.batch, "sequence": run.sequence, "ranks": run.ranks}


def ledger(page: Page) -> dict[str, int]:
    rows = page.locator(".ledger tbody tr").all()
    return {
        row.get_attribute("data-bucket") or "": int(row.locator("data").get_attribute("value") or "") for row in rows
    }


def chance(dice: random.Random, shape: Shape, base: Run) -> Run:
    """Any run that the page can be asked for."""
    return replace(
        base,
        **{name: dice.choice(values) for name, values in choices().items()},
        batch=dice.choice([1, 2, 3, 8, 17, 64]),
        sequence=dice.choice([1, 100, 512, 1000, 1024] if shape.has_learned_positions else [7, 1024, 4096, 16384]),
        ranks=dice.choice([1, 2, 3, 8, 1000]),
    )


@pytest.mark.parametrize("code", CODES)
def test_the_page_says_what_python_says(show: Show, code: str) -> None:
    dice = random.Random(code)  # noqa: S311 - the same choices every time
    base = replace(SEED, code=code, logits=dice.choice(LOGITS), has_dropout=code == "huggingface", rank=16)
    page = show(answer(GPT2, base, limit_bytes=LIMIT))
    models, cards = list(presets().values()), sorted(CARDS.values(), key=lambda card: card.total_bytes)
    verdicts = {True: "It fits", False: "It does not fit", None: "It is too close to tell"}
    for _ in range(120):
        index, number = dice.randrange(len(models)), dice.randrange(len(cards))
        shape, card = models[index], cards[number]
        run = replace(chance(dice, shape, base), workspace_bytes=card.cublas_workspace)
        said = page.evaluate(CHOOSE, {**words(run), "model": index, "card": number})
        made = estimate(shape, run)
        assert said["moments"] == table(made), (shape.name, run)
        assert said["peak"] == made.peak_bytes
        assert made.peak.place in said["story"]
        assert verdicts[fit.fits(made.peak_bytes, card.total_bytes)] in said["story"]
        sure, by_tensors = fit.largest_batch(answer(shape, run).make, run, card.total_bytes)
        assert f"the largest batch is {sure:,} surely, {by_tensors:,} if" in said["story"]


def test_it_opens_on_the_estimate_that_was_asked_for(show: Show) -> None:
    run = replace(SEED, batch=4, precision=precisions()["bf16"], is_checkpointed=True, accumulate=3)
    page = show(answer(presets()["qwen3-0.6b"], run, limit_bytes=LIMIT))
    assert page.locator("[name=model] option:checked").inner_text() == "qwen3-0.6b"
    assert page.locator("[name=accumulate]").input_value() == "3"
    assert page.locator("[name=card] option:checked").inner_text() == "the limit, 45,440.0 MiB"
    peak = estimate(presets()["qwen3-0.6b"], run).peak
    assert page.locator("h1 data").get_attribute("value") == str(peak.requested_bytes)
    assert ledger(page) == peak.by_bucket()


def test_the_first_documents_account_and_its_moments_by_keyboard(show: Show) -> None:
    page = show(answer(GPT2, SEED, limit_bytes=LIMIT))
    assert page.locator("h1").inner_text() == "17,049.1\u00a0MiB of tensors at the peak"
    accounts = estimate(GPT2, SEED).accounts
    assert ledger(page) == accounts[4].by_bucket()
    bars = page.locator(".plot button")
    assert bars.count() == 9
    bars.nth(0).focus()
    for index, account in enumerate(accounts):
        page.keyboard.press("Enter")
        assert ledger(page) == account.by_bucket()
        assert bars.nth(index).get_attribute("aria-pressed") == "true"
        assert page.evaluate("document.activeElement.dataset.moment") == str(index)
        page.keyboard.press("Tab")


def test_bars_are_as_high_as_their_bytes(show: Show) -> None:
    page = show(answer(GPT2, SEED, limit_bytes=LIMIT))
    heights = page.evaluate(
        """() => [...document.querySelectorAll(".plot button")].map((bar) =>
            [...bar.querySelectorAll("i")].reduce((sum, part) => sum + part.getBoundingClientRect().height, 0))"""
    )
    totals = [account.requested_bytes for account in estimate(GPT2, SEED).accounts]
    zero, top = page.evaluate(
        """() => { const at = [...document.querySelectorAll(".plot .line:not(.limit)")].map(
            (line) => line.getBoundingClientRect().top); return [at[0], at.at(-1)]; }"""
    )
    line = page.evaluate("document.querySelector('.plot .limit').getBoundingClientRect().top")
    scale = (zero - top) / (50 * 1024 * MIB)
    assert heights == pytest.approx([total * scale for total in totals], abs=2)
    assert zero - line == pytest.approx(LIMIT * scale, abs=2)


def test_a_lever_is_pulled_by_a_click(show: Show) -> None:
    page = show(answer(GPT2, SEED, limit_bytes=LIMIT))
    row = page.locator("[data-lever=checkpointing]")
    then = estimate(GPT2, replace(SEED, is_checkpointed=True)).peak_bytes
    saved = int(row.locator("data").get_attribute("value") or "")
    assert saved == estimate(GPT2, SEED).peak_bytes - then
    row.get_by_role("button").click()
    assert page.locator("[name=is_checkpointed]").is_checked()
    assert page.locator("h1 data").get_attribute("value") == str(then)
    assert page.locator("[data-lever=checkpointing]").count() == 0


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("sequence", "2048", "gpt2 has learned positions for 1,024 tokens, not for 2,048."),
        ("batch", "0", "Batch must be a whole number"),
        ("batch", "", "Batch must be a whole number"),
        ("ranks", "1.5", "Ranks must be a whole number"),
    ],
)
def test_what_cannot_be_estimated_is_said_and_nothing_else_shown(show: Show, field: str, value: str, told: str) -> None:
    page = show(answer(GPT2, SEED))
    page.locator(f"[name={field}]").fill(value)
    assert page.locator("h1").inner_text().startswith(told)
    assert page.locator("article data:visible").count() == 0
    page.locator(f"[name={field}]").fill("4")
    assert page.locator(".ledger").is_visible()


def test_what_a_browser_cannot_count_exactly_is_not_shown(show: Show) -> None:
    page = show(answer(presets()["llama-3.1-405b"], replace(SEED, batch=64, sequence=131_072)))
    assert page.locator("h1").inner_text() == "That is more than 8 PiB, too much to be counted exactly."


def test_a_models_name_stays_text(show: Show) -> None:
    name = "</script><script>document.title = 'taken'</script><img src=x onerror=alert(1)>"
    page = show(answer(replace(GPT2, name=name), SEED))
    assert name in page.locator(".story").inner_text()
    assert page.title() == "Where training memory will go"


@pytest.mark.parametrize(("width", "is_dark"), [(1400, False), (800, True), (360, False)])
def test_it_suits_its_paper(show: Show, width: int, is_dark: bool) -> None:
    page = show(answer(GPT2, SEED, limit_bytes=LIMIT), width=width, dark=is_dark)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    paper = "rgb(20, 23, 27)" if is_dark else "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
    cut = page.evaluate(
        "[...document.querySelectorAll('label, button, h1, h2, .levers td')]"
        ".filter((one) => one.scrollWidth > one.clientWidth + 10).map((one) => one.textContent)"
    )
    assert cut == []
