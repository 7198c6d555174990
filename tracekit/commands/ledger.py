"""`tracekit ledger`: the balanced account at a moment, printed."""

from __future__ import annotations

from typing import Any

import click

from tracekit.commands import options


@click.command("ledger", short_help="The balanced account at a moment.")
@options.dataset
@click.option(
    "--at",
    default="peak",
    show_default=True,
    metavar="MOMENT",
    help="peak, end, start, oom, step:N (the peak of step N) or event:N (the state after event N).",
)
@click.option("--pool", "by_pool", is_flag=True, help="What each pool does with its segments: allocated, idle, pinned.")
@options.device
@options.output_format
@options.quiet
def command(dataset: str, at: str, by_pool: bool, device: int | None, style: str, quiet: bool) -> None:
    """Print where every byte is at a moment: the lines add up to the bytes reserved, to the byte."""
    from tracekit import analysis, ledger, terminal
    from tracekit.commands import account

    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell)
    with warehouse:
        moments = ledger.find_moments(warehouse, at, device)
        accounts: list[dict[str, Any]] = [
            {
                "device": moment.device,
                "moment": moment.name,
                "event_ix": None if moment.event_ix < 0 else moment.event_ix,
                "ledger": ledger.pools(warehouse, moment) if by_pool else ledger.lines(warehouse, moment),
            }
            for moment in moments
        ]
    if style == "json":
        terminal.write_json(accounts[0] if len(accounts) == 1 else accounts)
    elif style == "csv":
        rows = [
            {"device": one["device"], "moment": one["moment"], "event_ix": one["event_ix"], **line}
            for one in accounts
            for line in one["ledger"]
        ]
        terminal.write_rows(rows, style)
    else:
        for one in accounts:
            where = "before the first event" if one["event_ix"] is None else f"after event {one['event_ix']:,}"
            print(f"device {one['device']}, {one['moment']}: {where}\n")
            if by_pool:
                account.write_pools(one["ledger"])
            else:
                account.write_ledger(one["ledger"])
