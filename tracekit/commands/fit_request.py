"""What `tracekit fit` was asked, read from the command line: values, points, sizes.

Words only; nothing is opened or computed here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import click

from tracekit.units import parse_bytes

Point = tuple[int, ...]

_POINT = re.compile(r"[1-9]\d*(x[1-9]\d*)?")
_RANGE = re.compile(r"([1-9]\d*)-([1-9]\d*)")
_NAMES = ("batch", "sequence")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked.

    Attributes:
        variables: the names of the variables.
        recordings: each point with its dataset.
        at: points asked for.
        limit: the limit, None where none was given.
        margin: bytes of it to keep free.
        others: the values after the first at which the largest is searched; None where nothing is searched.
        wanted: the point to be made to fit.
    """

    variables: tuple[str, ...]
    recordings: list[tuple[Point, str]]
    at: list[Point]
    limit: int | None
    margin: int
    others: Point | None
    wanted: Point | None

    @property
    def points(self) -> list[Point]:
        """Every point that an answer is wanted for."""
        return self.at if self.wanted is None else [*self.at, self.wanted]

    def output_point(self, largest: int | None) -> Point:
        """The point whose stream goes into a dataset: the one asked for, else the largest that fits.

        Raises:
            click.UsageError: where several were asked for, or nothing fits.
        """
        if len(self.at) == 1:
            return self.at[0]
        if self.at or largest is None or self.others is None:
            raise click.UsageError("--output takes one --at, or a --limit that something fits")
        return (largest, *self.others)


def parse(
    words: tuple[str, ...],
    at: tuple[str, ...],
    limit: str | None,
    margin: str,
    variable: str | None,
    length: int | None,
    make_fit: str | None,
) -> Request:
    """Read the words of a command line; see `tracekit fit --help`.

    Raises:
        click.UsageError: with the word that cannot be read.
    """
    recordings = [_recording(word) for word in words if "=" in word]
    if not recordings:
        raise click.UsageError("give at least one recording, as in 8=DATASET")
    # values that follow --at with blanks between them arrive among the recordings
    asked = [point for word in (*at, *_values(words, has_at=bool(at))) for point in _points(word)]
    counts = {len(point) for point, _ in recordings}
    if len(counts) > 1:
        raise click.UsageError("give every recording the same variables: all as 8=DATASET, or all as 8x512=DATASET")
    (count,) = counts
    names = _NAMES[:count] if variable is None else tuple(variable.split(","))
    if len(names) != count or not all(names):
        raise click.BadParameter(
            f"{variable!r} names {len(names)} variables, the recordings have {count}", param_hint="--variable"
        )
    wanted = None if make_fit is None else _point(make_fit, "--make-fit")
    for point in (*asked, *([] if wanted is None else [wanted])):
        if len(point) != count:
            raise click.UsageError(f"{'x'.join(map(str, point))} is no value of {' and '.join(names)}")
    limit_bytes = None if limit is None else _size(limit, "--limit")
    if limit_bytes is None and not asked:
        raise click.UsageError("give --limit to find the largest that fits, or --at for values of your own")
    if wanted is not None and limit_bytes is None:
        raise click.UsageError("--make-fit needs a --limit")
    if limit_bytes == 0:
        raise click.BadParameter("a limit of 0 leaves nothing to reserve", param_hint="--limit")
    margin_bytes = _size(margin, "--margin")
    if limit_bytes is not None and margin_bytes >= limit_bytes:
        raise click.BadParameter(f"a margin of {margin} leaves nothing of a limit of {limit}", param_hint="--margin")
    others = _others(recordings, length, count) if limit_bytes is not None else None
    return Request(names, recordings, asked, limit_bytes, margin_bytes, others, wanted)


def _values(words: tuple[str, ...], *, has_at: bool) -> list[str]:
    """The words that are no recordings: values that follow an --at."""
    values = [word for word in words if "=" not in word]
    for word in values:
        if not has_at or not word[0].isdigit():
            raise click.UsageError(f"{word!r} does not say what value it was recorded at; write it like 8={word}")
    return values


def _others(recordings: list[tuple[Point, str]], length: int | None, count: int) -> Point:
    if count == 1:
        if length is not None:
            raise click.UsageError("--length is for two variables, as in 8x512=DATASET")
        return ()
    return (max(point[1] for point, _ in recordings) if length is None else length,)


def _recording(word: str) -> tuple[Point, str]:
    text, _, dataset = word.partition("=")
    if not dataset:
        raise click.UsageError(f"{word!r} names no dataset; write it like 8=DATASET")
    return _point(text, word), dataset


def _point(text: str, where: str) -> Point:
    if not _POINT.fullmatch(text):
        raise click.UsageError(f"{text!r} in {where} is no value; write it like 8, or 8x512 for batch and length")
    return tuple(map(int, text.split("x")))


def _points(word: str) -> list[Point]:
    points: list[Point] = []
    for part in word.split(","):
        span = _RANGE.fullmatch(part)
        if span is None:
            points.append(_point(part, "--at"))
        elif int(span[2]) - int(span[1]) > 10_000:
            raise click.UsageError(f"{part!r} in --at is more than 10,000 values")
        else:
            points += [(value,) for value in range(int(span[1]), int(span[2]) + 1)]
    return points


def _size(text: str, where: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=where) from error
