"""Train GPT-2 for two steps on random tokens, and read the memory after every line.

Knows torch, the model beside it, and of tracekit only the recorder; what the recording means is for `tracekit analyze`.

    python capture/train_step.py --batch 8 --sequence 1024
    python capture/train_step.py --device cpu --batch 1 --sequence 64     # no GPU: what can be seen without one
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from gpt2 import GPT2
    from torch import Tensor

HERE = Path(__file__).resolve().parent
MIB = 2**20
OPTIMIZERS = ("adamw", "adamw-fused", "adamw-loop", "adam", "sgd", "sgd-momentum", "rmsprop", "adagrad", "adafactor")
PRECISIONS = ("fp32", "bf16", "autocast-bf16")


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the story; the exit status is for the shell."""
    args = make_parser(prog).parse_args(argv)
    reach_neighbours()
    from tracekit.recorder import Recorder, RecordingError

    try:
        import torch
    except ModuleNotFoundError:
        return refuse("torch is not installed, and there is no story without it", "install it with: pip install torch")
    try:
        recorder: Any = Unrecorded() if args.device == "cpu" else Recorder(out_folder(args), **recorder_options(args))
        report = tell(args, torch, recorder)
    except RecordingError as error:
        hint = "; --device cpu shows what can be seen without a GPU" if "GPU" in error.problem else ""
        return refuse(error.problem, error.remedy + hint)
    show(report, args.format)
    if args.device == "cuda" and not args.no_history and not recorder.dumps:
        return refuse("nothing was recorded, for the reason above", f"look at the notes in {recorder.folder}")
    return 0


def tell(args: argparse.Namespace, torch: Any, recorder: Any) -> dict[str, Any]:
    """Train under a recorder, and say what was seen; running out of memory is an answer too."""
    losses: list[float] = []
    step_s: list[float] = []
    saved: list[int] = []
    try:
        with recorder:
            recorder.note(story="gpt2", **settings(args))
            train(args, torch, recorder, losses, step_s, saved)
    except torch.cuda.OutOfMemoryError:
        pass  # it was recorded when it happened, and is reported below
    out_of_memory = recorder.out_of_memory[-1] if recorder.out_of_memory else None
    marks = [mark for mark in recorder.marks if mark.label not in ("begin", "end_of_recording")]
    return {
        "run": str(recorder.folder) if isinstance(getattr(recorder, "folder", None), Path) else None,
        **settings(args),
        "parameter_count": recorder.facts.get("parameter_count"),
        "losses": losses,
        "expected_first_loss": math.log(args.vocabulary),
        "step_s": step_s,
        "saved_bytes": saved,
        "fits": out_of_memory is None,
        "out_of_memory": out_of_memory,
        "peak_allocated_bytes": max((mark.peak_allocated_bytes for mark in marks), default=None),
        "peak_reserved_bytes": max((mark.peak_reserved_bytes for mark in marks), default=None),
        "lines": lines(marks),
        "labels": getattr(recorder, "labels", []),
    }


def train(
    args: argparse.Namespace, torch: Any, r: Any, losses: list[float], step_s: list[float], saved: list[int]
) -> None:
    """The story itself: a model, an optimizer, and some steps, each line of which is a phase of the recording."""
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high" if args.tf32 else "highest")
    device = torch.device(args.device)

    with r.phase("warmup"):
        warm_up(torch, device)

    with r.phase("load_model"):
        model = make_model(args).to(device)
    r.note(parameter_count=model.parameter_count())

    optimizer = make_optimizer(args, torch, model)
    r.watch(model=model, optimizer=optimizer)
    r.mark("optimizer")  # nothing yet: its state comes with the first step

    for _ in range(args.steps):
        begin_s = time.perf_counter()
        step_losses = train_once(args, torch, r, device, model, optimizer, saved)
        losses.append(sum(float(part) for part in step_losses))
        if device.type == "cuda":
            torch.cuda.synchronize()
        step_s.append(round(time.perf_counter() - begin_s, 4))
        r.note(losses=losses, step_s=step_s)
        r.step()


def warm_up(torch: Any, device: torch.device) -> None:
    """The first product brings the library's scratch pad, 8.1 MiB on most GPUs, 32 on a Hopper."""
    warm = torch.randn(64, 64, device=device)
    warm = warm @ warm
    del warm


