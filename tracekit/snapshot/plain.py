"""From bytes to plain Python data: dicts, lists, tuples, text, numbers, True, False and None, and never anything else.

This is the only place that unpickles. It does not know what a snapshot looks like; that belongs to `shape`.

A pickle is a program for a small stack machine, and Python's machine trusts the program. So each is proven harmless
first (`proof`), and then run by a machine that still refuses the two ways in which it can ask for more than data.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Callable
from typing import Any, cast

from tracekit.errors import SnapshotError
from tracekit.snapshot import proof
from tracekit.snapshot.words import DATA_ONLY, DUMP_AGAIN, a, shown

_RESAVE = (
    "do not open it with pickle.load unless you trust whoever made it; "
    "a snapshot of your own can be written again with torch.cuda.memory._dump_snapshot"
)
_PEEKED = 128 * 1024


def load_json(data: io.BytesIO) -> object:
    """Parse JSON text; `data` is closed as soon as it is not needed.

    NaN and Infinity are taken, as Python writes them and as pickles hold them; integers stay integers of any size.

    Raises:
        SnapshotError: where it is not JSON, or nested too deeply.
    """
    try:
        with data.getbuffer() as view:
            text = str(view, "utf-8-sig")
        data.close()
        return json.loads(text)
    except RecursionError:
        raise SnapshotError("is nested too deeply to be a snapshot", "check what wrote it") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise SnapshotError(f"is damaged or cut off: not JSON at {where}: {error.msg}", DUMP_AGAIN) from None
    except ValueError as error:  # not UTF-8, or a number of thousands of digits
        raise SnapshotError(f"is damaged: {shown(str(error))}", DUMP_AGAIN) from None


def load_pickle(data: io.BytesIO) -> tuple[object, int]:
    """Prove a pickle harmless, then load it; `data` is closed as soon as it is not needed.

    Returns:
        The data, and the pickle protocol it is written in (0 stands for 0 and 1, which do not say).

    Raises:
        SnapshotError: where it is damaged, or asks for anything but plain data.
    """
    with data.getbuffer() as view:
        needs_watching = proof.prove(view)
        protocol = view[1] if view[0] == pickle.PROTO[0] else 0
    data.seek(0)
    # A buffered reader lets the machine look ahead: without it, a pickle without frames costs a call an instruction.
    with io.BufferedReader(data, _PEEKED) as file:
        machine = _WatchedUnpickler(file) if needs_watching else _Unpickler(file)
        try:
            return machine.load(), protocol
        except (SnapshotError, MemoryError):
            raise
        except Exception as error:  # a damaged pickle may raise nearly anything
            raise SnapshotError(f"is a damaged pickle: {shown(str(error))}", DUMP_AGAIN) from None


class _Refusing:
    """Refuses the two ways in which a pickle can ask for an object that is not plain data."""

    def find_class(self, module: str, name: str) -> Any:
        raise SnapshotError(f"asks for {shown(f'{module}.{name}')}, which is code; {DATA_ONLY}", _RESAVE)

    def persistent_load(self, pid: Any) -> Any:
        raise SnapshotError(f"asks for an object kept outside of it, by {a(pid)}; {DATA_ONLY}", _RESAVE)


class _Unpickler(_Refusing, pickle.Unpickler):
    """Python's fast machine."""


_Slow = pickle._Unpickler  # pyright: ignore[reportPrivateUsage]


def _watched(load: Callable[[Any], None], keys: slice) -> Callable[[Any], None]:
    """Wrap an instruction that fills a dict; `keys` is where its keys lie on the stack."""

    def watched(machine: Any) -> None:
        for key in cast(list[object], machine.stack[keys]):
            if not (isinstance(key, (str, float, type(None))) or (isinstance(key, int) and abs(key) < 1 << 60)):
                raise SnapshotError(f"has a dict key that is {a(key)}, where a snapshot has text", _RESAVE)
        load(machine)

    return watched


class _WatchedUnpickler(_Refusing, _Slow):
    """Python's machine written in Python, which can look at each key before it is hashed.

    Tuples of tuples can take for ever to hash, or overflow the stack; integers can be chosen so that all collide.
    """

    dispatch = _Slow.dispatch | {
        pickle.SETITEM[0]: _watched(_Slow.dispatch[pickle.SETITEM[0]], slice(-2, -1)),
        pickle.SETITEMS[0]: _watched(_Slow.dispatch[pickle.SETITEMS[0]], slice(0, None, 2)),
        pickle.DICT[0]: _watched(_Slow.dispatch[pickle.DICT[0]], slice(0, None, 2)),
    }
