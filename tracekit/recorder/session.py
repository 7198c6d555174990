"""The recorder: switches recording on and off, takes the readings, and writes the run folder whenever it has to.

It must never change what the program allocates, nor hide, replace or cause an exception in it; what is found
in a recording is the analysis's business.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import signal
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, cast

from tracekit.recorder import files
from tracekit.recorder.conditions import describe_program, find_rank, memory_environment
from tracekit.recorder.door import Door, load_torch, require_gpu
from tracekit.recorder.marks import Mark, read_mark
from tracekit.recorder.modules import ModuleMarks
from tracekit.recorder.ops import COLUMNS as OP_COLUMNS
from tracekit.recorder.ops import OpLog
from tracekit.recorder.roll import Row, take_roll, write_roll, write_table
from tracekit.units import parse_bytes

OUTSIDE_STEPS = frozenset({"load_model", "warmup", "evaluate", "validate", "save"})
"""Phases that do not begin a step."""

_ORIGIN = "begin"
_MAX_MARKS = 2_000
_MAX_ROLLS = 64
_MAX_OUT_OF_MEMORY_DUMPS = 3
_MAX_NOTES = 20
_REFRESH_S = 30.0


class Recorder:
    """Records the GPU memory of what happens in its `with` block into a run folder.

    Events are recorded from before the first CUDA allocation, where the recorder is entered before it. A dump
    is made when memory runs out (before the stack unwinds), on a signal, every `every` steps, and at the end,
    whether the block ends well, by an exception (which goes on its way) or with the interpreter.

    Args:
        out: the run folder; in training with several processes, where their folders rank0, rank1 ... go.
        model: a torch module, or several, to name tensors and mark events by; may be given later, to `watch`.
        optimizer: a torch optimizer, or several; the roll is taken when it has stepped, while gradients are
            there.
        context: which events keep a stack: all, alloc, state or None.
        stacks: all, or python: without C++ frames a dump is about a hundred times faster, but backward is
            anonymous.
        max_entries: how many events a device's ring holds; the newest are kept.
        every: make a dump after each so many steps.
        signals: signals to dump on. What the program or the system does on them still happens, but for a
            SIGUSR1 that nobody handles: it would end the program.
        limit: let the allocator have no more than this of the current device; bytes, or a size like 45440MiB.
        reset_peaks: reset torch's peak counters when a step begins, so that each step has its own.
        modules: mark events by module.
        ops: log operators too; see `tracekit.recorder.ops` for what that changes.
        history: False takes readings and rolls only, and records no events.
        force: replace a recording that is in `out`.

    Raises:
        RecordingError: where torch or a GPU is missing, or `out` is taken or cannot be written.
        ValueError: where `limit` is not a size.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        model: Any = None,
        optimizer: Any = None,
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = 1_000_000,
        every: int | None = None,
        signals: Iterable[str] = ("SIGUSR1", "SIGTERM"),
        limit: int | str | None = None,
        reset_peaks: bool = False,
        modules: bool = True,
        ops: bool = False,
        history: bool = True,
        force: bool = False,
    ) -> None:
        self._door = Door(load_torch())
        self._limit = parse_bytes(limit) if isinstance(limit, str) else limit
        self._options: dict[str, Any] = {
            "context": context,
            "stacks": stacks,
            "max_entries": max_entries,
            "is_recording": history,
            "module_marks": "off",
            "ops": ops,
            "every": every,
            "limit_bytes": self._limit,
        }
        self._signals = tuple(signals)
        self._resets_peaks = reset_peaks
        self._wants_modules = modules or ops
        self._force = force
        self.rank, self._world, self._local_rank = find_rank()
        self.folder = files.place_folder(out)
        self.step_count = 0
        self.dumps: list[dict[str, Any]] = []
        self.out_of_memory: list[dict[str, Any]] = []
        self._origins: list[Mark] = []  # what every other mark is counted from, so never let go
        self._marks: deque[Mark] = deque(maxlen=_MAX_MARKS)
        self._dropped_marks = 0
        self._rolls: deque[list[Row]] = deque(maxlen=_MAX_ROLLS)
        self._dropped_rolls = 0
        self._roll_step: int | None = None
        self._facts: dict[str, Any] = {}
        self._notes: list[str] = []
        self._models: list[Callable[[], Any]] = []
        self._optimizers: list[Callable[[], Any]] = []
        self._handles: list[Any] = []
        self._phases: list[str] = []
        self._is_in_step = False
        self._ranges_steps = True
        self._step_range: Any = None
        self._devices: set[int] = set()
        self._peak_since_us: int | None = None
        self._capture: dict[str, Any] = {}
        self._module_marks: ModuleMarks | None = None
        self._op_log: OpLog | None = None
        self._lock = threading.Lock()
        self._late_signals: list[int] = []
        self._handlers: dict[int, Any] = {}
        self._pid = 0
        self._is_on = False
        self._is_begun = False
        self._refreshed_s = 0.0
        self._waiting = (model, optimizer)

    # Begin and end

    def __enter__(self) -> Recorder:
        require_gpu(self._door.torch)
        return self.start()

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop(error)

    def start(self) -> Recorder:
        """Begin, without a `with` block and without looking for a GPU; the recording then ends with the interpreter."""
        files.open_folder(self.folder, force=self._force)
        self._pid = os.getpid()
        self._is_on = True
        self._capture = {
            **self._door.versions(),
            **describe_program(),
            "environment": memory_environment(),
            "rank": self.rank,
            "world_size": self._world,
            "local_rank": self._local_rank,
            "pid": self._pid,
            "begin_us": None,
            "end_us": None,
            "exit": None,
            "error": None,
        }
        if self._wants_modules:
            self._module_marks = ModuleMarks(self._door, self._on_model, needs_backward=bool(self._options["ops"]))
            self._options["module_marks"] = self._module_marks.kind
        self.watch(*self._waiting)
        self._waiting = (None, None)
        self._take_signals()
        atexit.register(self._at_exit)
        if self._options["ops"] and self._module_marks is not None:
            # now, and not when CUDA begins: that may be inside of another such mode, which ends before this one
            self._op_log = OpLog(self._door, self._module_marks, self._where)
            self._op_log.open()
        self._door.when_ready(self._begin)
        return self

    def stop(self, error: BaseException | None = None) -> None:
        """End: make the last dump, write the run folder, take everything back.

        Args:
            error: the exception that ended the program, if one did.
        """
        self._stop("end" if error is None else "exception", error)

    def watch(self, model: Any = None, optimizer: Any = None) -> None:
        """Name tensors by these models, and mark their events; take the roll when these optimizers have stepped.

        Args:
            model: a torch module or several.
            optimizer: a torch optimizer or several.
        """
        for one in _several(model):
            self._models.append(_weakly(one))
            if self._module_marks is not None:
                self._module_marks.add(one)
        for one in _several(optimizer):
            self._optimizers.append(_weakly(one))
            register = getattr(one, "register_step_post_hook", None)
            if register is not None:
                self._handles.append(register(self._after_optimizer))

    def watch_all(self) -> None:
        """Find models by their being called, and optimizers by their stepping.

        A step is counted where the first optimizer has stepped. It gets no range of its own: what follows, a
        zero_grad or the next batch, may belong to either step, and a recording tells that better than a hook.
        """
        self._ranges_steps = False
        if self._module_marks is not None:
            self._module_marks.add_as_they_come(lambda model: self._models.append(_weakly(model)))
        optimizers = importlib.import_module("torch.optim.optimizer")  # torch.optim takes the name away again
        self._handles.append(optimizers.register_optimizer_step_post_hook(self._after_any_optimizer))

    # What the program says

    @contextlib.contextmanager
    def phase(self, name: str) -> Generator[None]:
        """Name what happens in a block: data, forward, backward, optimizer, zero_grad, load_model, or your own word.

        The name becomes a record_function range, and where the block ends well, a mark `2.NAME` (in step 2).
        A phase begins a step where none is open, but for load_model, warmup and save.
        """
        if name not in OUTSIDE_STEPS:
            self._open_step()
        self._phases.append(name)
        try:
            with self._door.torch.profiler.record_function(name):
                yield
            self.mark(name)
        finally:
            self._phases.pop()

    def step(self) -> None:
        """End a training step."""
        number = self.step_count + 1
        self._take_roll()
        self._read(f"{number}.end", number)
        self._close_step()
        self.step_count = number
        every = self._options["every"]
        if every and number % every == 0:
            self.dump("step")
        elif self._is_begun and time.monotonic() - self._refreshed_s > _REFRESH_S:
            self._write_capture()

    def mark(self, label: str) -> Mark | None:
        """Take a reading now, on every device in use; in a step its label gets the step's number in front.

        Returns:
            The reading of the current device; None before CUDA is initialised.
        """
        step = self._step
        return self._read(label if step is None else f"{step}.{label}", step)

    def _read(self, label: str, step: int | None) -> Mark | None:
        if not self._is_begun or not self._is_mine():
            return None
        now = _now_us()
        found: Mark | None = None
        try:
            current = self._door.device()
            self._devices.add(current)
            if label.endswith(".end"):  # looking at every device costs, so not at every mark
                self._devices.update(self._door.devices_in_use())
            for device in sorted(self._devices):
                mark = read_mark(self._door.stats(device), label, step, device, now, self._peak_since_us)
                if label == _ORIGIN:
                    self._origins.append(mark)
                else:
                    self._dropped_marks += len(self._marks) == _MAX_MARKS
                    self._marks.append(mark)
                found = mark if device == current else found
        except Exception as error:  # a device in error answers nothing; the program has troubles of its own then
            self._complain(f"no mark {label!r}: {type(error).__name__}: {error}")
        return found

    @property
    def marks(self) -> list[Mark]:
        """The readings so far, oldest first."""
        return [*self._origins, *self._marks]

    def note(self, **facts: Any) -> None:
        """Keep facts of the program's own in capture.json: a loss, a parameter count."""
        self._facts.update(facts)

    @property
    def facts(self) -> dict[str, Any]:
        """What has been noted."""
        return dict(self._facts)

    def dump(self, reason: str = "manual") -> Path | None:
        """Write what has been recorded so far.

        Returns:
            The file; None where nothing was written, which a note on stderr and in capture.json explains.
        """
        if not self._is_begun or not self._is_mine():
            return None
        if not self._lock.acquire(blocking=False):
            self._complain(f"no dump for {reason!r}: another one was being written")
            return None
        path: Path | None = None
        try:
            if self._options["is_recording"]:
                path = self._write_dump(reason)
        except Exception as error:  # full disks, an unwinder that gives up: the program must not pay for it
            self._complain(f"no dump for {reason!r}: {type(error).__name__}: {error}")
        finally:
            self._write_tables()
            self._write_capture()
            self._lock.release()
        while self._late_signals:
            os.kill(os.getpid(), self._late_signals.pop())
        return path

    # Steps

    @property
    def _step(self) -> int | None:
        """The number of the open step, counted from 1."""
        return self.step_count + 1 if self._is_in_step else None

    def _on_model(self, model: Any) -> None:
        """The program calls a model from outside of any other."""
        if getattr(model, "training", True):
            self._open_step()

    def _open_step(self) -> None:
        if self._is_in_step or not self._is_on:
            return
        self._is_in_step = True
        if self._resets_peaks and self._is_begun:
            self._door.reset_peaks()
            self._peak_since_us = _now_us()
        if self._ranges_steps:
            self._step_range = self._door.torch.profiler.record_function(f"step#{self.step_count + 1}")
            self._step_range.__enter__()

    def _close_step(self) -> None:
        self._is_in_step = False
        if self._step_range is not None:
            self._step_range.__exit__(None, None, None)
            self._step_range = None

    def _after_optimizer(self, _optimizer: object, _args: object, _kwargs: object) -> None:
        self._take_roll(again=True)

    def _after_any_optimizer(self, optimizer: Any, _args: object, _kwargs: object) -> None:
        if not self._is_on or not self._is_mine():
            return
        if all(reference() is not optimizer for reference in self._optimizers):
            self._optimizers.append(_weakly(optimizer))
        if optimizer is self._optimizers[0]():
            self.step()
        else:
            self._take_roll(again=True)

    def _take_roll(self, *, again: bool = False) -> None:
        """List the tensors of this step, once, or once more where a second optimizer has stepped."""
        step = self.step_count + 1
        if not self._is_begun or not self._is_mine() or (self._roll_step == step and not again):
            return
        try:
            counts = {one: self._door.stats(one).get("allocation.all.allocated", 0) for one in self._devices}
            rows = take_roll(
                [model for reference in self._models if (model := reference()) is not None],
                [one for reference in self._optimizers if (one := reference()) is not None],
                step=step,
                time_us=_now_us(),
                alloc_counts=counts,
            )
        except Exception as error:
            self._complain(f"no roll for step {step}: {type(error).__name__}: {error}")
            return
        if self._roll_step == step and self._rolls:
            self._rolls.pop()
        self._dropped_rolls += len(self._rolls) == _MAX_ROLLS
        self._rolls.append(rows)
        self._roll_step = step

    # Begin, trouble, end

    def _begin(self) -> None:
        """Switch recording on; torch calls this when it initialises CUDA, and an exception would end the program."""
        if not self._is_on or not self._is_mine():
            return
        try:
            self._door.listen(self._on_out_of_memory)  # not earlier: without an allocator, torch crashes on it
            if self._limit is not None:
                self._door.limit(self._limit)
            if self._options["is_recording"]:
                self._door.start(self._options["context"], self._options["stacks"], self._options["max_entries"])
            self._is_begun = True
            self._devices.update(self._door.devices_in_use())
            self._capture["begin_us"] = _now_us()
            self._capture["backend"] = self._door.backend()
            self._capture["devices"] = self._door.describe_devices()
            self._read(_ORIGIN, self._step)
            self._write_capture()
        except Exception as error:
            self._complain(f"recording did not begin: {type(error).__name__}: {error}")

    def _where(self) -> tuple[str | None, int | None]:
        return (self._phases[-1] if self._phases else None), self._step

    def _on_out_of_memory(self, device: int, missing: int, total: int, free: int) -> None:
        if not self._is_begun or not self._is_mine():
            return
        phase, step = self._where()
        entry: dict[str, Any] = {
            "device": device,
            "missing_bytes": missing,
            "total_bytes": total,
            "free_bytes": free,
            "time_us": _now_us(),
            "step": step,
            "phase": phase,
            "file": None,
        }
        self.out_of_memory.append(entry)
        self.mark("out_of_memory")
        if not self._rolls:
            self._take_roll()
        # a library may run out, try with less and succeed, at every step: the last dump still holds the events of all
        if sum(1 for one in self.out_of_memory if one["file"]) < _MAX_OUT_OF_MEMORY_DUMPS:
            path = self.dump("oom")
            entry["file"] = path.name if path else None
            self._write_capture()

    def _take_signals(self) -> None:
        for name in self._signals:
            number = getattr(signal, name, None)
            if number is None:
                continue
            try:
                self._handlers[int(number)] = signal.signal(number, self._on_signal)
            except (ValueError, OSError):
                self._notes.append(f"no dump on {name}: signals can only be taken in the main thread")

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._lock.locked():
            self._late_signals.append(number)  # it interrupted a dump; it comes again when that is written
            return
        self.dump("signal")
        before = self._handlers.get(number, signal.SIG_DFL)
        if callable(before):
            before(number, frame)
        elif before == signal.SIG_DFL and number != getattr(signal, "SIGUSR1", None):
            self._capture["exit"] = "signal"
            if self._is_mine():
                self._write_capture()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _at_exit(self) -> None:
        self._stop("exit", None)

    def _stop(self, how: str, error: BaseException | None) -> None:
        if not self._is_on:
            return
        if not self._is_mine():  # a forked child inherits the recorder, but not the recording
            self._is_on = False
            return
        if self._op_log is not None:
            self._op_log.close()
        with contextlib.suppress(Exception):
            self._close_step()
        self._capture["exit"] = how
        if error is not None:
            self._capture["error"] = {"type": type(error).__name__, "message": str(error)[:2_000]}
        if self._is_begun:
            if not self._rolls:
                self._take_roll()
            self._read("end_of_recording", None)
            self._capture["end_us"] = _now_us()
            self._last_dump(how, error)
        else:
            self._complain("the program never used a CUDA device: there is nothing to record")
            self._write_capture()
        self._is_on = False
        self._let_go()

    def _last_dump(self, how: str, error: BaseException | None) -> None:
        """Dump what there is at the end, unless the moment that killed the program has been dumped."""
        fatal = self.out_of_memory[-1] if self.out_of_memory else None
        if fatal and fatal["file"] and self._door.is_out_of_memory(error):
            with contextlib.suppress(OSError):
                files.point_snapshot(self.folder, self.folder / fatal["file"])
                self._capture["snapshot"] = fatal["file"]
            self._write_tables()
            self._write_capture()
        else:
            self.dump(how)

    def _let_go(self) -> None:
        """Take hooks, handlers and the recording itself back."""
        self._door.listen_no_more(self._on_out_of_memory)
        atexit.unregister(self._at_exit)
        if self._module_marks is not None:
            self._module_marks.remove()
        for handle in self._handles:
            handle.remove()
        for number, before in self._handlers.items():
            with contextlib.suppress(ValueError, TypeError):
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, before)
        if self._is_begun and self._options["is_recording"]:
            with contextlib.suppress(Exception):
                self._door.stop()

    # Files

    def _write_dump(self, reason: str) -> Path:
        begin_s = time.monotonic()
        path = files.name_dump(self.folder, reason, self.step_count, self.rank, self._pid)
        phase, step = self._where()
        snapshot = self._door.snapshot()
        counts = [len(trace) for trace in snapshot.get("device_traces", [])]
        size = files.write_pickle(path, snapshot)
        self._capture["allocator_settings"] = snapshot.get("allocator_settings")
        self.dumps.append(
            {
                "file": path.name,
                "reason": reason,
                "step": step,
                "phase": phase,
                "time_us": _now_us(),
                "wall_s": round(time.monotonic() - begin_s, 3),
                "size_bytes": size,
                "event_count": counts,
                "is_ring_full": [count >= self._options["max_entries"] for count in counts],
            }
        )
        files.point_snapshot(self.folder, path)
        self._capture["snapshot"] = path.name
        return path

    def _write_tables(self) -> None:
        try:
            rows = [row for roll in self._rolls for row in roll]
            if rows:
                files.write_whole(self.folder / files.TENSORS, lambda file: write_roll(rows, file))
            log = self._op_log
            if log is not None:
                files.write_whole(self.folder / files.OPS, lambda file: write_table(list(log.rows), OP_COLUMNS, file))
        except Exception as error:
            self._complain(f"no tables beside the dump: {type(error).__name__}: {error}")

    def _write_capture(self) -> None:
        self._refreshed_s = time.monotonic()
        capture: dict[str, Any] = {
            "format": files.FORMAT,
            "version": files.VERSION,
            **self._capture,
            "recorder": self._options,
            "step_count": self.step_count,
            "snapshot": self._capture.get("snapshot"),
            "dumps": self.dumps,
            "out_of_memory": self.out_of_memory,
            "facts": self._facts,
            "notes": self._notes,
            "dropped_mark_count": self._dropped_marks,
            "dropped_roll_count": self._dropped_rolls,
            "dropped_op_count": self._op_log.dropped_count if self._op_log else 0,
            "marks": [mark.as_json() for mark in self.marks],
        }
        try:
            files.write_json(self.folder / files.CAPTURE, capture)
        except OSError as error:
            self._complain(f"{files.CAPTURE} was not written: {error.strerror or error}")

    def _complain(self, sentence: str) -> None:
        """Say what did not work, a few times; the program goes on."""
        if len(self._notes) >= _MAX_NOTES:
            return
        self._notes.append(sentence)
        with contextlib.suppress(Exception):
            print(f"tracekit: {sentence}", file=sys.stderr)  # noqa: T201  (the program's stderr is all there is)

    def _is_mine(self) -> bool:
        return self._pid == os.getpid()


def _several(value: Any) -> list[Any]:
    """None, one or several, as a list."""
    if value is None:
        return []
    return list(cast("list[Any]", value)) if isinstance(value, (list, tuple)) else [value]


def _weakly(one: Any) -> Callable[[], Any]:
    """A reference that does not keep the thing alive, where it can be had."""
    try:
        return weakref.ref(one)
    except TypeError:
        return lambda: one


def _now_us() -> int:
    return time.time_ns() // 1000
