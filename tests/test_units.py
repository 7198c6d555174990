"""Sizes as people write and read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.units import format_mib, parse_bytes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("45440MiB", 45_440 * 2**20),
        ("44.4GiB", 47_674_136_985),  # 47,674,136,985.6: rounded down, so that a limit is never too high
        ("48GB", 48 * 10**9),
        ("50883198976", 50_883_198_976),
        ("1,024 KiB", 2**20),
        ("80gib", 80 * 2**30),
        ("0", 0),
    ],
)
def test_a_size_is_read(text: str, expected: int) -> None:
    assert parse_bytes(text) == expected


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1.5.2GiB", "12 parsecs", "1e9"])
def test_what_is_no_size_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@given(st.integers(0, 2**60))
def test_plain_bytes_come_back(count: int) -> None:
    assert parse_bytes(str(count)) == count


def test_bytes_are_printed_in_mib_with_one_decimal() -> None:
    assert format_mib(17_882_019_840) == "17,053.6"
