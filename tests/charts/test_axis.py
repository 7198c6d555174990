"""Numbers on charts: written as everywhere else, and ticks at whole units."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import altair as alt
import vl_convert
from hypothesis import given
from hypothesis import strategies as st

from tracekit.charts import axis
from tracekit.units import GIB, MIB, format_mib


def written(values: list[int]) -> list[str]:
    """What Vega writes of bytes."""
    data = alt.Data(values=[{"value": value} for value in values])
    chart = (
        alt.Chart(data)
        .transform_calculate(label=axis.mib_text("datum.value"))
        .mark_text()
        .encode(y=alt.Y("value:N", axis=None, sort=None), text="label:N")
    )
    drawn: dict[str, Any] = chart.to_dict()
    return re.findall(r">([^<>]+ MiB)</text>", vl_convert.vegalite_to_svg(drawn))


def test_bytes_are_rounded_as_in_every_printed_table() -> None:
    """Python rounds a half to the even digit, JavaScript away from zero; falls are rounded as rises are."""
    quarter = MIB // 4
    values = [sign * (whole * MIB + part * quarter) for whole in (0, 17, 15_531) for part in (1, 3) for sign in (1, -1)]
    assert [one.replace("\N{MINUS SIGN}", "-") for one in written(values)] == [
        f"{format_mib(value)} MiB" for value in values
    ]


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(1, 20))
def test_whole_ticks_are_few_whole_and_within(first: int, more: int, most: int) -> None:
    found = axis.whole_ticks(first, first + more, most)
    assert len(found) <= most
    assert all(first <= one <= first + more for one in found)
    distances = {after - before for before, after in pairwise(found)}
    assert len(distances) <= 1
    if more < most:
        assert found == list(range(first, first + more + 1))


def test_an_axis_begins_at_zero_unless_something_lies_below() -> None:
    """Cached bytes come out negative where a recording's events hold more than its segments have."""
    assert axis.bytes_scale(10 * MIB, lowest=1).to_dict()["domain"] == [0, 10 * MIB]
    below = axis.bytes_axis(2 * GIB, None, lowest=-1 * GIB).to_dict()["values"]
    assert below[0] <= -1 * GIB
    assert below[-1] >= 2 * GIB
    assert 0 in below
