"""`tracekit fit`: any batch or length from a few recorded ones, and the largest that fits, printed."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from tracekit.commands import options


@click.command("fit", short_help="Any batch from a few recorded ones, and the largest that fits.")
@click.argument("recordings", metavar="VALUE=DATASET...", nargs=-1, required=True)
@click.option("--at", "at", multiple=True, metavar="N,...", help="Values to answer for: 18, 20-24 or 8x768.")
@click.option("--limit", metavar="SIZE", help="Bytes that may be reserved in all, such as 45440MiB.")
@click.option("--margin", metavar="SIZE", default="0", help="Bytes of the limit to keep free.")
@click.option(
    "--set", "settings", multiple=True, metavar="KEY:VALUE", help="An allocator option, as in PYTORCH_CUDA_ALLOC_CONF."
)
@click.option("--variable", metavar="NAME", help="What the values are; batch, or batch,sequence where written 8x512.")
@click.option("--length", type=int, help="With two variables: the second one's value at which the largest is searched.")
@click.option("--make-fit", metavar="N", help="Say what would make a value fit: settings, or buckets to shrink.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Leave the run at one --at as a dataset (else the largest)."
)
@click.option(
    "--chart", type=click.Path(path_type=Path), metavar="FILE", help="The peaks as a picture: .html, .svg, .png, .json."
)
@options.device
@options.force
@options.output_format
@options.quiet
def command(
    recordings: tuple[str, ...],
    at: tuple[str, ...],
    limit: str | None,
    margin: str,
    settings: tuple[str, ...],
    variable: str | None,
    length: int | None,
    make_fit: str | None,
    output: Path | None,
    chart: Path | None,
    device: int | None,
    force: bool,
    style: str,
    quiet: bool,
) -> None:
    """Predict a program at values that never ran, from recordings at others, and find the largest that fits.

    Each size becomes a rule of the value, and the allocator is run again on the stream that results:

    \b
        tracekit fit 8=b8.pickle 16=b16.pickle --limit 45440MiB
        tracekit fit 4x512=a.pickle 8x512=b.pickle 4x1024=c.pickle --at 8x768
    """  # noqa: D301 - click's own mark for lines to keep
    from tracekit import analysis, dataset, fit, terminal, what_if
    from tracekit.commands import fit_chart, fit_request, fit_table
    from tracekit.fit import report

    request = fit_request.parse(recordings, at, limit, margin, variable, length, make_fit)
    if output is not None:
        dataset.refuse_existing(output, force=force)
    if chart is not None:
        fit_chart.check(chart, force=force)
    with ExitStack() as stack, terminal.progress(quiet=quiet) as tell:
        sources: list[fit.Source] = []
        for point, name in request.recordings:
            tell(f"opening {name}")
            warehouse = stack.enter_context(analysis.open_any(name, tell))
            sources.append(fit.read(point, f"{fit.told(point)}={Path(name).name}", warehouse, device))
        tell("matching")
        model = fit.build(request.variables, sources)
        chosen = what_if.chosen_settings(model.template.program.settings, ",".join(settings)) if settings else None
        fitted = fit.fit(
            model, fit.Conditions(request.limit, request.margin, chosen), request.points, request.others, tell
        )
        row = report.as_json(fitted, request.wanted)
        if output is not None:
            point = request.output_point(row["largest"])
            about = {"fitted": [name for _, name in request.recordings], "value": report.value(point)}
            analysis.write_dataset(
                output, fit.tables_at(model, point, fitted.conditions), about, force=force, tell=tell
            )
    fit_table.write(row, style)
    if chart is not None:
        fit_chart.write(row, chart, force=force, quiet=quiet)
    if output is not None and not quiet:
        terminal.tell(f"dataset: {output}")
