"""What autograd saves for the backward pass, against batch and length: the part of training memory that is ours to cut.

Runs on a CPU: a hook on every saved tensor sees what a GPU would have to hold. Knows torch and the model beside it, and
Altair for the picture.

    python capture/activation_scaling.py
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import train_step

if TYPE_CHECKING:
    from gpt2 import GPT2
    from torch import Tensor


@dataclass(frozen=True, slots=True)
class Saved:
    """What one forward pass left for the backward pass.

    Attributes:
        series: batch, sequence, or accumulate (micro-batches of one batch).
        value: the size that the series varies.
        batch: sequences in the (micro-)batch.
        sequence: tokens a sequence.
        checkpoint: whether blocks kept only their input.
        saved_bytes: distinct storages saved, but for parameters and buffers.
        summed_bytes: every tensor saved, as the exercise counts: one that two operators save counts twice, and so do
            parameters.
    """

    series: str
    value: int
    batch: int
    sequence: int
    checkpoint: bool
    saved_bytes: int
    summed_bytes: int


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Measure, print the table, draw the plot; the exit status is for the shell."""
    args = make_parser(prog).parse_args(argv)
    train_step.reach_neighbours()
    try:
        import torch
    except ModuleNotFoundError:
        return train_step.refuse("torch is not installed, and autograd is torch's", "pip install torch (a CPU will do)")
    plot = Path(args.plot)
    if plot.exists() and not args.force:
        return train_step.refuse(f"{plot} exists already", "give --force to replace it, or another file with --plot")
    torch.manual_seed(args.seed)
    rows = measure(args)
    difference = compare_accumulation(args, torch)
    show(rows, difference, args)
    return draw(rows, plot)


