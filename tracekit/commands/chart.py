"""`tracekit chart`: one picture of a dataset, written to a file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from tracekit.commands import options

MOST_BINS = 900
STILL_BINS = 180
"""A still picture has no more to show than its pixels."""


@click.command("chart", short_help="One picture: timeline, ledger ... as .html, .svg, .png or .json (Vega-Lite).")
@options.dataset
@click.argument("name", metavar="NAME")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to write; its suffix says how: .html (to look into), .svg, .png, or .json (Vega-Lite with its data).",
)
@click.option(
    "--at",
    metavar="MOMENT",
    help="peak, end, start, oom, step:N, event:N or mark:NAME; each chart has its own usual one.",
)
@click.option("--against", metavar="DATASET", help="The other side of `compare`; two moments of one dataset otherwise.")
@click.option("--against-at", metavar="MOMENT", help="The moment of the other side of `compare`.")
@click.option("--by-time", is_flag=True, help="Draw over time instead of over the number of the event.")
@click.option(
    "--bins",
    type=click.IntRange(1, MOST_BINS),
    metavar="N",
    help="Runs of events that timeline tells apart, keeping the peak of each;"
    f" {STILL_BINS} in .svg and .png, {MOST_BINS} otherwise.",
)
@click.option("--dark", is_flag=True, help="Draw on dark paper.")
@options.device
@options.force
@options.quiet
def command(
    dataset: str,
    name: str,
    output: Path,
    at: str | None,
    against: str | None,
    against_at: str | None,
    by_time: bool,
    bins: int | None,
    dark: bool,
    device: int | None,
    force: bool,
    quiet: bool,
) -> None:
    """Draw one picture.

    \b
    timeline     When did memory rise and fall, what for, and who set the peak?
    step         What does a reading at each layer show of a step, and what does it miss?
    ledger       Where is every byte at this moment?
    compare      What differs between two moments, or between two recordings?
    flame        Which lines of code asked for what is held?
    segments     What lies where, and why did a request not fit?
    allocations  Which single allocations are large, how long do they live, and who asked?
    growth       Does memory grow from step to step, and whose is it?
    sweep        How do the peaks grow with the batch, and where is the ceiling?

    For sweep, DATASET is the folder that `tracekit sweep` left, or what `tracekit fit --format json` wrote.
    """  # noqa: D301 - click's own mark for lines to keep
    from tracekit import analysis, outfile, terminal
    from tracekit.catalog import empty_warehouse
    from tracekit.charts import CHARTS, Request, named, render, sweep
    from tracekit.errors import ChartError

    chart = named(name)
    suffix = render.suffix_of(output)
    outfile.refuse_existing_file(output, force=force)
    with terminal.progress(quiet=quiet) as tell, ExitStack() as opened:
        if chart is CHARTS["sweep"]:
            warehouse, points = opened.enter_context(empty_warehouse()), sweep.read(Path(dataset))
        else:
            warehouse, points = opened.enter_context(analysis.open_any(dataset, tell)), None
        other = None if against is None else opened.enter_context(analysis.open_any(against, tell))
        names = (Path(dataset).stem, Path(against or dataset).stem)
        usual = STILL_BINS if suffix in (".svg", ".png") else MOST_BINS
        request = Request(device, at, other, against_at, names, points, by_time, bins or usual)
        reason = chart.why_not(warehouse, request)
        if reason:
            raise ChartError(f"there is nothing to draw as {name}: {reason}", "choose another chart or dataset")
        tell("drawing")
        tables = chart.data(warehouse, request)
        outfile.write_file(output, render.render(chart, tables, suffix, dark=dark), force=force)
    if not quiet:
        terminal.tell(f"{output}: {chart.describe(tables)}")
