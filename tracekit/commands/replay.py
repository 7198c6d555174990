"""`tracekit replay`: what if the allocator were set otherwise, or the card smaller, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands import options


@click.command("replay", short_help="What if the allocator were set otherwise, or the card smaller.")
@options.dataset
@click.option(
    "--set", "settings", multiple=True, metavar="KEY:VALUE", help="An allocator option, as in PYTORCH_CUDA_ALLOC_CONF."
)
@click.option("--limit", metavar="SIZE", help="Bytes that may be reserved in all, such as 45440MiB.")
@click.option(
    "--compare",
    metavar="A,B,...",
    help="Several settings in one table: recorded, default, or options joined by +.",
)
@click.option("--suggest", is_flag=True, help="Try the sensible settings and rank them by reserved peak.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Leave the run as a dataset (one set of settings)."
)
@options.device
@options.force
@options.output_format
@options.quiet
def command(
    dataset: str,
    settings: tuple[str, ...],
    limit: str | None,
    compare: str | None,
    suggest: bool,
    output: Path | None,
    device: int | None,
    force: bool,
    style: str,
    quiet: bool,
) -> None:
    """Run the recorded program again through the caching allocator, without a GPU.

    Options given by --set are laid over those of the recording; several tables are compared by --compare, as in
    --compare recorded,expandable_segments:True,max_split_size_mb:256+roundup_power2_divisions:4.
    """
    from tracekit import analysis, terminal, units, what_if
    from tracekit.commands import trial_table

    if sum((bool(settings), compare is not None, suggest)) > 1:
        raise click.UsageError("give one of --set, --compare and --suggest")
    names = [*what_if.SUGGESTED] if suggest else compare.split(",") if compare else [",".join(settings)]
    if output is not None and len(names) > 1:
        raise click.UsageError("--output takes one set of settings")
    try:
        limit_bytes = None if limit is None else units.parse_bytes(limit)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--limit") from error
    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell)
        tell("replaying")
        recording = what_if.recorded(warehouse, device)
        done = what_if.trials(
            recording, ["recorded", *names] if suggest else names, limit_bytes, keeps_events=output is not None
        )
        if output is not None:
            analysis.write_dataset(
                output,
                what_if.tables_of(recording, done),
                {"replayed": str(dataset), "settings": done[0].name},
                force=force,
                tell=tell,
            )
    with warehouse:
        rows: list[dict[str, Any]] = [what_if.as_json(warehouse, trial) for trial in done]
    if suggest:
        rows.sort(key=lambda row: (row["device"], not row["fits"], row["peak_reserved_bytes"]))
    if style == "json":
        terminal.write_json(rows[0] if len(rows) == 1 else rows)
    elif style == "csv":
        terminal.write_rows([trial_table.flat(row) for row in rows], style)
    else:
        trial_table.write(rows)
    if output is not None and not quiet:
        terminal.tell(f"dataset: {output}")
