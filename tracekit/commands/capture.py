"""`tracekit capture`: record a story of the project's own, or any training script, into a run folder.

The stories lie under capture/ and parse their own options; the recorder does the recording.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from tracekit import shipped


def load_story(name: str) -> Any:
    """Import a story from capture/, which is not a package: its files are read as they are, and run as they are."""
    folder = str(shipped.folder("capture"))
    sys.path[:] = [folder, *(path for path in sys.path if path != folder)]
    return importlib.import_module(name)


class _Stories(click.Group):
    """A group whose first story is the one that is meant where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = ["gpt2", *args]
        return super().parse_args(ctx, args)


_HELP = """Record on a GPU: every allocation from before the first one on, and who asked.

\b
tracekit capture                     GPT-2, batch 8, two steps
tracekit capture gpt2 --batch 16     ... as its options say
tracekit capture run train.py ARGS   any script, untouched
tracekit capture activations         what autograd saves; needs no GPU
"""


@click.group(cls=_Stories, help=_HELP, short_help="Record on a GPU: every allocation, and who asked.")
def command() -> None:
    """Without a story's name, the first one is meant."""


_PASS: dict[str, Any] = {"ignore_unknown_options": True, "help_option_names": []}


@command.command(
    "gpt2", short_help="GPT-2's training step (-h lists its options).", context_settings=_PASS, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def gpt2(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """GPT-2's training step on random tokens (-h lists its options)."""
    ctx.exit(load_story("train_step").main(list(arguments), "tracekit capture gpt2"))


@command.command(
    "activations", short_help="What autograd saves; needs no GPU.", context_settings=_PASS, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def activations(ctx: click.Context, arguments: tuple[str, ...]) -> None:
    """What autograd saves, against batch and length; runs on a CPU (-h lists its options)."""
    ctx.exit(load_story("activation_scaling").main(list(arguments), "tracekit capture activations"))


@command.command(
    "run",
    short_help="Any training script, untouched.",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("-o", "--out", type=click.Path(), help="The run folder [SCRIPT's name, with .run].")
@click.option("--force", is_flag=True, help="Replace a recording that is there.")
@click.option("-m", "is_module", is_flag=True, help="SCRIPT is a module's name, as after python -m.")
@click.option("--stacks", type=click.Choice(["all", "python"]), default="all", show_default=True,
              help="python dumps faster, and leaves backward nameless.")  # fmt: skip
@click.option("--context", type=click.Choice(["all", "alloc", "state", "none"]), default="all", show_default=True,
              help="Which events keep a stack.")  # fmt: skip
@click.option("--max-entries", type=click.IntRange(min=1), default=1_000_000, show_default=True,
              help="Events that the ring of a device holds; the newest stay.")  # fmt: skip
@click.option("--every", type=click.IntRange(min=1), metavar="N", help="Make a dump after each N optimizer steps.")
@click.option("--cap", metavar="SIZE", help="Let the allocator have no more than this, like 45440MiB.")
@click.option("--ops", is_flag=True, help="Log every operator; slower, and changes a few allocations.")
@click.option("--no-modules", is_flag=True, help="Do not mark events by module.")
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def run(ctx: click.Context, script: str, arguments: tuple[str, ...], **given: Any) -> None:
    """Run SCRIPT with ARGUMENTS, and record it: at its end, at out of memory, and on SIGUSR1 or SIGTERM.

    Its exit status becomes this command's. With torchrun: torchrun -m tracekit capture run train.py.
    """
    from tracekit.recorder import require_recording
    from tracekit.recorder.script import find_target, run_script
    from tracekit.units import parse_bytes

    try:
        limit = parse_bytes(given["cap"]) if given["cap"] else None
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--cap") from error
    find_target(script, is_module=given["is_module"])
    require_recording()
    options: dict[str, Any] = {
        "context": None if given["context"] == "none" else given["context"],
        "stacks": given["stacks"],
        "max_entries": given["max_entries"],
        "every": given["every"],
        "limit": limit,
        "modules": not given["no_modules"],
        "ops": given["ops"],
        "force": given["force"],
    }
    out = given["out"] or f"{script if given['is_module'] else Path(script).stem}.run"
    status, recorder = run_script(script, list(arguments), is_module=given["is_module"], out=out, options=options)
    if recorder is None:
        click.echo(f"tracekit: {script} never imported torch: nothing was recorded", err=True)
    elif recorder.dumps:
        click.echo(f"recorded in {recorder.folder}; next: tracekit analyze {recorder.folder}", err=True)
    ctx.exit(status)
