"""`tracekit ledger`: the balanced account at a moment, printed."""

from __future__ import annotations

from pathlib import Path
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
    help="peak, end, start, oom, step:N (the peak of step N), event:N (the state after event N), or mark:NAME (where"
    " the recorder read torch's counters).",
)
@click.option("--pool", "by_pool", is_flag=True, help="What each pool does with its segments: allocated, idle, pinned.")
@click.option(
    "--by",
    metavar="COLUMN[,COLUMN]",
    help="Group by one or two of: bucket, phase, step, module, name, layer, operator, node, user-line, stack,"
    " library, stream, pool, evidence, rule.",
)
@click.option("--top", type=click.IntRange(min=1), help="The largest lines only; one line more holds the rest.")
@options.rules
@options.device
@options.output_format
@options.quiet
def command(
    dataset: str,
    at: str,
    by_pool: bool,
    by: str | None,
    top: int | None,
    rules: Path | None,
    device: int | None,
    style: str,
    quiet: bool,
) -> None:
    """Print where every byte is at a moment: the lines add up to the bytes reserved, to the byte.

    With --by, the allocations are grouped by something else than their bucket, or by two things at once: --by
    phase,bucket.
    """
    from tracekit import analysis, ledger, summary, terminal
    from tracekit.commands import account
    from tracekit.rules import read_rules

    columns = _columns(by, top, by_pool=by_pool)
    own_rules = None if rules is None else read_rules(rules)

    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell, own_rules)
    with warehouse:
        accounts: list[dict[str, Any]] = []
        for moment in ledger.find_moments(warehouse, at, device):
            one: dict[str, Any] = {
                "device": moment.device,
                "moment": moment.name,
                "event_ix": None if moment.event_ix < 0 else moment.event_ix,
            }
            if by_pool:
                one["ledger"] = ledger.pools(warehouse, moment)
            elif columns:
                one |= {"by": columns, "ledger": ledger.lines_by(warehouse, moment, columns, top)}
                one["totals"] = ledger.lines(warehouse, moment)
            else:
                one |= {"ledger": ledger.lines(warehouse, moment), "evidence": ledger.evidence(warehouse, moment)}
            accounts.append(one)
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
            elif columns:
                account.write_ledger_by(columns, one["ledger"], one["totals"])
            else:
                account.write_ledger(one["ledger"])
                print(f"\n{summary.evidence_line(one['evidence'])}")


def _columns(by: str | None, top: int | None, *, by_pool: bool) -> list[str]:
    """The columns that --by names, none where it is not given."""
    from tracekit.ledger import GROUPINGS

    if by is None:
        if top is not None:
            raise click.UsageError("--top needs --by")
        return []
    if by_pool:
        raise click.UsageError("give --by or --pool, not both")
    columns = [name.strip().replace("_", "-") for name in by.split(",")]
    unknown = [name for name in columns if name not in GROUPINGS]
    if unknown or len(columns) > 2 or len(set(columns)) < len(columns):
        raise click.BadParameter(f"{by!r}: name one or two different ones of {', '.join(GROUPINGS)}", param_hint="--by")
    return columns
