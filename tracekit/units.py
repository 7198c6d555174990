"""Bytes, as people write and read them; no other unit and no printing lives here.

Only the standard library may be imported here.
"""

from __future__ import annotations

import re

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

_FACTOR = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1024 * GIB,
}
_SIZE = re.compile(r"\s*(\d[\d_,]*(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """Read a size such as `45440MiB`, `44.4GiB`, `48GB` (decimal) or plain bytes.

    Returns:
        Whole bytes; a fraction of a byte is dropped, so a limit is never read larger than written.

    Raises:
        ValueError: with a sentence for the person, where the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    factor = _FACTOR.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise ValueError(f"{text!r} is not a size; write it like 45440MiB, 44.4GiB, 48GB or 50883198976")
    whole, _, fraction = match[1].replace(",", "").replace("_", "").partition(".")
    return int(whole) * factor + int(fraction or "0") * factor // 10 ** len(fraction)


def format_mib(count: int) -> str:
    """Print bytes as MiB with one decimal, the unit torch and nvidia-smi print in."""
    return f"{count / MIB:,.1f}"


def format_size(count: int) -> str:
    """Print bytes for a person who may want to check them: MiB, and exactly."""
    return f"{format_mib(count)} MiB ({count:,} bytes)"