def train_once(
    args: argparse.Namespace,
    torch: Any,
    r: Any,
    device: torch.device,
    model: GPT2,
    optimizer: torch.optim.Optimizer,
    saved: list[int],
) -> list[Tensor]:
    """One step; the loss of each micro-batch."""
    losses: list[Tensor] = []
    for _ in range(args.accumulate):
        with r.phase("data"):
            buffer = torch.randint(args.vocabulary, (args.batch, args.sequence + 1), device=device)  # (B, T + 1)
            tokens, targets = buffer[:, :-1], buffer[:, 1:]  # (B, T) each, the second one word ahead
        with r.phase("forward"), precision(args, torch), count_saved(args, torch, model, saved):
            logits, loss = model(tokens, targets)
            loss = loss / args.accumulate
        with r.phase("backward"):
            loss.backward()
        losses.append(loss.detach())
        del logits, loss, tokens, targets  # a name is a reference: logits alone would keep B x T x V numbers alive
    with r.phase("optimizer"):
        optimizer.step()
    with r.phase("zero_grad"):
        optimizer.zero_grad(set_to_none=True)
    return losses


def build(device: torch.device, **options: Any) -> tuple[GPT2, torch.optim.Optimizer, Callable[[], list[Tensor]]]:
    """The same step without a GPU, for `tracekit estimate capture/train_step.py:build --batch 8`.

    Args:
        device: where it runs.
        options: as the command line has them, with underscores: batch, sequence, precision, optimizer, ...
    """
    reach_neighbours()
    import torch

    parser = make_parser()
    args = parser.parse_args([])
    unknown = options.keys() - vars(args).keys()
    if unknown:
        raise ValueError(f"there is no option {', '.join(sorted(unknown))}; there are {', '.join(vars(args))}")
    parser.exit_on_error = False
    for name, value in options.items():
        if isinstance(value, bool) or value is None:
            setattr(args, name, value)
        else:
            parser.parse_args([f"--{name.replace('_', '-')}={value}"], args)
    warm_up(torch, device)
    model = make_model(args).to(device)
    optimizer = make_optimizer(args, torch, model)
    return model, optimizer, lambda: train_once(args, torch, Unrecorded(), device, model, optimizer, [])


def make_model(args: argparse.Namespace) -> GPT2:
    """The model, on the CPU still."""
    from gpt2 import GPT2, Config

    config = Config(
        vocabulary=args.vocabulary,
        context=max(args.sequence, args.context_length),
        width=args.width,
        heads=args.heads,
        layers=args.layers,
        attention=args.attention,
        checkpoint=args.checkpoint,
    )
    model = GPT2(config)
    return model.bfloat16() if args.precision == "bf16" else model


def make_optimizer(args: argparse.Namespace, torch: Any, model: GPT2) -> torch.optim.Optimizer:
    """The optimizer by its name in `OPTIMIZERS`; foreach is what torch itself chooses on a GPU."""
    make, options = {
        "adamw": (torch.optim.AdamW, {}),
        "adamw-fused": (torch.optim.AdamW, {"fused": True}),
        "adamw-loop": (torch.optim.AdamW, {"foreach": False}),
        "adam": (torch.optim.Adam, {}),
        "sgd": (torch.optim.SGD, {}),
        "sgd-momentum": (torch.optim.SGD, {"momentum": 0.9}),
        "rmsprop": (torch.optim.RMSprop, {}),
        "adagrad": (torch.optim.Adagrad, {}),
        "adafactor": (getattr(torch.optim, "Adafactor", None), {}),  # torch 2.5 and later
    }[args.optimizer]
    if make is None:
        raise SystemExit(refuse(f"torch {torch.__version__} has no Adafactor", "choose another --optimizer", status=2))
    return make(model.parameters(), lr=3e-4, **options)


def precision(args: argparse.Namespace, torch: Any) -> Any:
    """Autocast around the forward pass, where asked for."""
    if args.precision == "autocast-bf16":
        return torch.autocast(args.device, dtype=torch.bfloat16)
    return nullcontext()


@contextmanager
def count_saved(args: argparse.Namespace, torch: Any, model: GPT2, saved: list[int]) -> Iterator[None]:
    """On a CPU, count what autograd saves for backward: each storage once, the model's own not at all.

    On a GPU the recording shows it, and a hook would change what is allocated.
    """
    if args.device != "cpu":
        yield
        return
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    storages: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        yield
    saved.append(sum(storages.values()))


