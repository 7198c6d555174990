"""`tracekit growth`: what is held from step to step, and whether it grows, printed."""

from __future__ import annotations

import click

from tracekit.commands import options

_COLUMNS = (
    "device",
    "verdict",
    "growth_bytes",
    "first_bytes",
    "last_bytes",
    "largest_bytes",
    "first_count",
    "last_count",
    "moment_count",
    "requested_by",
    "user_frame",
    "stack_id",
    "size_bytes",
)


@click.command("growth", short_help="What stays, grows, or is freed in bursts from step to step, by stack.")
@options.dataset
@click.option("--all", "is_whole", is_flag=True, help="List what stays the same, too.")
@options.device
@options.output_format
@options.quiet
def command(dataset: str, is_whole: bool, device: int | None, style: str, quiet: bool) -> None:
    """Compare what is held at the beginning of each step, stack by stack.

    The first step is left out: what it makes, such as the optimizer's state, is no growth. With fewer than three
    beginnings left there is no verdict. CSV and JSON hold every stack and exact bytes.
    """
    from tracekit import analysis, growth, terminal
    from tracekit.errors import QueryError

    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell)
    with warehouse:
        told = growth.as_json(warehouse, device)
    if device is not None and not told:
        raise QueryError(f"the recording has no device {device}", "see its devices with: tracekit analyze")
    if style == "json":
        terminal.write_json(told)
    elif style == "csv":
        terminal.write_rows([row for one in told for row in one["rows"]], style, _COLUMNS)
    else:
        for one in told:
            print("\n".join(growth.sentences(one)))
            rows = [row for row in one["rows"] if is_whole or row["verdict"] != growth.QUIET]
            if rows:
                print()
                # one block a step is less than the table's decimals show
                cells = [
                    [
                        row["verdict"],
                        f"{row['growth_bytes']:,}",
                        f"{row['first_bytes']:,}",
                        f"{row['last_bytes']:,}",
                        f"{row['first_count']:,} to {row['last_count']:,}",
                        terminal.exact(row["requested_by"] or f"{row['size_bytes']:,} bytes, no stack"),
                        terminal.exact(row["user_frame"] or ""),
                    ]
                    for row in rows
                ]
                headers = [
                    "verdict",
                    "bytes a step",
                    "first bytes",
                    "last bytes",
                    "allocations",
                    "requested by",
                    "line",
                ]
                terminal.write_grid(headers, cells, [False, True, True, True, True, False, False])
