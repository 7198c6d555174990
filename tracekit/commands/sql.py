"""`tracekit sql`: ad-hoc SQL over a dataset's tables and views, one query or a prompt."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.commands import options


@click.command("sql", short_help="Ad-hoc SQL over the tables and views.")
@options.dataset
@click.argument("query", required=False)
@click.option(
    "--file",
    "-f",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read the query from a file.",
)
@click.option(
    "--rows",
    "most",
    type=click.IntRange(min=0),
    default=1000,
    show_default=True,
    help="Print at most this many rows of a table; 0 for all. CSV and JSON always hold all.",
)
@options.rules
@options.output_format
@options.quiet
def command(
    dataset: str, query: str | None, file: Path | None, most: int, rules: Path | None, style: str, quiet: bool
) -> None:
    """Run one QUERY in DuckDB's SQL and print its rows; without a query, start a prompt.

    A query sees the tables and views of `tracekit schema`, no other file and no network, and changes nothing.
    """
    from tracekit import analysis, prompt, terminal
    from tracekit.errors import QueryError
    from tracekit.rules import read_rules

    if query is not None and file is not None:
        raise click.UsageError("give a query or --file, not both")
    if file is not None:
        try:
            query = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise QueryError(f"cannot read {file}: {error}", "give a text file that holds one query") from error
    own_rules = None if rules is None else read_rules(rules)
    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell, own_rules)
    with warehouse:
        if query is None:
            prompt.run(warehouse, style, most)
        else:
            prompt.write_result(warehouse.sql(query), style, most)
