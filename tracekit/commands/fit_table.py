"""How the answers of `tracekit fit` are printed: a line a point, then the largest, the failures and the notes.

The rows come finished from `tracekit.fit.report`; only words are decided here.
"""

from __future__ import annotations

from typing import Any

from tracekit import terminal
from tracekit.commands import trial_table
from tracekit.terminal import mib, printable

Row = dict[str, Any]


def write(row: Row, style: str) -> None:
    """Print what was found."""
    if style == "json":
        terminal.write_json(row)
    elif style == "csv":
        terminal.write_rows([flat(point) for point in row["points"]], style)
    else:
        _write_points(row)
        _write_largest(row)
        for point in row["points"]:
            if point["oom"] is not None:
                print("\n" + "\n".join(_failure(row, point)))
        if "make_fit" in row:
            _write_make_fit(row)
        print()
        for note in row["notes"]:
            print(f"- {printable(note)}")


def flat(point: Row) -> Row:
    """A point as a row of CSV."""
    oom: Row = point["oom"] or {}
    names = ("event_ix", "request_bytes", "allocated_bytes", "reserved_bytes", "requested_by")
    lowest_allocated, highest_allocated = point["allocated_range_bytes"]
    lowest_reserved, highest_reserved = point["reserved_range_bytes"]
    kept = {key: value for key, value in point.items() if not isinstance(value, dict | list) and key != "oom"}
    return kept | {
        "allocated_by": point["allocated_by"]["requested_by"],
        "reserved_by": point["reserved_by"]["requested_by"],
        "lowest_allocated_bytes": lowest_allocated,
        "highest_allocated_bytes": highest_allocated,
        "lowest_reserved_bytes": lowest_reserved,
        "highest_reserved_bytes": highest_reserved,
        **{f"oom_{name}": oom.get(name) for name in names},
    }


def _write_points(row: Row) -> None:
    points = row["points"]
    is_spread = any(low != high for point in points for low, high in _ranges(point))
    headers = [_variable(row), "", "allocated MiB", "set by", "reserved MiB", "fits"]
    cells = [
        [
            str(point["value"]),
            _kind(point),
            mib(point["allocated_bytes"]),
            _setter(point["allocated_by"]),
            mib(point["reserved_bytes"]),
            _fits(point),
        ]
        for point in points
    ]
    right = [True, False, True, False, True, False]
    if is_spread:
        headers.insert(5, "reserved, range")
        right.insert(5, True)
        for line, point in zip(cells, points, strict=True):
            low, high = point["reserved_range_bytes"]
            line.insert(5, "" if low == high else f"{mib(low)} to {mib(high)}")
    terminal.write_grid(headers, cells, right)


def _ranges(point: Row) -> list[tuple[int, int]]:
    return [tuple(point["reserved_range_bytes"])]


def _kind(point: Row) -> str:
    if point["kind"] == "measured":
        return "measured"
    ratio = point["extrapolation"]
    where = "below" if point["is_below"] else "beyond"
    return "predicted" if ratio == 1 else f"predicted, {ratio:.3g} x {where}"


def _setter(asked: Row) -> str:
    who = printable(asked["requested_by"] or "")
    where = ", ".join(
        str(part) for part in (None if asked["step"] is None else f"step {asked['step']}", asked["phase"]) if part
    )
    return f"{who} ({where})" if who and where else who or where


def _fits(point: Row) -> str:
    if point["fits"]:
        times = point["retry_count"]
        return "yes" if not times else f"yes, after {times:,} release{'s' if times > 1 else ''} of its cache"
    if point["fitting_run_count"]:
        return f"no: not in {point['run_count'] - point['fitting_run_count']} of {point['run_count']} runs"
    return "no"


def _variable(row: Row) -> str:
    return row["variable"] if isinstance(row["variable"], str) else " x ".join(row["variable"])


def _write_largest(row: Row) -> None:
    if row["limit_bytes"] is None:
        return
    name = row["variable"] if isinstance(row["variable"], str) else row["variable"][0]
    margin = f" with {mib(row['margin_bytes'])} MiB to spare" if row["margin_bytes"] else ""
    limit = f"{mib(row['limit_bytes'])} MiB{margin}"
    at = f" at {row['variable'][1]} {row['searched_at'][0]}" if row.get("searched_at") else ""
    if row["largest"] is None:
        print(f"\nno {name}{at} fits {limit}")
    else:
        print(f"\nthe largest {name}{at} that fits {limit}: {row['largest']}")


def _failure(row: Row, point: Row) -> list[str]:
    lines = trial_table.oom_sentences(point["oom"])
    return [f"{_variable(row)} {point['value']} runs out of memory {lines[0]}", *lines[1:]]


def _write_make_fit(row: Row) -> None:
    made = row["make_fit"]
    print(f"\nwhat would make {_variable(row)} {made['value']} fit, each by a run:")
    terminal.write_grid(
        ["settings", "allocated MiB", "reserved MiB", "fits"],
        [
            [one["name"], mib(one["allocated_bytes"]), mib(one["reserved_bytes"]), "yes" if one["fits"] else "no"]
            for one in made["settings"]
        ],
        [False, True, True, False],
    )
    print()
    terminal.write_grid(
        ["bucket", "at most MiB", "fits at", "then allocated MiB", "then reserved MiB"],
        [
            [
                printable(one["bucket"]),
                mib(one["held_bytes"]),
                "not even without it" if one["fits_at_percent"] is None else f"{one['fits_at_percent']} %",
                "" if one["fits_at_percent"] is None else mib(one["allocated_bytes"]),
                "" if one["fits_at_percent"] is None else mib(one["reserved_bytes"]),
            ]
            for one in made["buckets"]
        ],
        [False, True, True, True, True],
    )
