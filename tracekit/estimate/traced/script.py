"""The user's own script: found, imported, and its `build` called with what the command line gives it.

What build returns belongs to `tracer`; errors of the user's code become sentences here.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import itertools
import sys
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tracekit.errors import TracekitError

Value = bool | int | float | str | None
Arguments = dict[str, Value]

_CONTRACT = "build(device) returns the model, the optimizer and a function that does one training step"


def is_script(text: str) -> bool:
    """Whether a text names a function in a script: path/to/file.py:function."""
    path, colon, function = text.rpartition(":")
    return bool(colon) and path.endswith(".py") and function.isidentifier()


def load(text: str) -> Callable[..., Any]:
    """Import a script and find its function.

    Args:
        text: path/to/file.py:function.

    Raises:
        TracekitError: where there is no such file or function, or the file fails when it is imported.
    """
    path_text, _, name = text.rpartition(":")
    path = Path(path_text)
    if not path.is_file():
        raise TracekitError(f"{path_text}: there is no such file", "give a script as path/to/file.py:build")
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise TracekitError(f"{path_text} is no Python file", "give a script as path/to/file.py:build")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with explained(f"{path_text} failed when it was imported"):
        spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise TracekitError(f"{path_text} has no function {name}", _CONTRACT)
    return function


@contextlib.contextmanager
def explained(what: str) -> Generator[None]:
    """Turn what the user's code raises into a sentence with its line; what it prints goes to standard error."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except (TracekitError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise TracekitError(f"{what}: {_told(error)}", _remedy(error)) from error
    except SystemExit as error:
        raise TracekitError(f"{what}: it ended the program with {error.code!r}", _CONTRACT) from error


def _told(error: Exception) -> str:
    """An error in one line, with the user's line that it came from."""
    text = " ".join(str(error).split())[:300]
    kind = type(error).__name__
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return f"{kind}{where}: {text}" if text else f"{kind}{where}"


def _is_ours(filename: str) -> bool:
    plain = filename.replace("\\", "/")
    return "/site-packages/" in plain or "/tracekit/" in plain or plain.startswith("<")


def _remedy(error: Exception) -> str:
    text = str(error)
    if isinstance(error, NotImplementedError) or "meta" in text:
        return "the step runs without data: what depends on a tensor's values, or needs a GPU, cannot be traced"
    return f"{_CONTRACT}; it is run on torch.device('meta')"


def parse_value(text: str) -> Value:
    """An argument as a person writes it: 8, 3e-4, true, none, or a word."""
    words: dict[str, Value] = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for read in (int, float):
        with contextlib.suppress(ValueError):
            return read(text)
    return text


def parse_arguments(given: Sequence[str]) -> dict[str, list[Value]]:
    """Read NAME=VALUE,VALUE,... texts.

    Raises:
        TracekitError: where one is no such text, or a name is given twice.
    """
    read: dict[str, list[Value]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        if not equals or not name.strip().isidentifier() or not values.strip():
            raise TracekitError(f"{text!r} is not NAME=VALUE", "write an argument of build like batch=8 or batch=8,16")
        if name.strip() in read:
            raise TracekitError(f"{name.strip()} is given twice", "several values are joined by commas: batch=8,16")
        read[name.strip()] = [parse_value(value.strip()) for value in values.split(",")]
    return read


def combinations(arguments: Mapping[str, Sequence[Value]]) -> list[Arguments]:
    """Every choice of one value a name, the last name varying fastest."""
    return [dict(zip(arguments, chosen, strict=True)) for chosen in itertools.product(*arguments.values())]


def check_arguments(function: Callable[..., Any], arguments: Mapping[str, object]) -> None:
    """See that a function takes a device and these arguments.

    Raises:
        TracekitError: naming those that it does take.
    """
    signature = inspect.signature(function)
    try:
        signature.bind("device", **arguments)
    except TypeError as error:
        takes = list(signature.parameters)[1:]
        remedy = f"it takes {', '.join(takes)}" if takes else "it takes the device alone"
        refused = [name for name in arguments if name not in takes]
        what = f"takes no {', '.join(refused)}" if refused else f"cannot be called with these arguments: {error}"
        raise TracekitError(f"build {what}", remedy) from error
