"""Record the same training step at one batch size after another, each in a process of its own, and say which fit.

A process of its own, because an allocator that has served one batch is not the allocator that the next would meet. The
step is `train_step.py`'s; of tracekit only the recorder is known.

    python capture/batch_sweep.py --batches 16,18,20-24 --cap 45440MiB
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import train_step

COLUMNS: dict[str, tuple[str, str]] = {
    "batch": ("integer", "sequences in a batch"),
    "status": ("text", "fits, out_of_memory, failed, killed, or ran where no memory was counted"),
    "fits": ("boolean", "whether it came to its end; null where no memory was counted, or it failed"),
    "peak_allocated_bytes": ("integer", "largest bytes allocated; where memory ran out, before it did"),
    "peak_reserved_bytes": ("integer", "largest bytes reserved; where memory ran out, before it did"),
    "limit_bytes": ("integer", "the cap, null without one"),
    "out_of_memory_step": ("integer", "the step in which memory ran out"),
    "out_of_memory_phase": ("text", "the phase in which it did"),
    "missing_bytes": ("integer", "what could not be allocated, as the allocator asked the device for it"),
    "first_loss": ("number", "loss of the first step"),
    "wall_s": ("integer", "seconds that the process took"),
    "run": ("text", "its run folder, in the folder of the sweep"),
    "reason": ("text", "why it failed, or what killed it"),
}
"""Columns of sweep.csv and sweep.parquet: type and meaning."""

Run = Callable[[list[str]], "subprocess.CompletedProcess[str]"]


@dataclass(slots=True)
class Row:
    """What one batch size came to; `COLUMNS` says what each value means."""

    batch: int
    status: str
    fits: bool | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    limit_bytes: int | None = None
    out_of_memory_step: int | None = None
    out_of_memory_phase: str | None = None
    missing_bytes: int | None = None
    first_loss: float | None = None
    wall_s: int | None = None
    run: str | None = None
    reason: str | None = None

    @property
    def is_answer(self) -> bool:
        """Whether there is nothing left to find out by running it again."""
        return self.status in ("fits", "out_of_memory", "ran")


def main(argv: Sequence[str] | None = None, prog: str | None = None) -> int:
    """Run the sweep; the exit status is for the shell."""
    parser = make_parser(prog)
    args, passed = parser.parse_known_args(argv)
    # whatever is not the sweep's own is the step's: wrong words are refused before the first run
    step = train_step.make_parser(parser.prog).parse_args(passed)
    if step.out or step.force or step.batch != 8:
        parser.error("each size gets its own --batch and --out; give --batches and the sweep's -o")
    train_step.reach_neighbours()
    from tracekit.recorder import RecordingError, require_recording

    folder = Path(args.out or f"gpt2_t{step.sequence}_{step.precision}.sweep")
    try:
        if step.device == "cuda":
            require_recording()
        sweep = Sweep(folder, passed, step.cap, force=args.force)
    except RecordingError as error:
        return train_step.refuse(error.problem, error.remedy)
    try:
        for count, batch in enumerate(args.batches, 1):
            say(f"batch {batch} ({count} of {len(args.batches)})", end=" ")
            known = sweep.rows.get(batch)
            row = known if known and known.is_answer else sweep.measure(batch)
            say(("measured before: " if row is known else "") + describe(row))
    except KeyboardInterrupt:
        say("\nstopped; what was measured is kept, and the same command goes on from there")
        show(sweep.listed(args.batches), args.format)
        return 130
    show(sweep.listed(args.batches), args.format)
    say(f"each size's recording lies in {folder}; a dataset of each: tracekit analyze {folder}")
    if command := fit_command(sweep):
        say(f"any other size from the two largest that fit: {command}")
    return 0


def fit_command(sweep: Sweep) -> str | None:
    """The command that predicts other sizes from the two largest that fit; None where there are no two."""
    fits = [row for row in sweep.listed(list(sweep.rows)) if row.fits and row.run][-2:]
    if len(fits) < 2:
        return None
    limit = [] if sweep.limit is None else ["--limit", str(sweep.limit)]
    return shlex.join(["tracekit", "fit", *(f"{row.batch}={sweep.folder / str(row.run)}" for row in fits), *limit])


class Sweep:
    """A folder with one run folder a batch size, and what they came to in sweep.json, sweep.csv and sweep.parquet.

    Args:
        folder: where.
        passed: options of the training step, without the batch.
        limit: the cap in bytes, if any.
        force: throw away a sweep that was made with other options.
        run: starts a command and waits for it.

    Raises:
        RecordingError: where the folder holds a sweep with other options, or something else.
    """

    def __init__(
        self, folder: Path, passed: list[str], limit: int | None, *, force: bool = False, run: Run | None = None
    ) -> None:
        from tracekit.recorder import RecordingError

        self.folder = folder
        self.passed = passed
        self.limit = limit
        self.rows: dict[int, Row] = {}
        self._run = run or run_command
        self._file = folder / "sweep.json"
        if force and self._file.is_file():
            shutil.rmtree(folder)
        if self._file.is_file():
            found = json.loads(self._file.read_text(encoding="utf-8"))
            if found["options"] != passed:
                raise RecordingError(
                    f"{folder} holds a sweep with other options: {' '.join(found['options']) or 'none'}",
                    "choose another folder with -o, or give --force to throw that one away",
                )
            self.rows = {row["batch"]: Row(**row) for row in found["rows"]}
        elif folder.is_dir() and any(folder.iterdir()):
            raise RecordingError(f"{folder} exists and is not a sweep", "choose another folder with -o")
        folder.mkdir(parents=True, exist_ok=True)

    def measure(self, batch: int) -> Row:
        """Record one batch size in a fresh process, and keep its row."""
        name = f"batch_{batch:04}"
        command = [sys.executable, str(train_step.HERE / "train_step.py"), *self.passed]
        command += ["--batch", str(batch), "--out", str(self.folder / name), "--force", "--format", "json"]
        begin_s = time.monotonic()
        done = self._run(command)
        row = read_run(batch, done)
        row.limit_bytes = self.limit
        row.wall_s = round(time.monotonic() - begin_s)
        row.run = name if (self.folder / name).is_dir() else None
        self.rows[batch] = row
        self.write()
        return row

    def listed(self, batches: Sequence[int]) -> list[Row]:
        """The rows there are for these sizes, by size."""
        return [self.rows[batch] for batch in sorted(set(batches)) if batch in self.rows]

    def write(self) -> None:
        """Write what is known, each file whole or not at all."""
        from tracekit.recorder.files import write_json, write_whole
        from tracekit.recorder.roll import write_table

        rows = [asdict(self.rows[batch]) for batch in sorted(self.rows)]
        write_whole(self.folder / "sweep.csv", lambda file: file.write(as_csv(rows).encode("utf-8")))
        write_whole(self.folder / "sweep.parquet", lambda file: write_table(rows, COLUMNS, file))
        write_json(self._file, {"options": self.passed, "rows": rows})


def read_run(batch: int, done: subprocess.CompletedProcess[str]) -> Row:
    """What a finished process says: its report, or else how it died."""
    if done.returncode == 0:
        report = json.loads(done.stdout)
        return read_report(batch, report)
    if done.returncode < 0:
        return Row(batch, "killed", reason=f"killed by {signal.Signals(-done.returncode).name}")
    words = [line for line in done.stderr.splitlines() if line.strip()]
    reason = next((line for line in words if line.startswith("tracekit: ")), words[-1] if words else "it said nothing")
    return Row(batch, "failed", reason=f"exit status {done.returncode}: {reason}")


def read_report(batch: int, report: dict[str, Any]) -> Row:
    """The row of a run that came to its end, out of memory or not."""
    end = report["out_of_memory"] or {}
    has_memory = report["peak_allocated_bytes"] is not None
    status = "out_of_memory" if end else "fits" if has_memory else "ran"
    return Row(
        batch,
        status,
        fits={"fits": True, "out_of_memory": False}.get(status),
        peak_allocated_bytes=report["peak_allocated_bytes"],
        peak_reserved_bytes=report["peak_reserved_bytes"],
        out_of_memory_step=end.get("step"),
        out_of_memory_phase=end.get("phase"),
        missing_bytes=end.get("missing_bytes"),
        first_loss=report["losses"][0] if report["losses"] else None,
    )


def run_command(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; on Ctrl-C let it write what it has, for a while, and end it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:  # noqa: S603
        try:
            out, err = process.communicate()
        except KeyboardInterrupt:
            # a terminal has interrupted the child as well; who sent the signal to this process alone has not
            process.send_signal(signal.SIGINT)
            try:
                process.communicate(timeout=20)
            except (subprocess.TimeoutExpired, KeyboardInterrupt):
                process.kill()
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


# What is said, and where


def show(rows: Sequence[Row], form: str) -> None:
    """Print the rows on stdout: a table for people, or csv or json."""
    if form == "json":
        print(json.dumps([asdict(row) for row in rows], indent=1))
    elif form == "csv":
        print(as_csv([asdict(row) for row in rows]), end="")
    else:
        print(f"{'batch':>6}{'allocated MiB':>15}{'reserved MiB':>15}  {'status':<15}where and why")
        for row in rows:
            allocated, reserved = train_step.mib(row.peak_allocated_bytes), train_step.mib(row.peak_reserved_bytes)
            print(f"{row.batch:>6}{allocated:>15}{reserved:>15}  {row.status:<15}{where(row)}".rstrip())


def describe(row: Row) -> str:
    """One row in a sentence."""
    if row.status == "fits":
        return f"fits, {train_step.mib(row.peak_reserved_bytes)} MiB reserved"
    return " ".join(part for part in (row.status.replace("_", " "), where(row)) if part)


def where(row: Row) -> str:
    """Where memory ran out, or why there is no answer."""
    if row.status == "out_of_memory":
        missing = train_step.mib(row.missing_bytes)
        return f"in step {row.out_of_memory_step}, {row.out_of_memory_phase}: no {missing} MiB more"
    return row.reason or ""


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows as CSV, bytes in full."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def say(text: str, end: str = "\n") -> None:
    """Talk goes to stderr, as it happens."""
    print(text, end=end, file=sys.stderr, flush=True)


# What can be asked for


def make_parser(prog: str | None = None) -> argparse.ArgumentParser:
    """The sweep's own options; the step's come after them."""
    parser = argparse.ArgumentParser(
        prog=prog,
        formatter_class=train_step.Help,
        allow_abbrev=False,  # or --batch would pass for --batches
        description="Record GPT-2's training step at several batch sizes, one fresh process a size.",
        epilog="Every other option goes to the training step: --cap, --sequence, --precision, --optimizer, "
        "--attention, --checkpoint, --stacks ... (see: tracekit capture gpt2 -h). The same command again measures "
        "what is missing or failed, and keeps the rest.",
    )
    parser.add_argument("--batches", type=batches, required=True, metavar="16,18,20-24", help="the sizes")
    parser.add_argument("-o", "--out", help="the sweep's folder; by default named after length and precision")
    parser.add_argument("--force", action="store_true", help="throw away a sweep that is there, and begin anew")
    parser.add_argument("--format", choices=("table", "csv", "json"), default="table", help="of what is printed")
    return parser


def batches(text: str) -> list[int]:
    """Sizes from a list of numbers and ranges: 16,18,20-24."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise argparse.ArgumentTypeError(f"{part!r} is neither a number nor a range like 20-24")
        begin, end = int(first), int(last or first)
        if not 1 <= begin <= end:
            raise argparse.ArgumentTypeError(f"{part!r} is no range of sizes from 1 on, the smaller first")
        found += [size for size in range(begin, end + 1) if size not in found]
    return found


if __name__ == "__main__":
    sys.exit(main())
