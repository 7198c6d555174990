"""The op log: which operator ran when, in which module, and what new tensors it returned.

It watches through a dispatch mode, and that changes a few allocations: under any such mode, torch adds
gradients into new tensors where it otherwise adds in place. A recording with an op log is one about
operators, not about exact peaks.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from tracekit.recorder.door import Door
from tracekit.recorder.modules import ModuleMarks
from tracekit.recorder.roll import describe_storage, name_dtype

COLUMNS: dict[str, tuple[str, str]] = {
    "op_ix": (
        "integer",
        "number of the call, in order of its begin; the third element of user_metadata on the events in it",
    ),
    "operator": ("text", "the operator and its overload, aten.mm.default"),
    "pass": ("text", "forward, recompute or backward; null outside of marked modules"),
    "module": ("text", "path of the module it ran in; null outside of marked modules"),
    "phase": ("text", "the program's phase, null outside of phases"),
    "step": ("integer", "the step, null outside of steps"),
    "thread": ("integer", "number of the thread, 0 being the first one seen"),
    "begin_us": ("integer", "when it began, in us since the Unix epoch"),
    "end_us": ("integer", "when it had returned; what it allocated lies between the two"),
    "input_shapes": ("text", "shapes of the tensors given to it, as JSON"),
    "output_ix": (
        "integer",
        "which of its outputs; null where it returned no new storage, but may have allocated and freed",
    ),
    "device": ("integer", "device of that output's storage"),
    "address": ("integer", "first address of that storage"),
    "storage_bytes": ("integer", "bytes of that storage"),
    "shape": ("integers", "the output's shape"),
    "dtype": ("text", "the output's dtype"),
}
"""Columns of ops.parquet: type and meaning. One row an output that owns a new storage, or one for a call without."""

Row = dict[str, Any]


class OpLog:
    """Logs every operator on one type of device while it is open; threads of the backward pass included.

    Args:
        door: torch's calls.
        marks: says which module a thread is in.
        where: gives the program's phase and step.
        device_type: operators without a tensor on such a device are passed over.
        max_rows: beyond this many rows only the newest are kept.
    """

    def __init__(
        self,
        door: Door,
        marks: ModuleMarks,
        where: Callable[[], tuple[str | None, int | None]],
        device_type: str = "cuda",
        max_rows: int = 2_000_000,
    ) -> None:
        self.rows: list[Row] = []
        self.dropped_count = 0
        self._door = door
        self._marks = marks
        self._where = where
        self._device_type = device_type
        self._max_rows = max_rows
        self._count = 0
        self._lock = threading.Lock()
        self._threads: dict[int, int] = {}
        self._mode = _make_mode(door.torch, self._run)

    def open(self) -> None:
        """Begin to watch."""
        self._mode.__enter__()

    def close(self) -> None:
        """Watch no more."""
        self._mode.__exit__(None, None, None)

    def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> object:
        if getattr(operator, "is_view", False):
            return operator(*args, **kwargs)
        with self._lock:
            op_ix = self._count
            self._count += 1
            thread = self._threads.setdefault(threading.get_ident(), len(self._threads))
        label = self._marks.here()
        before = self._door.get_label()
        if self._door.has_labels:
            self._door.set_label(json.dumps([*(label or (None, None)), op_ix]))
        begin_us = time.time_ns() // 1000
        try:
            result = operator(*args, **kwargs)
        finally:
            end_us = time.time_ns() // 1000
            if self._door.has_labels:
                self._door.set_label(before)
        with contextlib.suppress(Exception):  # a tensor that will not be described must not stop the program
            self._log(op_ix, operator, label, thread, (begin_us, end_us), (args, kwargs), result)
        return result

    def _log(
        self,
        op_ix: int,
        operator: object,
        label: tuple[str, str] | None,
        thread: int,
        times: tuple[int, int],
        given: object,
        result: object,
    ) -> None:
        inputs = list(_flat(self._door.torch, given))
        outputs = list(_flat(self._door.torch, result))
        if any(tensor.device.type == self._device_type for tensor in (*inputs, *outputs)):
            phase, step = self._where()
            call: Row = {
                "op_ix": op_ix,
                "operator": str(operator),
                "pass": label[0] if label else None,
                "module": label[1] if label else None,
                "phase": phase,
                "step": step,
                "thread": thread,
                "begin_us": times[0],
                "end_us": times[1],
                "input_shapes": json.dumps([[int(size) for size in tensor.shape] for tensor in inputs]),
            }
            self._keep([call | output for output in self._outputs(inputs, outputs)] or [call])

    def _outputs(self, inputs: list[Any], outputs: list[Any]) -> Iterator[Row]:
        """The outputs with a storage that no input has."""
        old = {describe_storage(tensor)[0] for tensor in inputs if _is_plain(tensor)}
        for index, tensor in enumerate(outputs):
            if not _is_plain(tensor) or tensor.device.type != self._device_type:
                continue
            address, storage_bytes = describe_storage(tensor)
            if address in old:
                continue
            old.add(address)
            yield {
                "output_ix": index,
                "device": tensor.device.index or 0,
                "address": address,
                "storage_bytes": storage_bytes,
                "shape": [int(size) for size in tensor.shape],
                "dtype": name_dtype(tensor.dtype),
            }

    def _keep(self, rows: list[Row]) -> None:
        with self._lock:
            self.rows.extend(rows)
            if len(self.rows) > self._max_rows:
                excess = len(self.rows) // 4  # a quarter at once, so that it does not cost at every call
                self.dropped_count += excess
                del self.rows[:excess]


def _make_mode(torch: Any, run: Callable[[Any, tuple[Any, ...], dict[str, Any]], object]) -> Any:
    """A dispatch mode that hands every operator to `run`; its class can only be made once torch is there."""
    base: Any = torch.utils._python_dispatch.TorchDispatchMode

    def dispatch(
        _mode: object,
        operator: Any,
        _types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        return run(operator, args, kwargs or {})

    return type("OpLogMode", (base,), {"__torch_dispatch__": dispatch})()


def _is_plain(tensor: Any) -> bool:
    return not hasattr(tensor, "__tensor_flatten__") and str(tensor.layout) == "torch.strided"


def _flat(torch: Any, value: object) -> Iterator[Any]:
    """The tensors among arguments or results, containers looked into."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in cast("list[object]", value):
            yield from _flat(torch, part)
    elif isinstance(value, dict):
        for part in cast("dict[str, object]", value).values():
            yield from _flat(torch, part)
