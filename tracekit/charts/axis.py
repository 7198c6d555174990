"""Axes of bytes: ticks at whole binary units, whatever the range; d3's own know only decimal ones.

No chart and no number is known here.
"""

from __future__ import annotations

import altair as alt

from tracekit.units import GIB, KIB, MIB

_UNITS = ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB"), (1, "bytes"))
_NICE = (1, 2, 5)


def unit_of(highest: int) -> tuple[int, str]:
    """The largest unit of which a range holds at least two, as bytes and name."""
    return next(((size, name) for size, name in _UNITS if highest >= 2 * size), _UNITS[-1])


def ticks(highest: int, most: int = 6) -> list[int]:
    """Values from 0 to the first one at or above `highest`, at 1, 2 or 5 times a power of ten of its unit."""
    unit, _ = unit_of(highest)
    power = 1
    while True:
        for nice in _NICE:
            step = nice * power * unit
            count = -(-max(highest, 1) // step)
            if count <= most:
                return [step * index for index in range(count + 1)]
        power *= 10


def bytes_axis(highest: int, title: str | None, most: int = 6, lowest: int = 0, **more: object) -> alt.Axis:
    """An axis of bytes from 0 to the last of `ticks`; from below 0 where a recording contradicts itself."""
    unit, name = unit_of(max(highest, -lowest))
    return alt.Axis(
        title=title,
        values=_span(highest, lowest, most),
        labelExpr=f"format(datum.value / {unit}, ',') + ' {name}'",
        **more,  # pyright: ignore[reportArgumentType] - altair's own words
    )


def bytes_scale(highest: int, most: int = 6, lowest: int = 0, **more: object) -> alt.Scale:
    """The scale of `bytes_axis`."""
    values = _span(highest, lowest, most)
    return alt.Scale(domain=[values[0], values[-1]], nice=False, **more)  # pyright: ignore[reportArgumentType]


def _span(highest: int, lowest: int, most: int) -> list[int]:
    return ticks(highest, most) if lowest >= 0 else _both_ways(highest, lowest, most)


def whole_ticks(first: int, last: int, most: int = 12) -> list[int]:
    """Whole numbers from `first` to `last` at a distance of 1, 2 or 5 times a power of ten, at most so many."""
    apart = next(
        nice * 10**power for power in range(20) for nice in _NICE if (last - first) // (nice * 10**power) < most
    )
    return list(range(-(-first // apart) * apart, last + 1, apart))


def asker_text() -> str:
    """A Vega expression for who asked, after a comma; nothing where the recording does not tell."""
    return "(isValid(datum.requested_by) ? ', ' + datum.requested_by : '')"


def mib_text(field: str) -> str:
    """A Vega expression for bytes as MiB with one decimal, as every printed table has them.

    d3 rounds a half up and Python to the even digit: 17.25 MiB must not be 17.3 here and 17.2 there.
    """
    is_half = f"abs({field}) / {MIB} * 10 % 2 == 0.5"
    return f"format({field} / {MIB} - ({is_half} ? 0.01 * ({field} < 0 ? -1 : 1) : 0), ',.1f') + ' MiB'"


def change_axis(highest: int, lowest: int) -> alt.Axis:
    """An axis of rises and falls in bytes, from below the lowest to above the highest."""
    unit, name = unit_of(max(highest, -lowest))
    return alt.Axis(
        title=None,
        values=_both_ways(highest, lowest),
        labelExpr=f"(datum.value > 0 ? '+' : '') + format(datum.value / {unit}, ',') + ' {name}'",
    )


def change_scale(highest: int, lowest: int) -> alt.Scale:
    """The scale of `change_axis`."""
    values = _both_ways(highest, lowest)
    return alt.Scale(domain=[values[0], values[-1]], nice=False)


def _both_ways(highest: int, lowest: int, most: int = 4) -> list[int]:
    """Ticks on both sides of 0, with one step for both; a side with nothing on it has none."""
    steps = ticks(max(highest, -lowest), most)
    below = [-value for value in reversed(steps[1:]) if lowest < 0]
    above = [value for value in steps[1:] if highest > 0 or lowest == 0]
    step = steps[1]
    return [value for value in [*below, 0, *above] if lowest - step < value < highest + step or value == 0]
