"""`tracekit compare`: an estimate against its recording, or any two datasets of one program, printed."""

from __future__ import annotations

from typing import Any

import click

from tracekit.commands import options

Row = dict[str, Any]


@click.command("compare", short_help="An estimate against its recording: what is the same, and what first differs.")
@click.argument("first", metavar="ESTIMATE")
@click.argument("second", metavar="RECORDING")
@options.device
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Divergences to print.")
@options.output_format
@options.quiet
def command(first: str, second: str, device: int | None, top: int, style: str, quiet: bool) -> None:
    """Align two event streams, name the first divergence, and set the accounts at both peaks side by side.

    Both are datasets or snapshots of one program: an estimate left by `tracekit estimate -o` and a recording, or two
    recordings. Allocations are the same where size, step and order agree.
    """
    from tracekit import analysis, compare, terminal

    with terminal.progress(quiet=quiet) as tell:
        sides: list[compare.Side] = []
        for source in (first, second):
            with analysis.open_any(source, tell) as warehouse:
                sides.append(compare.read(source, warehouse, device))
        tell("aligning")
        found = compare.compare(sides[0], sides[1])
    if style == "json":
        terminal.write_json(found.as_json())
    elif style == "csv":
        rows = [
            {"kind": kind, **row} for kind, rows in (("peak", found.peaks), ("bucket", found.buckets)) for row in rows
        ]
        terminal.write_rows(rows, style)
    else:
        _write(found.as_json(), top)


def _write(told: Row, top: int) -> None:
    from tracekit import terminal
    from tracekit.terminal import printable

    counts = (told["first_allocation_count"], told["second_allocation_count"])
    print(f"first: {printable(told['first'])}, {counts[0]:,} allocations")
    print(f"second: {printable(told['second'])}, {counts[1]:,} allocations")
    resized = f", and {told['resized_count']:,} of another size" if told["resized_count"] else ""
    print(f"the same in both, by size, step and order: {told['matched_count']:,}{resized}")
    print(_first(told["first_divergence"]))
    for title, rows in (("at its peak", told["peaks"]), ("bucket", told["buckets"])):
        print()
        terminal.write_grid(
            [title, "first MiB", "second MiB", "difference MiB"],
            [
                [printable(row["name"].replace("_", " ") if title != "bucket" else row["name"])]
                + [_mib(row[name]) for name in ("first_bytes", "second_bytes", "difference_bytes")]
                for row in rows
            ],
            [False, True, True, True],
        )
    if told["divergences"]:
        print()
        terminal.write_rows(told["divergences"][:top], "table")
        rest = told["divergences"][top:]
        if rest:
            size = terminal.mib(sum(row["requested_bytes"] for row in rest))
            print(f"and {len(rest):,} kinds more, {size} MiB together")


def _mib(count: int | None) -> str:
    """MiB without the sign of what rounds to nothing."""
    from tracekit.terminal import mib

    told = mib(count)
    return "0.0" if told == "-0.0" else told


def _first(row: Row | None) -> str:
    from tracekit.terminal import printable
    from tracekit.units import format_size

    if row is None:
        return "they do not diverge"
    where = [f"step {row['step']}"] if row["step"] is not None else []
    where += [row["phase"]] if row["phase"] is not None else []
    asker = f" by {printable(row['requested_by'])}" if row["requested_by"] else ""
    line = f" ({printable(row['user_frame'])})" if row["user_frame"] else ""
    at = "before the first event" if row["birth_event_ix"] is None else f"at event {row['birth_event_ix']:,}"
    return f"first divergence: {row['kind']}: {format_size(row['requested_bytes'])} asked for {at}{asker}{line}" + (
        f", {', '.join(where)}" if where else ""
    )
