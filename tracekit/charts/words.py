"""Words that charts share: a moment, who asked, a list of the largest lines.

Numbers come finished; nothing is drawn here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit.units import format_mib

Row = dict[str, Any]


def where(row: Row) -> str:
    """When a moment is, to stand after "at": `event 3,815, step 2, backward`, or `the opening state`."""
    if row["event_ix"] is None or row["event_ix"] < 0:
        return "the opening state"
    told = [f"event {row['event_ix']:,}"]
    if row.get("step") is not None:
        told.append(f"step {row['step']}")
    if row.get("phase") is not None:
        told.append(row["phase"])
    return ", ".join(told)


def asker(row: Row) -> str:
    """Who made a request, as far as the recording tells."""
    return row["requested_by"] or "a stack without frames"


def contradiction(lines: Sequence[Row], value: str) -> str:
    """A sentence where a line of an account is below zero, nothing otherwise."""
    below = [row["bucket"] for row in lines if row[value] < 0]
    return f" The recording contradicts itself: {', '.join(below)} comes out below zero." if below else ""


def largest(rows: Sequence[Row], name: str, value: str, most: int = 4) -> str:
    """The largest rows in words: `activation 9,277.6 MiB, logits_and_loss 6,282.1 MiB and 3 more`."""
    ordered = sorted(rows, key=lambda row: -row[value])
    told = ", ".join(f"{row[name]} {format_mib(row[value])} MiB" for row in ordered[:most])
    return told + (f" and {len(ordered) - most:,} more" if len(ordered) > most else "")
