"""The picture of `tracekit fit --chart`: the same as `tracekit chart` draws of what it wrote as JSON.

Nothing is predicted or drawn here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

Row = dict[str, Any]


def check(path: Path, *, force: bool) -> None:
    """Say before a long prediction what would stop the picture.

    Raises:
        ChartError: where the name does not say what to write.
        OutputError: where the file exists and force is not given.
    """
    from tracekit import outfile
    from tracekit.charts import render

    render.suffix_of(path)
    outfile.refuse_existing_file(path, force=force)


def write(row: Row, path: Path, *, force: bool, quiet: bool) -> None:
    """Draw what was found, see `tracekit.fit.report.as_json`.

    Raises:
        OutputError: where the file cannot be written.
    """
    from tracekit import outfile, terminal
    from tracekit.charts import render, sweep

    tables = sweep.tables(sweep.of_fit(row))
    outfile.write_file(path, render.render(sweep.CHART, tables, render.suffix_of(path)), force=force)
    if not quiet:
        terminal.tell(f"{path}: {sweep.describe(tables)}")
