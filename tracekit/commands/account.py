"""The printed account: a summary and a ledger whose lines add up, as several verbs show it.

The numbers come finished; only words and the order of lines are decided here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tracekit import ledger, oom, summary, terminal
from tracekit.terminal import exact, mib, printable
from tracekit.warehouse import Warehouse

Row = dict[str, Any]


def write_summary(warehouse: Warehouse, source: str) -> None:
    """How high each device went, when, who asked, and its ledger at the peak."""
    summaries = ledger.summaries(warehouse)
    if not summaries:
        print(f"{printable(source)}: no device has a segment or an event")
    for row in summaries:
        print("\n".join(summary.lines(row, source)))
        print()
        for moment in ledger.find_moments(warehouse, "peak", row["device"]):
            write_ledger(ledger.lines(warehouse, moment))
            print("\n" + "\n".join(summary.basis(*ledger.basis(warehouse, moment))))
        for failed in oom.as_json(warehouse, row["device"], row["oom_count"]):
            print("\n" + "\n".join(oom.sentences(failed)))


def write_ledger_by(by: Sequence[str], grouped: Sequence[Row], rows: Sequence[Row]) -> None:
    """Print an account by other columns than the bucket: `grouped` are its lines, `rows` the account by bucket."""
    names = [name.replace("-", "_") for name in by]
    held = [([exact(row[name]) if row[name] is not None else "" for name in names], row) for row in grouped]
    _write_account(list(by), held, rows)


def write_ledger(rows: Sequence[Row]) -> None:
    """Print an account: its allocations, what they add up to, and what the allocator keeps beside them."""
    _write_account(["bucket"], [([row["bucket"]], row) for row in rows if row["bucket"] not in ledger.BESIDE], rows)


def _write_account(headers: list[str], lines: Sequence[tuple[list[str], Row]], rows: Sequence[Row]) -> None:
    beside = {row["bucket"]: row for row in rows if row["bucket"] in ledger.BESIDE}
    held = [row for row in rows if row["bucket"] not in beside]
    allocated = sum(row["held_bytes"] for row in held)
    requested = sum(row["requested_bytes"] for row in held)
    count = sum(row["allocation_count"] for row in held)
    reserved = sum(row["entry_bytes"] for row in rows)

    cells: list[list[str]] = []

    def add(name: str | list[str], size: int, allocations: int | None) -> None:
        share = f"{100 * size / reserved:.1f} %" if reserved else ""
        told = [name, *[""] * (len(headers) - 1)] if isinstance(name, str) else name
        cells.append([*told, mib(size), f"{size:,}", share, "" if allocations is None else f"{allocations:,}"])

    for name, row in lines:
        add(name, row["requested_bytes"], row["allocation_count"])
    totals = [len(cells)]
    add("requested", requested, count)
    add("block_slack", allocated - requested, None)
    totals.append(len(cells))
    add("allocated", allocated, count)
    if beside["pending_free"]["held_bytes"]:
        add("pending_free", beside["pending_free"]["held_bytes"], beside["pending_free"]["allocation_count"])
    add("cached", beside["cached"]["held_bytes"], None)
    totals.append(len(cells))
    add("reserved", reserved, None)
    terminal.write_grid(
        [*headers, "MiB", "bytes", "share", "allocations"],
        cells,
        [*[False] * len(headers), True, True, True, True],
        totals,
    )


def write_pools(rows: Sequence[Row]) -> None:
    """Print the fragmentation account: its lines add up to the bytes reserved."""
    reserved = sum(row["held_bytes"] for row in rows)
    cells = [
        [
            row["pool"] if row["pool_kind"] == "default" else f"{row['pool']} {row['pool_kind']}",
            str(row["stream"]),
            "small" if row["is_small"] else "large",
            row["line"],
            mib(row["held_bytes"]),
            f"{row['held_bytes']:,}",
            f"{row['piece_count']:,}",
            mib(row["largest_bytes"]),
        ]
        for row in rows
    ]
    cells.append(["reserved", "", "", "", mib(reserved), f"{reserved:,}", "", ""])
    terminal.write_grid(
        ["pool", "stream", "class", "line", "MiB", "bytes", "pieces", "largest MiB"],
        cells,
        [False, True, False, False, True, True, True, True],
        [len(cells) - 1],
    )