class Unrecorded:
    """What stands where the recorder would, on a CPU: it knows the lines, and no memory."""

    def __init__(self) -> None:
        self.labels: list[str] = []
        self.marks: list[Any] = []
        self.out_of_memory: list[Any] = []
        self.facts: dict[str, Any] = {}
        self.count = 0

    def __enter__(self) -> Unrecorded:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Know that the block was run."""
        yield
        self.mark(name if name in ("warmup", "load_model") else f"{self.count + 1}.{name}")

    def mark(self, label: str) -> None:
        """Know the line."""
        self.labels.append(label)

    def note(self, **facts: Any) -> None:
        """Keep facts."""
        self.facts.update(facts)

    def watch(self, **_: object) -> None:
        """Nothing to watch for."""

    def step(self) -> None:
        """Count a step."""
        self.count += 1


# What is said, and where


def lines(marks: Sequence[Any]) -> list[dict[str, Any]]:
    """The line-by-line table: bytes after each line, and what the line changed."""
    rows: list[dict[str, Any]] = []
    before = 0
    for mark in marks:
        rows.append(
            {
                "after": mark.label,
                "allocated_bytes": mark.allocated_bytes,
                "change_bytes": mark.allocated_bytes - before,
                "peak_allocated_bytes": mark.peak_allocated_bytes,
                "reserved_bytes": mark.reserved_bytes,
            }
        )
        before = mark.allocated_bytes
    return rows


def show(report: dict[str, Any], form: str) -> None:
    """Print the report on stdout: a table for people, or csv or json."""
    if form == "json":
        print(json.dumps({key: value for key, value in report.items() if key != "labels"}, indent=1))
        return
    columns: list[str] = ["after", "allocated_bytes", "change_bytes", "peak_allocated_bytes", "reserved_bytes"]
    rows = report["lines"] or [{"after": label} for label in report["labels"]]
    if form == "csv":
        writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        return
    print(f"{'after':<18}{'allocated MiB':>15}{'change MiB':>13}{'peak MiB':>13}{'reserved MiB':>15}")
    for row in rows:
        allocated, change, peak, reserved = (row.get(name) for name in columns[1:])
        print(
            f"{row['after']:<18}{mib(allocated):>15}{mib(change, '+'):>13}{mib(peak):>13}{mib(reserved):>15}".rstrip()
        )
    print()
    if not report["lines"]:
        print("memory is unavailable: a CPU's allocator counts nothing. What follows needs no GPU.")
    if report["parameter_count"] is not None:
        print(f"{report['parameter_count']:,} parameters")
    print(judge_loss(report["losses"], report["expected_first_loss"]))
    if report["saved_bytes"]:
        print(f"autograd saves {mib(report['saved_bytes'][0])} MiB for each backward pass")
    if report["peak_allocated_bytes"] is not None:
        print(
            f"peak {mib(report['peak_allocated_bytes'])} MiB allocated, {mib(report['peak_reserved_bytes'])} reserved"
        )
    end = report["out_of_memory"]
    if end:
        print(f"out of memory in step {end['step']}, {end['phase']}: no {mib(end['missing_bytes'])} MiB more")
    if report["run"]:
        print(f"recorded in {report['run']}; next: tracekit analyze {report['run']}")


def judge_loss(losses: Sequence[float], expected: float) -> str:
    """The sanity check: a model that has learned nothing is equally unsure about every word."""
    if not losses:
        return "no step was completed, so there is no loss to check"
    verdict = "as it should be" if abs(losses[0] - expected) < 0.5 else "too far off: do not trust this loop"
    return f"first loss {losses[0]:.2f}, and a uniform guess gives ln(vocabulary) = {expected:.2f}: {verdict}"


def mib(count: int | None, sign: str = "") -> str:
    """Bytes as MiB, or a dash where nobody counted."""
    return "-" if count is None else f"{count / MIB:{sign},.1f}"


def refuse(problem: str, remedy: str, status: int = 1) -> int:
    """Say on stderr what is wrong and what to do."""
    print(f"tracekit: {problem}\n{remedy}", file=sys.stderr)
    return status


# What can be asked for


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Help that looks like the other commands' help."""

    def add_usage(self, usage: Any, actions: Any, groups: Any, prefix: str | None = None) -> None:
        """The usage line, as click writes it."""
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _get_help_string(self, action: argparse.Action) -> str | None:
        """An option's help, and its default where it has one to speak of."""
        return action.help if action.default in (None, False) else super()._get_help_string(action)


