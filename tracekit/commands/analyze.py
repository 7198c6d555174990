"""`tracekit analyze`: the main job. What it prints is put together here; what it says is computed elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tracekit.commands import options

if TYPE_CHECKING:
    from tracekit.warehouse import Warehouse

REPORT = "report.html"
"""The page in a dataset's folder, which no reader of the dataset asks for."""


@click.command("analyze", short_help="The main job: a snapshot becomes a dataset and a balanced account.")
@click.argument("snapshots", metavar="SNAPSHOT...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Where the dataset goes; NAME.tracekit beside the snapshot otherwise. Of several, their parent folder.",
)
@options.rules
@click.option(
    "--report/--no-report",
    "has_report",
    default=True,
    help="Whether to leave the page report.html in the dataset (the default).",
)
@options.force
@options.output_format
@options.quiet
def command(
    snapshots: tuple[str, ...],
    output: Path | None,
    rules: Path | None,
    has_report: bool,
    force: bool,
    style: str,
    quiet: bool,
) -> None:
    """Turn each SNAPSHOT into a dataset and print how high memory went, when, who asked, and where every byte is.

    A snapshot is a file written by torch.cuda.memory._dump_snapshot (pickle or JSON, also compressed with gzip, xz,
    zstd or bzip2), a run folder left by tracekit capture, of which all is used, or - for standard input. A folder of
    run folders stands for each of them. Rules given with --rules stay in the dataset. The page report.html in the
    dataset shows it all; it opens in any browser and needs no network.
    """
    from tracekit import analysis, ledger, oom, terminal
    from tracekit.commands import account
    from tracekit.rules import read_rules
    from tracekit.warehouse import Warehouse

    own_rules = None if rules is None else read_rules(rules)
    results: list[dict[str, Any]] = []
    recordings = [one for source in snapshots for one in analysis.recordings(source, _say(quiet))]
    for recording in recordings:
        source, folder = recording.source, recording.folder
        if output is not None:
            folder = output / recording.name if len(recordings) > 1 else output
        with terminal.progress(quiet=quiet) as tell:
            analysis.analyze(source, folder, force=force, tell=tell, rules=own_rules)
        with Warehouse.open(folder, in_memory=has_report) as warehouse:
            if style == "table":
                account.write_summary(warehouse, source)
            else:
                devices = ledger.as_json(warehouse)
                for device in devices:
                    device["oom"] = oom.as_json(warehouse, device["device"], device["oom_count"])
                page = str(folder / REPORT) if has_report else None
                results.append({"snapshot": source, "dataset": str(folder), "report": page, "devices": devices})
            if has_report:
                _write_report(warehouse, folder, quiet=quiet)
        if not quiet:
            terminal.tell(f"dataset: {folder}")
            if has_report:
                terminal.tell(f"report: {folder / REPORT}")
    if style == "json":
        terminal.write_json(results[0] if len(results) == 1 else results)
    elif style == "csv":
        terminal.write_rows(
            [
                {"snapshot": result["snapshot"], "device": device["device"], **line}
                for result in results
                for device in result["devices"]
                for line in device["ledger"]
            ],
            style,
            [
                "snapshot",
                "device",
                "bucket",
                "requested_bytes",
                "held_bytes",
                "allocation_count",
                "entry_bytes",
            ],
        )


def _say(quiet: bool) -> Callable[[str], None]:
    """What talks to the person, or keeps silent."""
    from tracekit import terminal

    return (lambda _: None) if quiet else terminal.tell


def _write_report(warehouse: Warehouse, folder: Path, *, quiet: bool) -> None:
    from tracekit import report, terminal

    with terminal.progress(quiet=quiet) as tell:
        tell("drawing the report")
        report.write(warehouse, folder / REPORT, report.name_of(str(folder)))
