"""The one door to torch's memory recorder: what this torch can do, found out by looking and never by version.

Only private calls of torch.cuda are wrapped here; when to make them is for `session` to know.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tracekit.errors import TracekitError

OutOfMemoryListener = Callable[[int, int, int, int], None]
"""Takes device, bytes the allocator could not get, bytes of the device or limit, and bytes free on the device."""

_DRIVER = Path("/sys/module/nvidia/version")
_listeners: list[OutOfMemoryListener] = []
_attached: list[object] = []  # what torch was last given to call; it takes observers and never gives them back


class RecordingError(TracekitError):
    """A recording that cannot begin: torch or a GPU is missing, or its folder cannot be used."""


def load_torch() -> Any:
    """Import torch.

    Raises:
        RecordingError: where it is not installed.
    """
    if importlib.util.find_spec("torch") is None:
        raise missing_torch()
    return importlib.import_module("torch")


def require_gpu(torch: Any) -> None:
    """Make sure that this torch has a CUDA device.

    Raises:
        RecordingError: with a sentence that says what is missing.
    """
    missing = missing_gpu(str(torch.__version__), is_cuda_build(torch), bool(torch.cuda.is_available()))
    if missing:
        raise missing


def missing_torch() -> RecordingError:
    """The sentence where torch is not installed."""
    return RecordingError(
        "torch is not installed, and nothing can be recorded without it",
        "install it with: pip install 'tracekit[capture]', on a machine with a GPU",
    )


def missing_gpu(version: str, is_built_for_gpu: bool, is_available: bool) -> RecordingError | None:
    """The sentence for a torch of this version that cannot record, or None where it can."""
    if is_available:
        return None
    if not is_built_for_gpu:
        return RecordingError(
            f"torch {version} was built without CUDA, and only a GPU's memory can be recorded",
            "install a CUDA (or ROCm) build of torch, as pytorch.org/get-started says, on a machine with a GPU",
        )
    return RecordingError(
        f"torch {version} finds no GPU, and only a GPU's memory can be recorded",
        "run it on a machine with a GPU; where there is one, look at nvidia-smi and at CUDA_VISIBLE_DEVICES",
    )


def is_cuda_build(torch: Any) -> bool:
    """Whether this torch was built for CUDA or for ROCm, which answers under the same names."""
    return torch.version.cuda is not None or getattr(torch.version, "hip", None) is not None


class Door:
    """torch's recorder and counters, as far as this torch has them.

    Args:
        torch: the module.
    """

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        memory = torch.cuda.memory
        self._set_label = getattr(memory, "_set_memory_metadata", None)
        self._get_label = getattr(memory, "_get_memory_metadata", None)

    # Recording

    def when_ready(self, act: Callable[[], None]) -> None:
        """Run `act` before the program's first allocation: now, or when torch first initialises CUDA.

        CUDA is not initialised for its sake, so that a program may still fork or choose its devices.
        """
        self.torch.cuda._lazy_call(act)

    def is_ready(self) -> bool:
        """Whether CUDA is initialised in this process; not yet, while what `when_ready` was given is running."""
        return bool(self.torch.cuda.is_initialized())

    def start(self, context: str | None, stacks: str, max_entries: int) -> None:
        """Switch recording on, for every device.

        The history is cleared where this torch can (2.8): a ring that was sized otherwise before would come
        out in the wrong order.
        """
        history = self.torch.cuda.memory._record_memory_history
        wanted: dict[str, object] = {
            "enabled": "all",  # a word and never a bool: a bool means the legacy call, which records one entry
            "context": context,
            "stacks": stacks,
            "max_entries": max_entries,
            "clear_history": True,
        }
        known = inspect.signature(history).parameters
        history(**{name: value for name, value in wanted.items() if name in known})

    def stop(self) -> None:
        """Switch recording off; torch forgets the events then."""
        self.torch.cuda.memory._record_memory_history(None)

    def snapshot(self) -> dict[str, Any]:
        """Everything torch recorded, on every device."""
        return self.torch.cuda.memory._snapshot()

    def listen(self, listener: OutOfMemoryListener) -> None:
        """Have `listener` called when an allocation fails for good, before the error is raised.

        torch keeps an observer for the life of the process, so it is given one, which calls whoever listens
        now.
        """
        attach = getattr(self.torch._C, "_cuda_attach_out_of_memory_observer", None)
        if attach is None:
            return
        if not any(one is attach for one in _attached):
            attach(_notify)
            _attached.append(attach)
        _listeners.append(listener)

    def listen_no_more(self, listener: OutOfMemoryListener) -> None:
        """Undo `listen`."""
        with contextlib.suppress(ValueError):
            _listeners.remove(listener)

    # Labels

    @property
    def has_labels(self) -> bool:
        """Whether events can carry a text of ours, user_metadata (torch 2.10)."""
        return self._set_label is not None and self._get_label is not None

    def set_label(self, text: str) -> None:
        """Put a text on every event of this thread from now on.

        torch keeps the text with the allocator, and there is none before CUDA is initialised.
        """
        if self._set_label is not None and self.is_ready():
            self._set_label(text)

    def get_label(self) -> str:
        """The text that this thread's events carry now."""
        return str(self._get_label()) if self._get_label is not None and self.is_ready() else ""

    # Counters

    def device(self) -> int:
        """The device that is current in this thread."""
        return int(self.torch.cuda.current_device())

    def devices_in_use(self) -> list[int]:
        """The current device, and every other one on which this process holds memory; to be asked once CUDA is up."""
        current = self.device()
        reserved = self.torch.cuda.memory.memory_reserved
        count = int(self.torch.cuda.device_count())
        return [device for device in range(count) if device == current or reserved(device) > 0]

    def stats(self, device: int) -> dict[str, int]:
        """The allocator's own counters, torch.cuda.memory_stats, without what never happened."""
        stats: dict[str, Any] = self.torch.cuda.memory.memory_stats(device)
        return {name: int(value) for name, value in stats.items() if value}

    def reset_peaks(self) -> None:
        """Let the peak counters of every device in use begin anew."""
        for device in self.devices_in_use():
            self.torch.cuda.memory.reset_peak_memory_stats(device)

    def limit(self, size: int) -> None:
        """Let the allocator have no more than `size` bytes of the current device."""
        device = self.device()
        total = int(self.torch.cuda.get_device_properties(device).total_memory)
        fraction = min(size / total, 1.0)
        # torch multiplies back and cuts the fraction off: a limit must not come out a byte smaller than asked for
        while fraction < 1.0 and int(fraction * total) < size:
            fraction = math.nextafter(fraction, 2.0)
        self.torch.cuda.memory.set_per_process_memory_fraction(fraction, device)

    # Conditions

    def versions(self) -> dict[str, str | None]:
        """The versions of torch, CUDA or ROCm, and the driver; null where unknown."""
        version = self.torch.version
        return {
            "torch": str(self.torch.__version__),
            "cuda": version.cuda,
            "hip": getattr(version, "hip", None),
            "driver": _DRIVER.read_text(encoding="ascii").strip() if _DRIVER.is_file() else None,
        }

    def describe_devices(self) -> list[dict[str, Any]]:
        """Name, capability, total and free bytes of each device in use."""
        found: list[dict[str, Any]] = []
        for device in self.devices_in_use():
            properties = self.torch.cuda.get_device_properties(device)
            row: dict[str, Any] = {
                "device": device,
                "name": str(properties.name),
                "capability": [int(properties.major), int(properties.minor)],
                "multiprocessor_count": int(properties.multi_processor_count),
                "total_bytes": int(properties.total_memory),
                "free_bytes": None,
            }
            with contextlib.suppress(Exception):  # asking the driver may fail on shared or virtual devices
                row["free_bytes"] = int(self.torch.cuda.mem_get_info(device)[0])
            found.append(row)
        return found

    def backend(self) -> str | None:
        """The allocator in use: native, cudaMallocAsync, or None where torch does not say."""
        ask = getattr(self.torch.cuda.memory, "get_allocator_backend", None)
        return None if ask is None else str(ask())

    def is_out_of_memory(self, error: BaseException | None) -> bool:
        """Whether an exception is torch's out-of-memory error."""
        return isinstance(error, self.torch.cuda.OutOfMemoryError)


def _notify(device: int, missing: int, total: int, free: int) -> None:
    """What torch calls; an exception here would take the place of the program's own."""
    for listener in _listeners:
        with contextlib.suppress(Exception):
            listener(device, missing, total, free)