def make_parser(prog: str | None = None) -> argparse.ArgumentParser:
    """Every option of the story."""
    parser = argparse.ArgumentParser(
        prog=prog,
        allow_abbrev=False,
        description="Record GPT-2's training steps on random tokens, memory after every line.",
        formatter_class=Help,
    )
    parser.add_argument("--batch", type=positive, default=8, help="sequences in a (micro-)batch")
    add_story_options(parser)
    parser.add_argument("-o", "--out", help="the run folder; by default named after batch, sequence and precision")
    parser.add_argument("--force", action="store_true", help="replace a recording that is there")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="of what is printed")
    return parser


def add_story_options(parser: argparse.ArgumentParser) -> None:
    """The options that a sweep over batches has too."""
    add = parser.add_argument
    add("--sequence", type=positive, default=1024, help="tokens in a sequence")
    add("--precision", choices=PRECISIONS, default="fp32", help="bf16 is all in bf16; autocast keeps fp32 weights")
    add("--optimizer", choices=OPTIMIZERS, default="adamw", help="by torch's own defaults, or as the name says")
    add("--attention", choices=("eager", "sdpa"), default="eager", help="written out, or torch's fused call")
    add("--checkpoint", action="store_true", help="keep each block's input only, compute it again in backward")
    add("--accumulate", type=positive, default=1, metavar="N", help="micro-batches a step")
    add("--steps", type=positive, default=2, help="the first one is not representative")
    add("--seed", type=int, default=0, help="of weights and tokens")
    add("--cap", metavar="SIZE", type=size, help="let the allocator have no more than this, like 45440MiB")
    add("--tf32", action="store_true", help="let fp32 products be computed in TF32")
    add("--device", choices=("cuda", "cpu"), default="cuda", help="cpu shows what can be seen without a GPU")
    add("--stacks", choices=("all", "python"), default="all", help="python dumps faster, and leaves backward nameless")
    add("--context", choices=("all", "alloc", "state", "none"), default="all", help="which events keep a stack")
    add("--max-entries", type=positive, default=1_000_000, help="events that the ring holds")
    add("--every", type=positive, metavar="N", help="make a dump after each N steps")
    add("--ops", action="store_true", help="log every operator; slower, and changes a few allocations")
    add("--no-modules", action="store_true", help="do not mark events by module")
    add("--no-history", action="store_true", help="take readings only, record no events")
    add("--vocabulary", type=positive, default=50_257, help="words")
    add("--context-length", type=positive, default=1_024, help="tokens that the model could take: the masks' size")
    add("--width", type=positive, default=768, help="numbers a token")
    add("--heads", type=positive, default=12, help="attention heads")
    add("--layers", type=positive, default=12, help="blocks")


def settings(args: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on."""
    names = (
        "batch sequence precision optimizer attention checkpoint accumulate steps seed cap tf32 vocabulary "
        "context_length width heads layers"
    )
    return {name: getattr(args, name) for name in names.split()}


def recorder_options(args: argparse.Namespace) -> dict[str, Any]:
    """What the recorder is asked for."""
    return {
        "context": None if args.context == "none" else args.context,
        "stacks": args.stacks,
        "max_entries": args.max_entries,
        "every": args.every,
        "limit": args.cap,
        "reset_peaks": True,
        "modules": not args.no_modules,
        "ops": args.ops,
        "history": not args.no_history,
        "force": args.force,
    }


def out_folder(args: argparse.Namespace) -> str:
    """The folder asked for, or one named after what is recorded."""
    words = [f"gpt2_b{args.batch}_t{args.sequence}_{args.precision}"]
    words += [args.attention] if args.attention != "eager" else []
    words += ["checkpoint"] if args.checkpoint else []
    words += [f"accumulate{args.accumulate}"] if args.accumulate > 1 else []
    words += [args.optimizer] if args.optimizer != "adamw" else []
    return args.out or "_".join(words) + ".run"


def positive(text: str) -> int:
    """A whole number from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def size(text: str) -> int:
    """A size in bytes from 45440MiB, 44.4GiB, 48GB or plain bytes."""
    reach_neighbours()
    from tracekit.recorder import parse_bytes

    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def reach_neighbours() -> None:
    """Let the model beside this file be imported, and tracekit too where it is a checkout that nobody installed."""
    for folder in (HERE.parent, HERE):
        if folder == HERE or (folder / "tracekit" / "recorder").is_dir():
            sys.path[:] = [str(folder), *(path for path in sys.path if path != str(folder))]


if __name__ == "__main__":
    sys.exit(main())
