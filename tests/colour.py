"""Colours as eyes see them: contrast, the three kinds of dichromacy, and how far two colours are apart.

Published formulas only; nothing of tracekit is known here, so that it can judge tracekit's palette.
"""

from __future__ import annotations

import math

Triple = tuple[float, float, float]

VISIONS: dict[str, tuple[Triple, Triple, Triple]] = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""How linear RGB becomes what an eye without one kind of cone sees of it: G. M. Machado, M. M. Oliveira and L. A. F.
Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency (2009), severity 1."""

_WHITE: Triple = (0.950456, 1.0, 1.088754)
"""D65, as sRGB (IEC 61966-2-1) has it."""


def linear(colour: str) -> Triple:
    """Linear RGB of `#rrggbb`."""

    def one(at: int) -> float:
        value = int(colour[at : at + 2], 16) / 255
        return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4

    return one(1), one(3), one(5)


def seen(rgb: Triple, vision: str) -> Triple:
    """Linear RGB as one of `VISIONS` sees it, within what a screen can show."""
    red, green, blue = (min(max(sum(a * b for a, b in zip(row, rgb, strict=True)), 0), 1) for row in VISIONS[vision])
    return red, green, blue


def luminance(rgb: Triple) -> float:
    """Relative luminance, from 0 to 1."""
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one: str, other: str) -> float:
    """The contrast ratio of WCAG 2.2, from 1 to 21."""
    darker, lighter = sorted((luminance(linear(one)), luminance(linear(other))))
    return (lighter + 0.05) / (darker + 0.05)


def lab(rgb: Triple) -> Triple:
    """CIE L*a*b* (1976) of linear RGB."""
    red, green, blue = rgb
    x, y, z = (
        _root(value / white)
        for value, white in zip(
            (
                0.412453 * red + 0.357580 * green + 0.180423 * blue,
                0.212671 * red + 0.715160 * green + 0.072169 * blue,
                0.019334 * red + 0.119193 * green + 0.950227 * blue,
            ),
            _WHITE,
            strict=True,
        )
    )
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def _root(value: float) -> float:
    return value ** (1 / 3) if value > (6 / 29) ** 3 else value * (29 / 6) ** 2 / 3 + 4 / 29


def difference(one: Triple, other: Triple) -> float:
    """CIEDE2000 of two L*a*b* colours; about 1 is just noticeable side by side.

    Its terms are written as in G. Sharma, W. Wu and E. N. Dalal, The CIEDE2000 Color-Difference Formula (2005).
    """
    (l1, a1, b1), (l2, a2, b2) = one, other
    chroma = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = 0.5 * (1 - math.sqrt(chroma**7 / (chroma**7 + 25**7)))
    a1, a2 = (1 + g) * a1, (1 + g) * a2
    c1, c2 = math.hypot(a1, b1), math.hypot(a2, b2)
    h1, h2 = math.degrees(math.atan2(b1, a1)) % 360, math.degrees(math.atan2(b2, a2)) % 360
    apart = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0
    mean_h = (h1 + apart / 2) % 360 if c1 * c2 else h1 + h2
    mean_l, mean_c = (l1 + l2) / 2, (c1 + c2) / 2
    t = (
        1
        - 0.17 * math.cos(math.radians(mean_h - 30))
        + 0.24 * math.cos(math.radians(2 * mean_h))
        + 0.32 * math.cos(math.radians(3 * mean_h + 6))
        - 0.20 * math.cos(math.radians(4 * mean_h - 63))
    )
    of_l = (l2 - l1) / (1 + 0.015 * (mean_l - 50) ** 2 / math.sqrt(20 + (mean_l - 50) ** 2))
    of_c = (c2 - c1) / (1 + 0.045 * mean_c)
    of_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(apart / 2)) / (1 + 0.015 * mean_c * t)
    turn = -math.sin(math.radians(60 * math.exp(-(((mean_h - 275) / 25) ** 2)))) * 2
    turn *= math.sqrt(mean_c**7 / (mean_c**7 + 25**7))
    return math.sqrt(of_l**2 + of_c**2 + of_h**2 + turn * of_c * of_h)


def apart(one: str, other: str) -> dict[str, float]:
    """How far two colours are apart for each vision."""
    return {vision: difference(lab(seen(linear(one), vision)), lab(seen(linear(other), vision))) for vision in VISIONS}


def mixed(colour: str, paper: str, opacity: float) -> str:
    """A colour as it is seen where paper shines through, as browsers mix: in sRGB as it is written."""
    parts = ((int(colour[at : at + 2], 16), int(paper[at : at + 2], 16)) for at in (1, 3, 5))
    return "#" + "".join(f"{round(opacity * over + (1 - opacity) * under):02x}" for over, under in parts)
