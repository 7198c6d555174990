"""Run somebody's script with recording on, untouched: as `python script.py` would, but for the run folder it leaves.

Nothing is imported before the script that it could tell by: torch least of all.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import runpy
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracekit.recorder.door import RecordingError
from tracekit.recorder.files import open_folder, place_folder
from tracekit.recorder.session import Recorder


def run_script(
    target: str, arguments: list[str], *, is_module: bool, out: str, options: dict[str, Any]
) -> tuple[int, Recorder | None]:
    """Run a script or module as the main program, and record it from before its first CUDA allocation.

    Recording is prepared when the script imports torch, and begins when torch initialises CUDA.

    Args:
        target: the script's path, or a module's name.
        arguments: what it finds in sys.argv[1:].
        is_module: run a module, as `python -m` does.
        out: the run folder.
        options: of the `Recorder`.

    Returns:
        The exit status that Python would have given it, and the recorder; None where it never imported torch.

    Raises:
        RecordingError: where there is no such script or module, or the folder is taken; before anything runs.
    """
    find_target(target, is_module=is_module)
    open_folder(place_folder(out), force=options.get("force", False))
    kept: list[Recorder] = []

    def begin() -> None:
        try:
            recorder = Recorder(out, **options)
            kept.append(recorder.start())
            recorder.watch_all()
        except Exception as problem:  # the script is importing torch, and has a right to it
            print(f"tracekit: recording did not begin: {problem}", file=sys.stderr)  # noqa: T201

    argv, path = sys.argv, sys.path[:]
    sys.argv = [target, *arguments]
    sys.path[0] = str(Path.cwd()) if is_module else str(Path(target).resolve().parent)
    hook = when_imported("torch", begin)
    error: BaseException | None = None
    world: object = None
    try:
        # what it returns holds the script's variables: its tensors are alive when the last dump is made
        world = runpy.run_module(target, run_name="__main__", alter_sys=True) if is_module else run_path(target)
        wait_for_threads()
    except BaseException as caught:
        error = caught
    finally:
        hook()
        ended = error if not isinstance(error, SystemExit) else None
        for recorder in kept:
            recorder.stop(ended)
        del world
        sys.argv, sys.path[:] = argv, path
    return report_end(error, target), (kept[0] if kept else None)


def run_path(target: str) -> dict[str, Any]:
    """Run a script as the main program."""
    return runpy.run_path(target, run_name="__main__")


def wait_for_threads() -> None:
    """Wait for what the script has left running, as the interpreter does at its end."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()


def find_target(target: str, *, is_module: bool) -> None:
    """Make sure that there is something to run.

    Raises:
        RecordingError: where there is not.
    """
    if not is_module:
        if not Path(target).is_file():
            raise RecordingError(f"there is no script {target}", "give the path of a Python script, or -m and a module")
        return
    try:
        spec = importlib.util.find_spec(target)
    except ModuleNotFoundError:
        spec = None
    if spec is None:
        raise RecordingError(f"there is no module {target}", "give a module's name after -m, or a script's path")


def report_end(error: BaseException | None, target: str) -> int:
    """Do with an exception what the interpreter would have done at the end of the script.

    Returns:
        The exit status.
    """
    if error is None:
        return 0
    if isinstance(error, SystemExit):
        if error.code is None or isinstance(error.code, int):
            return error.code or 0
        print(error.code, file=sys.stderr)  # noqa: T201  (as the interpreter does)
        return 1
    # the person's traceback begins in the person's file
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename) != Path(target):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace or error.__traceback__), trace or error.__traceback__)
    return 130 if isinstance(error, KeyboardInterrupt) else 1


def when_imported(name: str, act: Callable[[], None]) -> Callable[[], None]:
    """Run `act` once, when the module `name` has been imported: now, if it has been.

    Returns:
        A function that undoes this.
    """
    if name in sys.modules:
        act()
        return lambda: None
    finder = _Finder(name, act)
    sys.meta_path.insert(0, finder)
    return finder.leave


class _Finder:
    """Finds nothing itself: it asks the others, and hears when the module has been loaded."""

    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self._name = name
        self._act = act

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: types.ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        """The module's spec, with a loader that tells; None for every other module."""
        if fullname != self._name:
            return None
        self.leave()
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._act)
        return spec

    def leave(self) -> None:
        """Ask no more."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)


class _Loader(importlib.abc.Loader):
    """Loads by another loader, then acts."""

    def __init__(self, loader: importlib.abc.Loader, act: Callable[[], None]) -> None:
        self._loader = loader
        self._act = act

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: types.ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader  # what looks at torch's spec later finds it as it is
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._act()
