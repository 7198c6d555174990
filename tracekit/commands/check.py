"""`tracekit check`: the identities that must hold, and the rows where one does not."""

from __future__ import annotations

import sys
from typing import Any

import click

from tracekit.commands import options

_SHOWN = 5


@click.command("check", short_help="The identities that must hold; exit 3 where one does not.")
@options.dataset
@options.output_format
@options.quiet
def command(dataset: str, style: str, quiet: bool) -> None:
    """Check that the account balances: blocks tile their segments, events lead to the final blocks, lines add up.

    Exits with 3 and prints the offending rows where an identity does not hold.
    """
    from tracekit import analysis, ledger, terminal
    from tracekit.terminal import printable

    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell)
    with warehouse:
        failed = ledger.failures(warehouse)
        verdicts = warehouse.rows("select device, is_exact, verdict from replay order by device")
        meanings = {name: warehouse.views[name].doc for name in failed}
    is_clean = not any(failed.values())
    summary: list[dict[str, Any]] = [
        {"check": name, "row_count": len(rows), "a_row_is": meanings[name]} for name, rows in failed.items()
    ]
    if style == "json":
        checks = [{**row, "rows": failed[row["check"]]} for row in summary]
        terminal.write_json({"is_clean": is_clean, "replay": verdicts, "checks": checks})
    elif style == "csv":
        terminal.write_rows(summary, style)
    else:
        for row in verdicts:
            print(f"device {row['device']}: {printable(row['verdict'])}")
        print()
        terminal.write_grid(
            ["check", "", "a row would be"],
            [
                [row["check"], f"{row['row_count']:,} rows" if row["row_count"] else "holds", row["a_row_is"]]
                for row in summary
            ],
            [False, True, False],
        )
        for name, rows in failed.items():
            if rows:
                print(f"\n{name}: {meanings[name]}")
                terminal.write_rows(rows[:_SHOWN], style)
                if len(rows) > _SHOWN:
                    print(f'... and {len(rows) - _SHOWN:,} more: tracekit sql DATASET "from {name}"')
    sys.exit(0 if is_clean else 3)
