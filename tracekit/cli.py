"""The command line: the group of verbs, and the one place that prints an error for the person.

A verb's own words live in `tracekit.commands.<verb>`; nothing heavy is imported before a verb needs it.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

import click

from tracekit import __version__
from tracekit.errors import TracekitError

VERBS = (
    "capture",
    "analyze",
    "ledger",
    "sql",
    "schema",
    "check",
    "why",
    "growth",
    "chart",
    "report",
    "oom-message",
    "replay",
    "fit",
    "sweep",
    "estimate",
    "compare",
)
"""Every verb in the order of `--help`; each is the click command `command` of `tracekit.commands.<verb>`."""


class _Verbs(click.Group):
    """A group that imports a verb's module when the verb is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if cmd_name not in VERBS:
            return None
        return importlib.import_module(f"tracekit.commands.{name}").command


@click.group(
    cls=_Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Wherever DATASET stands, a snapshot file does too, or - for standard input.",
)
@click.version_option(__version__, prog_name="tracekit")
def tracekit() -> None:
    """Every byte of GPU memory accounted for, exactly, as data you can query.

    Start with: tracekit analyze snapshot.pickle
    """


def main(arguments: list[str] | None = None) -> Any:
    """Run the command line; the console script's entry point."""
    try:
        tracekit.main(arguments, prog_name="tracekit", standalone_mode=True)
    except TracekitError as error:
        click.echo(f"tracekit: {error.problem}", err=True)
        if error.remedy:
            click.echo(error.remedy, err=True)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # whoever read our output has seen enough; keep the interpreter from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)


if __name__ == "__main__":
    main()
