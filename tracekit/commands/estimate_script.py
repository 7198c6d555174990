"""`tracekit estimate SCRIPT.py:BUILD`: a training step of one's own, traced without a GPU and printed."""

from __future__ import annotations

import os
from pathlib import Path

import click

from tracekit.commands import options, run_options


@click.command("estimate", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("model", metavar="SCRIPT.py:BUILD")
@run_options.for_script
@click.option(
    "--with",
    "given",
    multiple=True,
    metavar="NAME=VALUE,...",
    help="Any other argument of BUILD, such as layers=12; several values are compared.",
)
@click.option("--limit", metavar="SIZE", help="Bytes that may be reserved in all, such as 45440MiB.")
@click.option("--card", "card_name", default="h100", show_default=True, help="The GPU: a100, h200, rtx4090, ...")
@click.option(
    "--workspace",
    metavar="TEXT",
    help="cuBLAS's workspace: a size, or as CUBLAS_WORKSPACE_CONFIG writes it (which is read otherwise); the card's by"
    " default.",
)
@click.option("--set", "settings", multiple=True, metavar="KEY:VALUE", help="An allocator option.")
@click.option("--steps", "step_count", type=click.IntRange(1), default=3, show_default=True, help="Steps to run.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Leave the estimate as a dataset.")
@options.force
@options.output_format
@options.quiet
def command(
    model: str,
    given: tuple[str, ...],
    limit: str | None,
    card_name: str,
    workspace: str | None,
    settings: tuple[str, ...],
    step_count: int,
    output: Path | None,
    force: bool,
    style: str,
    quiet: bool,
    **chosen: str | bool | None,
) -> None:
    """Run a training step of your own on the meta device, without a GPU, and put it through the caching allocator.

    BUILD is a function of SCRIPT.py: build(device, ...) returns the model, the optimizer and a function that does one
    training step. Options from --batch to --dropout are handed to it by their names, where it takes such arguments.
    With --limit and several values of one, the largest that fits is searched for. It needs torch (pip install
    'tracekit[capture]'), its CPU build too.
    """
    from tracekit.commands import estimate_traced
    from tracekit.estimate.traced import script

    estimate_traced.write(
        model,
        script.parse_arguments([*(f"{name}={value}" for name, value in chosen.items() if value is not None), *given]),
        limit=limit,
        card_name=card_name,
        workspace=workspace or os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        settings=settings,
        step_count=step_count,
        output=output,
        force=force,
        style=style,
        quiet=quiet,
    )
