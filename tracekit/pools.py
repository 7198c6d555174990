"""A memory pool's id, a pair of integers in torch, and its text in the tables, `(0,0)`; nothing else.

Only the standard library may be imported here.
"""

from __future__ import annotations


def pool_text(pool: tuple[int, int]) -> str:
    """A pool's id as the tables write it."""
    return f"({pool[0]},{pool[1]})"


def parse_pool(text: str | None) -> tuple[int, int] | None:
    """A pool's id from its text; None where there is none."""
    if text is None:
        return None
    first, second = text.strip("()").split(",")
    return int(first), int(second)
