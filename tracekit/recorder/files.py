"""The files of a run folder: their names, and that each appears whole or not at all.

What is in a file is decided by whoever hands it over; torch and the analysis are not known here.

capture.json holds:

format, version     "tracekit run" and the version of this list
torch, cuda, hip, driver, python
                    versions; null where unknown
program, arguments, git_commit, git_is_dirty
                    what ran, with which arguments, and the commit of the checkout it lies in
environment         the environment variables that change what memory is used
rank, world_size, local_rank, pid
recorder            context, stacks, max_entries, is_recording (whether events were asked for), module_marks
                    (user_metadata, record_function or off), ops, every, limit_bytes
backend, allocator_settings
                    the allocator, and its settings in force as the snapshot gives them
devices             device, name, capability, multiprocessor_count, total_bytes, free_bytes (before the
                    recording)
begin_us, end_us    when recording began and ended, in us since the Unix epoch, the clock of the events
exit                end, exception, exit or signal; null while running
error               type and message of the exception that ended the program, else null
step_count          steps completed
marks               the witness, see `tracekit.recorder.marks`
dropped_mark_count, dropped_roll_count, dropped_op_count
                    how many were let go to bound what the recorder holds
out_of_memory       one entry a failed allocation: device, missing_bytes (rounded up as the allocator asks the
                    device), total_bytes (of the limit or the device), free_bytes, time_us, step, phase, file
                    (its dump or null)
dumps               one entry a dump: file, reason, step, phase, time_us, wall_s, size_bytes, event_count by
                    device, is_ring_full by device (then the beginning is lost; torch does not say so itself)
snapshot            the dump that snapshot.pickle is
facts               what the program itself noted, such as the loss
notes               sentences about what did not work while recording
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from tracekit.recorder.conditions import find_rank, restart_count
from tracekit.recorder.door import RecordingError

FORMAT = "tracekit run"
VERSION = 1
CAPTURE = "capture.json"
SNAPSHOT = "snapshot.pickle"
TENSORS = "tensors.parquet"
OPS = "ops.parquet"


def place_folder(out: str | os.PathLike[str]) -> Path:
    """The run folder of this process: `out`, or one in it for its rank, and for each time it was started again."""
    folder = Path(out)
    rank, world, _ = find_rank()
    if world > 1:
        folder = folder / f"rank{rank}"
    return folder / f"restart{restart_count()}" if restart_count() else folder


def open_folder(folder: Path, *, force: bool) -> Path:
    """Make the folder of a new recording.

    Raises:
        RecordingError: where it holds something already and `force` is not set, or cannot be made.
    """
    try:
        if folder.is_dir() and any(folder.iterdir()):
            if not force:
                raise RecordingError(
                    f"{folder} exists already and is not empty",
                    "give --force to replace it, or another folder with -o",
                )
            if not (folder / CAPTURE).is_file():
                raise RecordingError(f"{folder} exists and is not a run folder", "choose another folder with -o")
            _empty(folder)
        folder.mkdir(parents=True, exist_ok=True)
        handle, probe = tempfile.mkstemp(prefix=".", suffix=".partial", dir=folder)
        os.close(handle)
        Path(probe).unlink()
    except OSError as error:
        raise RecordingError(
            f"cannot write {folder}: {error.strerror or error}", "choose another folder with -o"
        ) from error
    return folder


def write_whole(path: Path, write: Callable[[IO[bytes]], object]) -> int:
    """Write a file under another name and give it its own when it is complete.

    Returns:
        Its size in bytes.

    Raises:
        OSError: where it cannot be written; nothing is left behind then.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".partial", dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())  # a machine that ran out of memory may not live long enough to do it later
            size = file.tell()
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    return size


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a mapping as JSON, whole or not at all."""
    text = json.dumps(value, indent=1, default=str) + "\n"
    write_whole(path, lambda file: file.write(text.encode("utf-8")))


def write_pickle(path: Path, value: object) -> int:
    """Write a snapshot as torch does, but in protocol 4: its own viewer reads no newer one.

    Returns:
        The size in bytes.
    """
    return write_whole(path, lambda file: pickle.dump(value, file, protocol=4))


def name_dump(folder: Path, reason: str, step: int, rank: int, pid: int) -> Path:
    """A name for a dump that says why, when and by whom it was made, and that is still free."""
    stem = f"{reason}_step{step}_rank{rank}_pid{pid}"
    path = folder / f"{stem}.pickle"
    count = 1
    while path.exists():
        count += 1
        path = folder / f"{stem}_{count}.pickle"
    return path


def point_snapshot(folder: Path, dump: Path) -> None:
    """Let snapshot.pickle be that dump: the same file under a second name, or a copy where links are refused."""
    target = folder / SNAPSHOT
    partial = folder / f".{SNAPSHOT}.partial"
    partial.unlink(missing_ok=True)
    try:
        os.link(dump, partial)
    except OSError:
        shutil.copyfile(dump, partial)
    partial.replace(target)


def _empty(folder: Path) -> None:
    """Remove what a recording left here, and nothing else."""
    for path in folder.iterdir():
        is_ours = path.name in (CAPTURE, SNAPSHOT, TENSORS, OPS) or (
            path.suffix == ".pickle" and "_rank" in path.name and "_pid" in path.name
        )
        if is_ours or path.name.endswith(".partial"):
            path.unlink()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
