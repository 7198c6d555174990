"""`tracekit report`: the whole page, one self-contained file."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.commands import options


@click.command("report", short_help="The whole page: one file that explains a recording, without a network.")
@options.dataset
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="The page; NAME.html beside the dataset otherwise."
)
@options.device
@options.rules
@options.force
@options.quiet
def command(
    dataset: str, output: Path | None, device: int | None, rules: Path | None, force: bool, quiet: bool
) -> None:
    """Write one HTML file that says what happened: the ledger, the charts, and the rows behind them.

    It needs no network and no other file.
    """
    from tracekit import analysis, outfile, report, terminal
    from tracekit.rules import read_rules

    path = _beside(dataset) if output is None else output
    outfile.refuse_existing_file(path, force=force)
    own_rules = None if rules is None else read_rules(rules)
    with (
        terminal.progress(quiet=quiet) as tell,
        analysis.open_any(dataset, tell, own_rules, in_memory=True) as warehouse,
    ):
        tell("drawing")
        report.write(warehouse, path, report.name_of(dataset), device=device, force=force)
    print(path)


def _beside(source: str) -> Path:
    """NAME.html beside a dataset or a snapshot."""
    from tracekit.analysis import dataset_folder

    path = Path(source)
    return (path if path.suffix == ".tracekit" else dataset_folder(source)).with_suffix(".html")
