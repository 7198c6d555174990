"""`tracekit why`: one allocation's story, printed."""

from __future__ import annotations

from pathlib import Path

import click

from tracekit.commands import options


@click.command("why", short_help="One allocation's story: who asked, when, how long it lived, which bucket and why.")
@options.dataset
@click.argument("which", metavar="ALLOCATION|event:N|ADDRESS@EVENT")
@options.device
@options.rules
@options.output_format
@options.quiet
def command(dataset: str, which: str, device: int | None, rules: Path | None, style: str, quiet: bool) -> None:
    """Tell one allocation's story.

    It is named by its number (allocation_id), by an event that allocated or freed it (event:3815), or by an address
    that it covered after an event (0x7f2a40000000@3815).
    """
    from tracekit import analysis, story, terminal
    from tracekit.rules import read_rules

    own_rules = None if rules is None else read_rules(rules)
    with terminal.progress(quiet=quiet) as tell:
        warehouse = analysis.open_any(dataset, tell, own_rules)
    with warehouse:
        told = story.find(warehouse, which, device)
        frames = story.frames(warehouse, told["stack_id"])
        sharers = story.sharers(warehouse, told)
    if style == "json":
        terminal.write_json({**told, "frames": frames, "segment_sharers": sharers})
    elif style == "csv":
        terminal.write_rows([told], style)
    else:
        print("\n".join([*story.sentences(told), *story.sharer_sentences(sharers)]))
        if frames:
            print("\nallocated by (innermost first; frames of the recorder and of dispatch left out):")
            for frame in frames:
                if frame["is_telling"]:
                    print("  " + terminal.printable(frame["shown"]))
