"""`tracekit oom-message`: torch's own out-of-memory messages, read into numbers and printed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from tracekit.commands import options


@click.command("oom-message", short_help="Read torch's out-of-memory messages: full or fragmented, and by how much.")
@click.argument("source", metavar="[TEXT|FILE|-]", default="-")
@options.output_format
def command(source: str, style: str) -> None:
    """Read every out-of-memory message in a TEXT, a log FILE or standard input.

    Messages have two decimals, so their numbers are rounded; a recording (tracekit analyze) has them exactly.
    """
    from tracekit import oom_message, terminal

    found = oom_message.parse(_text(source))
    if style == "json":
        terminal.write_json([message.as_dict() for message in found])
    elif style == "csv":
        terminal.write_rows([message.as_dict() for message in found], style)
    else:
        print("\n\n".join("\n".join(oom_message.sentences(message)) for message in found))


def _text(source: str) -> str:
    from tracekit.errors import TracekitError

    if source == "-":
        return sys.stdin.read()
    try:
        # a message is longer than a file's name may be, and asking for it is no error
        is_file = Path(source).is_file()
    except OSError:
        is_file = False
    if not is_file:
        return source
    try:
        return Path(source).read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise TracekitError(f"cannot read {source}: {error}", "give a log or the message itself") from error