def measure(args: argparse.Namespace) -> list[Saved]:
    """Every series, with and without checkpointing."""
    rows: list[Saved] = []
    for checkpoint in (False, True):
        model = make_model(args, max(*args.sequences, args.sequence), checkpoint=checkpoint)
        points = [("batch", batch, batch, args.sequence) for batch in args.batches]
        points += [("sequence", sequence, args.batch, sequence) for sequence in args.sequences]
        points += [("accumulate", parts, max(args.batches) // parts, args.sequence) for parts in args.accumulate]
        rows += [
            Saved(series, value, batch, sequence, checkpoint, *saved_bytes(model, batch, sequence))
            for series, value, batch, sequence in points
        ]
    return rows


def make_model(args: argparse.Namespace, context: int, *, checkpoint: bool) -> GPT2:
    """A GPT-2 small enough for any CPU; the proportions are those of a large one."""
    from gpt2 import GPT2, Config

    return GPT2(Config(args.vocabulary, context, args.width, args.heads, args.layers, "eager", checkpoint))


def saved_bytes(model: GPT2, batch: int, sequence: int) -> tuple[int, int]:
    """One forward pass, every tensor saved in it counted.

    Returns:
        Bytes of distinct storages without the model's own, and bytes of all tensors saved.
    """
    import torch

    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    storages: dict[int, int] = {}
    held: list[Tensor] = []  # or an address would be used again, and two tensors taken for one
    summed = 0

    def pack(tensor: Tensor) -> Tensor:
        nonlocal summed
        summed += tensor.numel() * tensor.element_size()
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
            held.append(tensor.detach())
        return tensor

    tokens = torch.randint(model.config.vocabulary, (batch, sequence + 1))
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model(tokens[:, :-1], tokens[:, 1:])
    return sum(storages.values()), summed


def compare_accumulation(args: argparse.Namespace, torch: Any) -> float:
    """How far gradients summed over micro-batches are from the big batch's: rounding, nothing else.

    Returns:
        The largest difference of any gradient, relative to the largest gradient.
    """
    model = make_model(args, args.sequence, checkpoint=False)
    parts = max(args.accumulate)
    batch = max(args.batches) // parts * parts
    tokens = torch.randint(args.vocabulary, (batch, args.sequence + 1))
    model(tokens[:, :-1], tokens[:, 1:])[1].backward()
    big = take_gradients(model)
    for part in tokens.chunk(parts):
        (model(part[:, :-1], part[:, 1:])[1] / parts).backward()  # each loss is a mean: a part weighs 1 / parts
    small = take_gradients(model)
    largest = max(float(gradient.abs().max()) for gradient in big)
    return max(float((one - two).abs().max()) for one, two in zip(small, big, strict=True)) / largest


def take_gradients(model: GPT2) -> list[Tensor]:
    """The gradients of every parameter; the model has none afterwards."""
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad(set_to_none=True)
    return gradients


# What is said, and drawn


def show(rows: Sequence[Saved], difference: float, args: argparse.Namespace) -> None:
    """Print the table on stdout, for people or as csv or json."""
    if args.format == "json":
        print(json.dumps({"rows": [asdict(row) for row in rows], "accumulation_difference": difference}, indent=1))
        return
    if args.format == "csv":
        writer = csv.DictWriter(sys.stdout, list(asdict(rows[0])), lineterminator="\n")
        writer.writeheader()
        writer.writerows(asdict(row) for row in rows)
        return
    print(f"{'':<12}{'':>6}  {'batch x tokens':>15}{'saved MiB':>12}{'x first':>9}{'checkpointed':>14}{'x less':>8}")
    for series in ("batch", "sequence", "accumulate"):
        plain = [row for row in rows if row.series == series and not row.checkpoint]
        kept = [row for row in rows if row.series == series and row.checkpoint]
        for row, less in zip(plain, kept, strict=True):
            shape = f"{row.batch} x {row.sequence}"
            growth = f"{row.saved_bytes / plain[0].saved_bytes:.2f}"
            ratio = f"{row.saved_bytes / less.saved_bytes:.1f}"
            print(
                f"{series:<12}{row.value:>6}  {shape:>15}{train_step.mib(row.saved_bytes):>12}{growth:>9}"
                f"{train_step.mib(less.saved_bytes):>14}{ratio:>8}"
            )
    print()
    print(
        "Twice the batch saves twice as much. Twice the length saves more than twice: what attention saves grows with"
    )
    print(
        "its square. N micro-batches save an Nth each, and their gradients add up to the big batch's, up to a relative"
    )
    print(f"difference of {difference:.0e}; checkpointing keeps each block's input, and computes the rest again.")


def draw(rows: Sequence[Saved], path: Path) -> int:
    """Draw saved bytes against batch and against length, both axes doubling, into an .svg, .png, .html or .json."""
    try:
        import altair as alt
    except ModuleNotFoundError:
        return train_step.refuse("altair is not installed, so there is no plot", "pip install altair vl-convert-python")
    ways = {False: "all saved", True: "checkpointed"}
    charts: list[Any] = []
    for series, title in (("batch", "sequences in a batch"), ("sequence", "tokens in a sequence")):
        chosen = [row for row in rows if row.series == series]
        values = [
            {"value": row.value, "MiB": row.saved_bytes / train_step.MIB, "way": ways[row.checkpoint]} for row in chosen
        ]
        ticks = sorted({row.value for row in chosen})
        charts.append(
            alt.Chart(alt.Data(values=values), width=280, height=240)
            .mark_line(point=True)
            .encode(
                x=alt.X("value:Q", title=title).scale(type="log", base=2).axis(values=ticks, grid=False),
                y=alt.Y("MiB:Q", title="saved for backward, MiB").scale(type="log", base=2),
                color=alt.Color("way:N", title=None).scale(domain=list(ways.values()), range=["#c44e52", "#4c72b0"]),
            )
        )
    alt.hconcat(*charts, title="What autograd saves: in proportion to the batch, faster than the length").save(
        str(path)
    )
    print(f"drawn in {path}", file=sys.stderr)
    return 0


# What can be asked for


def make_parser(prog: str | None = None) -> argparse.ArgumentParser:
    """Every option."""
    parser = argparse.ArgumentParser(
        prog=prog,
        allow_abbrev=False,
        description="Measure what autograd saves for backward; runs on a CPU in seconds.",
        formatter_class=train_step.Help,
    )
    add = parser.add_argument
    add("--batches", type=numbers, default=[8, 16, 32, 64], metavar="N,N", help="batch sizes")
    add("--sequence", type=train_step.positive, default=64, help="tokens while the batch varies")
    add("--sequences", type=numbers, default=[32, 64, 128, 256], metavar="N,N", help="lengths")
    add("--batch", type=train_step.positive, default=16, help="batch while the length varies")
    add("--accumulate", type=numbers, default=[1, 2, 4], metavar="N,N", help="micro-batches of the largest batch")
    add("--vocabulary", type=train_step.positive, default=128, help="words")
    add("--width", type=train_step.positive, default=128, help="numbers a token")
    add("--heads", type=train_step.positive, default=4, help="attention heads")
    add("--layers", type=train_step.positive, default=4, help="blocks")
    add("--seed", type=int, default=0, help="of weights and tokens")
    add("--plot", default="activation_scaling.svg", help="the picture: .svg, .png, .html or .json")
    add("--force", action="store_true", help="replace a picture that is there")
    add("--format", choices=("table", "csv", "json"), default="table", help="of what is printed")
    return parser


def numbers(text: str) -> list[int]:
    """Whole numbers from 1 on, with commas between them."""
    return [train_step.positive(part.strip()) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main())
