"""The options that verbs share, so that a person who knows one verb knows all.

Only click is imported here; what an option does is for the verb to say.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

Decorated = Callable[..., Any]

output_format = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "csv", "json"]),
    default="table",
    show_default=True,
    help="How to print: MiB for people in a table, exact bytes in CSV and JSON.",
)
quiet = click.option("-q", "--quiet", is_flag=True, help="Say nothing on standard error but errors.")
force = click.option("--force", is_flag=True, help="Replace what is there already.")
device = click.option("--device", type=int, default=None, help="One device only, by its ordinal.")
rules = click.option(
    "--rules",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="CSV",
    help="Bucket rules of your own, which go before the built-in ones; columns as the view bucket_rule.",
)
dataset = click.argument("dataset", metavar="DATASET")
