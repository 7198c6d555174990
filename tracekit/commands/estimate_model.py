"""`tracekit estimate MODEL`: a known model by formula, printed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tracekit.commands import options, run_options

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("estimate", context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.argument("model", metavar="[MODEL]", required=False)
@run_options.run
@click.option("--inference", is_flag=True, help="Generate instead of training: weights and KV cache.")
@click.option("--card", metavar="NAME", help="A GPU: its memory is the limit, its generation the workspaces.")
@click.option("--limit", metavar="SIZE", help="Bytes that may be reserved, such as 80GiB: does it fit, and what helps?")
@click.option("--moments", "view", flag_value="moments", help="Which kind of tensor is alive when: nine moments.")
@click.option("--tensors", "view", flag_value="tensors", help="Every kind of tensor at the peak, with its formula.")
@click.option("--levers", "view", flag_value="levers", help="What could be changed, what it saves and what it costs.")
@click.option("--page", type=_FILE, metavar="FILE", help="An interactive page to choose all of this in; no network.")
@click.option("--chart", type=_FILE, metavar="FILE", help="The moments as a picture: .html, .svg, .png or .json.")
@options.force
@options.output_format
@options.quiet
def command(
    model: str | None,
    inference: bool,
    card: str | None,
    limit: str | None,
    view: str | None,
    page: Path | None,
    chart: Path | None,
    force: bool,
    style: str,
    quiet: bool,
    **chosen: Any,
) -> None:
    """Where the bytes of a training step will be, by formula, before anything runs.

    MODEL is a preset (without it they are listed) or a local config.json as transformers writes it. A training step of
    your own, SCRIPT.py:BUILD, is traced instead: tracekit estimate SCRIPT.py:BUILD -h lists the options for that.
    """
    from tracekit import units
    from tracekit.commands import estimate_file, estimate_table
    from tracekit.estimate.answer import answer
    from tracekit.estimate.config import find_shape
    from tracekit.estimate.traced import cards

    if model is None:
        estimate_table.write_presets(style)
        return
    shape = find_shape(model)
    on = None if card is None else cards.card(card)
    try:
        limit_bytes = units.parse_bytes(limit) if limit else None if on is None else on.total_bytes
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--limit") from error
    run = run_options.make_run(shape, on, **chosen)
    told = answer(shape, run, is_generation=inference, limit_bytes=limit_bytes)
    if page is None and chart is None:
        estimate_table.write(told, view, style)
    else:
        estimate_file.write(told, page, chart, force=force, quiet=quiet)
