"""`tracekit estimate`: a step that never ran on a GPU. What MODEL is decides which of the kinds of estimate is meant.

Each kind has a module with its own options; nothing else is decided here.
"""

from __future__ import annotations

import click


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> None:
    """A step that never ran on a GPU: its ledger, its peak, whether it fits (-h lists its options)."""
    from tracekit.commands import estimate_model, estimate_script
    from tracekit.estimate.traced.script import is_script

    kind = estimate_script if any(map(is_script, arguments)) else estimate_model
    kind.command.main(list(arguments), prog_name="tracekit estimate", standalone_mode=False)
