"""`tracekit sweep`: record the training step at several batch sizes, one fresh process a size.

The sweep itself is capture/batch_sweep.py, which parses its own options.
"""

from __future__ import annotations

import click

from tracekit.commands.capture import load_story


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def command(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """Record a batch sweep on a GPU (-h lists its options)."""
    ctx.exit(load_story("batch_sweep").main(list(arguments), "tracekit sweep"))
