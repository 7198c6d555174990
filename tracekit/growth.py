"""What is held from step to step: the moments that compare, what each stack holds at them, and a verdict in words.

The verdicts are made by queries/report/growth.sql; nothing is printed here.
"""

from __future__ import annotations

from typing import Any

from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

ENOUGH = 3
"""Moments that must compare before anything is said of growth."""

QUIET = "stays"
"""The verdict of what needs no line of its own."""


def as_json(warehouse: Warehouse, device: int | None = None) -> list[Row]:
    """Each device's comparable moments and, where there are enough, a row a stack with its verdict.

    Returns:
        Dicts of device, moment_count, first_step, last_step, can_tell, reason and rows (see the view growth).
    """
    counts = {
        row["device"]: row
        for row in warehouse.rows(
            "select device, count(*) as n, min(step) as first_step, max(step) as last_step from step_begin group by all"
        )
    }
    told: list[Row] = []
    for row in warehouse.rows("select device from device order by device"):
        if device is not None and row["device"] != device:
            continue
        found = counts.get(row["device"], {"n": 0, "first_step": None, "last_step": None})
        can_tell = found["n"] >= ENOUGH
        told.append(
            {
                "device": row["device"],
                "moment_count": found["n"],
                "first_step": found["first_step"],
                "last_step": found["last_step"],
                "can_tell": can_tell,
                "reason": None if can_tell else _too_few(found["n"]),
                "rows": warehouse.rows("from growth where device = ?", [row["device"]]) if can_tell else [],
            }
        )
    return told


def sentences(told: Row) -> list[str]:
    """What is said of one device, in lines of text."""
    if not told["can_tell"]:
        return [f"device {told['device']}: {told['reason']}"]
    steps = f"{told['first_step']:,} to {told['last_step']:,}"
    lines = [f"device {told['device']}: {told['moment_count']:,} moments compared, the beginnings of steps {steps}"]
    for verdict in ("grows", "bursts", "varies", "settles", "shrinks", QUIET):
        rows = [row for row in told["rows"] if row["verdict"] == verdict]
        if not rows:
            continue
        held = sum(row["last_bytes"] for row in rows)
        line = f"{verdict}: {_stacks(len(rows))}, {format_size(held)} at the last of them"
        if verdict == "grows":
            each = sum(row["growth_bytes"] for row in rows)
            line += f", {each:,} bytes more each step"
        lines.append(line)
    if not any(row["verdict"] in ("grows", "bursts") for row in told["rows"]):
        lines.append("nothing grows from step to step")
    return lines


def _stacks(count: int) -> str:
    return "1 stack" if count == 1 else f"{count:,} stacks"


def _too_few(count: int) -> str:
    return (
        f"the recording cannot tell: growth needs the beginnings of {ENOUGH} steps after the first one,"
        f" and it has {count}"
    )
