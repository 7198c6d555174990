"""What fit found, as plain rows: points with who set their peaks, remedies, and what all of it rests on.

Rows and sentences only; how they are printed is the command's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tracekit import what_if
from tracekit.allocator.result import Peak
from tracekit.fit import Fitted, remedy
from tracekit.fit.answer import Answer, request_at
from tracekit.fit.model import Model, alive_at_peak, in_words, told
from tracekit.fit.rule import MEANING, Kind, Point
from tracekit.terminal import mib

Row = dict[str, Any]

FAR = 4.0
"""So many times the largest recording, kernels may well go other ways than in any recording."""


def as_json(fitted: Fitted, wanted: Point | None = None) -> Row:
    """Everything, in the shape of `tracekit fit --format json`.

    Args:
        fitted: what was found.
        wanted: a point to say of what would make it fit.
    """
    model, conditions, found = fitted.model, fitted.conditions, fitted.found
    row: Row = {
        "variable": model.variables[0] if len(model.variables) == 1 else list(model.variables),
        "largest": None if found is None else found.largest,
        "searched_at": list(fitted.others) if fitted.others else None,
        "limit_bytes": conditions.limit,
        "margin_bytes": conditions.margin,
        "settings": what_if.settings_row(conditions.settings or model.template.program.settings),
        "recordings": [
            {"value": value(source.point), "name": source.name, "is_template": source is model.template}
            for source in model.sources
        ],
        "rules": [
            {"kind": kind.value, "allocation_count": count, "meaning": MEANING[kind]}
            for kind, count in sorted(model.tally().items(), key=lambda one: list(Kind).index(one[0]))
        ],
        "points": [point(fitted, one) for one in fitted.answers.values()],
        "notes": notes(fitted),
    }
    if wanted is not None:
        row["make_fit"] = make_fit(fitted, wanted)
    return row


def point(fitted: Fitted, one: Answer) -> Row:
    """One point: its peaks, who set them, and how it ran out of memory if it did."""
    outcome = one.told
    trial = what_if.Trial(one.source.device, told(one.point), outcome.settings, outcome)
    peaks = what_if.as_json(one.source.warehouse, trial, one.program.requested)
    return {
        "value": value(one.point),
        "kind": "measured" if one.is_measured else "predicted",
        "allocated_bytes": outcome.peak_allocated.value,
        "reserved_bytes": outcome.peak_reserved.value,
        "fits": one.fits,
        "oom": peaks["oom"],
        "retry_count": outcome.retries,
        "allocated_by": _set_by(one, outcome.peak_allocated),
        "reserved_by": _set_by(one, outcome.peak_reserved),
        "allocated_range_bytes": list(one.allocated),
        "reserved_range_bytes": list(one.reserved),
        "run_count": one.run_count,
        "fitting_run_count": one.fit_count,
        "extrapolation": extrapolation(fitted.model, one.point),
        "is_below": is_below(fitted.model, one.point),
    }


def value(at: Point) -> int | str:
    """A point as scripts read it: a number, or text where there are two variables."""
    return at[0] if len(at) == 1 else told(at)


def extrapolation(model: Model, at: Point) -> float:
    """How many times a point is beyond the recorded range, in the variable that is furthest; 1 within it."""
    ratio = 1.0
    for position, asked in enumerate(at):
        recorded = [source.point[position] for source in model.sources]
        ratio = max(ratio, asked / max(recorded), min(recorded) / asked)
    return ratio


def is_below(model: Model, at: Point) -> bool:
    """Whether a point is smaller in a variable than every recording."""
    return any(asked < min(source.point[position] for source in model.sources) for position, asked in enumerate(at))


def make_fit(fitted: Fitted, wanted: Point) -> Row:
    """What would make a point fit: settings, and buckets that would have to shrink."""
    one, conditions = fitted.answers[wanted], fitted.conditions
    return {
        "value": value(wanted),
        "fits": one.fits,
        "settings": [
            {
                "name": name,
                "fits": tried.fits,
                "allocated_bytes": tried.told.peak_allocated.value,
                "reserved_bytes": tried.told.peak_reserved.value,
                "retry_count": tried.told.retries,
            }
            for name, tried in remedy.settings_tried(fitted.model, wanted, conditions)
        ],
        "buckets": [
            {
                "bucket": shrunk.bucket,
                "held_bytes": shrunk.held_bytes,
                "fits_at_percent": shrunk.percent,
                "allocated_bytes": shrunk.outcome.peak_allocated.value,
                "reserved_bytes": shrunk.outcome.peak_reserved.value,
            }
            for shrunk in remedy.buckets_tried(one, conditions)
        ],
    }


def notes(fitted: Fitted) -> list[str]:
    """What the answers rest on and what they cannot tell, in sentences."""
    model = fitted.model
    return [*_on_matching(model), *_on_rules(model), *_on_conditions(fitted), *_on_search(fitted)]


def _on_matching(model: Model) -> list[str]:
    largest = model.sources[-1]
    sentences = [
        f"operations, order and stacks are those of {model.template.name}; sizes follow {' and '.join(model.variables)}"
    ]
    if not model.matches:
        sentences.append(
            "a guess from one recording: parameters, gradients, optimizer state and library workspaces keep their size,"
            f" everything else goes in proportion to {model.variables[0]}; two recordings would tell"
        )
    for match in model.matches:
        sentence = (
            f"{match.source.name} matched with {largest.name} by stack, order and lifetime:"
            f" {float(match.share):.2%} of the bytes asked for have a partner"
        )
        if match.unmatched_count or match.left_over_count:
            sentence += (
                f"; {match.unmatched_count:,} allocations of the larger and {match.left_over_count:,} of the smaller"
                " have none (kernels take other ways at small sizes)"
            )
        sentences.append(sentence)
    return sentences


def _on_rules(model: Model) -> list[str]:
    largest = model.sources[-1].program
    alive = alive_at_peak(largest)
    asked: Counter[Kind] = Counter()
    at_peak: Counter[Kind] = Counter()
    for number, (size, one) in enumerate(zip(largest.requested, model.rules, strict=True)):
        asked[one.kind] += size
        at_peak[one.kind] += size if number in alive else 0
    tally = model.tally()
    sentences: list[str] = []
    for kind in (Kind.LATER, Kind.TWIN, Kind.NEARLY, Kind.SCALED, Kind.KEPT):
        if tally[kind] and model.matches:
            biggest = max(size for size, one in zip(largest.requested, model.rules, strict=True) if one.kind is kind)
            sentences.append(
                f"{tally[kind]:,} of {len(model.rules):,} allocations ({mib(at_peak[kind])} MiB at the peak of"
                f" {model.sources[-1].name}, the largest {mib(biggest)} MiB): {MEANING[kind]}"
            )
    squares: Counter[tuple[int, ...]] = Counter()
    held: Counter[tuple[int, ...]] = Counter()
    for number, (size, one) in enumerate(zip(largest.requested, model.rules, strict=True)):
        for product, _ in one.terms:
            if max(product) > 1:
                squares[product] += 1
                held[product] += size if number in alive else 0
    for product, count in squares.items():
        sentences.append(
            f"{count:,} allocations ({mib(held[product])} MiB at the peak of {model.sources[-1].name}) go with"
            f" {in_words(product, model.variables)}"
        )
    return sentences


def _on_conditions(fitted: Fitted) -> list[str]:
    model, conditions = fitted.model, fitted.conditions
    sentences: list[str] = []
    described = {source.name: source.program.settings.describe() for source in model.sources}
    if len(set(described.values())) > 1:
        each = ", ".join(f"{name} under {text}" for name, text in described.items())
        taken = "those given" if conditions.settings else f"those of {model.template.name}"
        sentences.append(f"the recordings were made under different settings ({each}); taken are {taken}")
    if conditions.margin:
        sentences.append(f"{mib(conditions.margin)} MiB of the limit are kept free")
    spread = [one for one in fitted.answers.values() if one.run_count > 1]
    if spread:
        widest = max(one.reserved[1] - one.reserved[0] for one in spread)
        sentences.append(
            "where new segments will lie is not known and breaks ties between blocks of the same size: up to"
            f" {max(one.run_count for one in spread)} runs were made of each point, under other layouts; reserved peaks"
            f" differ by at most {mib(widest)} MiB among them (a rare one may lie beyond), and a point fits where it"
            " fits in each"
        )
    if any(model.cautious(one.point) is not None for one in fitted.answers.values()):
        sentences.append(
            "one of the runs of each point takes what has no rule in proportion, where that is more, so that the range"
            " holds it; what a library asks for at a size that was not recorded may be more still"
        )
    below = [one.point for one in fitted.answers.values() if is_below(model, one.point)]
    if below:
        sentences.append(
            f"{', '.join(map(told, below))}: below the recordings, where kernels may take other ways than in any of"
            f" them; the way taken is that of {model.template.name}"
        )
    far = [one.point for one in fitted.answers.values() if extrapolation(model, one.point) > FAR]
    if far:
        sentences.append(
            f"{', '.join(map(told, far))}: more than {FAR:g} times beyond what was recorded, where kernels may ask for"
            " other workspaces than in any recording"
        )
    return sentences


def _on_search(fitted: Fitted) -> list[str]:
    found = fitted.found
    if found is None:
        return []
    name = fitted.model.variables[0]
    if found.is_open:
        return [f"{name} {found.largest} still fits; larger ones were not tried"]
    if found.largest is None:
        return [f"no {name} that was tried fits, not even {min(found.asked)}"]
    failing = [value for value, fits in found.asked.items() if not fits]
    sentences = [
        f"of {name} {min(found.asked)} to {max(found.asked)}, {len(found.asked)} were run; {min(failing)} does not fit"
    ]
    if found.again:
        more = ", ".join(map(str, found.again))
        sentences.append(f"fitting is not monotone here: {more} would fit although {min(failing)} does not")
    return sentences


def _set_by(one: Answer, peak: Peak) -> Row:
    """The event that set a peak, and who asked for what then."""
    return {
        "event_ix": peak.event_ix,
        "request_bytes": request_at(one.program, peak.event_ix),
        **what_if.asked_at(one.source.warehouse, one.source.device, peak.event_ix),
    }
