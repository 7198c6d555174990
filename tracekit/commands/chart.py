"""`tracekit chart`: one picture of a dataset, written to a file."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.commands import options


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
    "--at", metavar="MOMENT", help="peak, end, start, oom, step:N or event:N; each chart has its own usual one."
)
@click.option("--by-time", is_flag=True, help="Draw over time instead of over the number of the event.")
@click.option("--dark", is_flag=True, help="Draw on dark paper.")
@options.device
@options.force
@options.quiet
def command(
    dataset: str,
    name: str,
    output: Path,
    at: str | None,
    by_time: bool,
    dark: bool,
    device: int | None,
    force: bool,
    quiet: bool,
) -> None:
    r"""Draw one picture.

    \b
    timeline     When did memory rise and fall, what for, and who set the peak?
    ledger       Where is every byte at this moment?
    """
    from tracekit import analysis, outfile, terminal
    from tracekit.charts import Request, named, render
    from tracekit.errors import ChartError

    chart = named(name)
    suffix = render.suffix_of(output)
    outfile.refuse_existing_file(output, force=force)
    with terminal.progress(quiet=quiet) as tell:
        with analysis.open_any(dataset, tell) as warehouse:
            request = Request(device, at, by_time=by_time)
            reason = chart.why_not(warehouse, request)
            if reason:
                raise ChartError(f"there is nothing to draw as {name}: {reason}", "")
            tell("drawing")
            tables = chart.data(warehouse, request)
        outfile.write_file(output, render.render(chart, tables, suffix, dark=dark), force=force)
    if not quiet:
        terminal.tell(f"{output}: {chart.describe(tables)}")
