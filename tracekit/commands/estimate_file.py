"""What `tracekit estimate MODEL` writes into files: the interactive page and the picture of the moments.

Both are made by the rooms that know them; here they get their files.
"""

from __future__ import annotations

from pathlib import Path

import click

from tracekit import outfile, terminal
from tracekit.estimate.answer import Answer, moment_rows


def write(one: Answer, page: Path | None, chart: Path | None, *, force: bool, quiet: bool) -> None:
    """Write what is asked for.

    Raises:
        OutputError: where a file is in the way or cannot be written.
        ChartError: where a picture's name does not say what to write.
        click.UsageError: where a page is asked for a generation, which has none.
    """
    if page is not None and one.is_generation:
        raise click.UsageError("--page shows a training step; leave out --inference")
    for path in filter(None, (page, chart)):
        outfile.refuse_existing_file(path, force=force)
    if page is not None:
        from tracekit.report.estimate import html

        outfile.write_file(page, html(one).encode(), force=force)
        _tell(str(page), quiet=quiet)
    if chart is not None:
        from tracekit.charts import moments, render

        suffix = render.suffix_of(chart)
        tables = moments.tables(moment_rows(one.estimate), one.limit_bytes)
        outfile.write_file(chart, render.render(moments.PICTURE, tables, suffix), force=force)
        _tell(f"{chart}: {moments.describe(tables)}", quiet=quiet)


def _tell(text: str, *, quiet: bool) -> None:
    if not quiet:
        terminal.tell(text)
