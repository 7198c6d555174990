"""A stand-in for a GPU's memory, so that the recorder can be tested without one.

It stands for torch.cuda.memory's private recorder (_record_memory_history, _snapshot, _set_memory_metadata), its
counters (memory_stats), the observer that torch._C calls when memory runs out, and the lazy initialisation of
torch.cuda: each patched into the installed torch under its own name, with the signature of the release asked for. It
does not stand for the caching allocator: a block has the size asked for, every allocation brings a segment, and no
tensor ever lives in it. What only a GPU can show is shown by capture/gpu_check.py.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

KIB = 1024


class StandIn:
    """One pretended device of 64 MiB.

    Args:
        torch: the module to patch.
        setattr: patches an attribute, as pytest's monkeypatch does.
        release: the torch release whose signatures to pretend.
    """

    def __init__(self, torch: Any, setattr: Callable[..., None], release: tuple[int, int] = (2, 13)) -> None:  # noqa: A002
        self.torch = torch
        self.release = release
        self.events: list[dict[str, Any]] = []
        self.live: dict[int, int] = {}
        self.history_calls: list[dict[str, Any]] = []
        self.observers: list[Callable[[int, int, int, int], None]] = []
        self.is_recording = False
        self.is_initialized = False
        self._has_allocator = False
        self.total = 64 * KIB * KIB
        self.fraction = 1.0
        self.snapshot_error: Exception | None = None
        self.on_snapshot: Callable[[], None] = lambda: None
        self.snapshot_extra: dict[str, Any] = {}
        self._queued: list[Callable[[], None]] = []
        self._label = threading.local()
        self._next_address = 0x7F0000000000
        self._counts = {"alloc": 0, "free": 0, "peak": 0}
        self._install(setattr)

    # What a program does

    def initialize(self) -> None:
        """What torch does when the program first touches the device, in torch's order."""
        if not self.is_initialized and not self._has_allocator:
            self._has_allocator = True
            for act in self._queued:
                act()
            self.is_initialized = True

    def allocate(self, size: int = KIB) -> int:
        """Serve an allocation, or run out of memory as torch does."""
        self.initialize()
        if sum(self.live.values()) + size > self.total * self.fraction:
            self.run_out(size)
        address = self._next_address
        self._next_address += size
        self.live[address] = size
        self._counts["alloc"] += 1
        self._counts["peak"] = max(self._counts["peak"], sum(self.live.values()))
        self._record("segment_alloc", address, size)
        self._record("alloc", address, size)
        return address

    def free(self, address: int) -> None:
        """Take an allocation back."""
        size = self.live.pop(address)
        self._counts["free"] += 1
        self._record("free_requested", address, size)
        self._record("free_completed", address, size)

    def run_out(self, size: int) -> None:
        """Tell the observers, then raise: in this order, as the allocator does."""
        self._record("oom", None, size)
        for observer in self.observers:
            observer(0, size, int(self.total * self.fraction), 0)
        raise self.torch.cuda.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")

    def label(self) -> str:
        """The text that this thread's events carry."""
        return getattr(self._label, "text", "")

    # What torch.cuda answers

    def _record(self, action: str, address: int | None, size: int) -> None:
        if not self.is_recording:
            return
        event: dict[str, Any] = {"action": action, "size": size, "stream": 0, "time_us": time.time_ns() // 1000}
        event["frames"] = []
        event["device_free" if address is None else "addr"] = 0 if address is None else address
        if self.release >= (2, 10):
            event["user_metadata"] = self.label()
        self.events.append(event)

    def _history(self, **given: Any) -> None:
        self.history_calls.append(given)
        enabled = given["enabled"]
        assert not isinstance(enabled, bool), "a bool selects the legacy recorder"
        self.is_recording = enabled == "all"
        if enabled is None:
            self.events = []

    def _snapshot(self, device: object = None) -> dict[str, Any]:  # noqa: ARG002
        self.on_snapshot()
        if self.snapshot_error is not None:
            raise self.snapshot_error
        segments: list[dict[str, Any]] = [
            {
                "device": 0,
                "address": address,
                "total_size": size,
                "allocated_size": size,
                "active_size": size,
                "requested_size": size,
                "stream": 0,
                "segment_type": "large",
                "segment_pool_id": (0, 0),
                "is_expandable": False,
                "frames": [],
                "blocks": [
                    {
                        "address": address,
                        "size": size,
                        "requested_size": size,
                        "state": "active_allocated",
                        "frames": [],
                    }
                ],
            }
            for address, size in sorted(self.live.items())
        ]
        settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False}
        return {
            "segments": segments,
            "device_traces": [list(self.events)],
            "allocator_settings": settings,
            "external_annotations": [],
            **self.snapshot_extra,
        }

    def _stats(self, device: object = None) -> dict[str, int]:  # noqa: ARG002
        if not self.is_initialized:
            return {}
        current = sum(self.live.values())
        return {
            "allocated_bytes.all.current": current,
            "allocated_bytes.all.peak": self._counts["peak"],
            "reserved_bytes.all.current": current,
            "reserved_bytes.all.peak": self._counts["peak"],
            "allocation.all.allocated": self._counts["alloc"],
            "allocation.all.freed": self._counts["free"],
            "segment.all.allocated": self._counts["alloc"],
            "segment.all.freed": 0,
            "num_ooms": 0,
        }

    def _reset_peaks(self, device: object = None) -> None:  # noqa: ARG002
        self._counts["peak"] = sum(self.live.values())

    def _lazy_call(self, act: Callable[[], None]) -> None:
        if self.is_initialized:
            act()
        else:
            self._queued.append(act)

    def _old_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        device: object = None,
    ) -> None:
        self._history(enabled=enabled, context=context, stacks=stacks, max_entries=max_entries, device=device)

    def _new_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        stacks: str = "all",
        max_entries: int = sys.maxsize,
        device: object = None,
        clear_history: bool = False,
    ) -> None:
        given = {"context": context, "stacks": stacks, "max_entries": max_entries, "device": device}
        self._history(enabled=enabled, clear_history=clear_history, **given)

    def _attach(self, observer: Callable[[int, int, int, int], None]) -> None:
        assert self._has_allocator, "torch ends the process here"
        self.observers.append(observer)

    def _set_fraction(self, fraction: float, device: object = None) -> None:  # noqa: ARG002
        self.fraction = fraction

    def _set_label(self, text: str) -> None:
        assert self._has_allocator, "torch ends the process here"
        self._label.text = text

    def _reserved(self, device: object = None) -> int:  # noqa: ARG002
        return sum(self.live.values())

    def _free_and_total(self, device: object = None) -> tuple[int, int]:  # noqa: ARG002
        return self.total, self.total

    def _properties(self, device: object = None) -> SimpleNamespace:  # noqa: ARG002
        return SimpleNamespace(
            name="Pretended GPU", major=9, minor=0, multi_processor_count=132, total_memory=self.total
        )

    def _install(self, setattr: Callable[..., None]) -> None:  # noqa: A002
        cuda, memory, core = self.torch.cuda, self.torch.cuda.memory, self.torch._C
        has_labels = self.release >= (2, 10)
        patches: list[tuple[Any, str, Any]] = [
            (cuda, "is_available", lambda: True),
            (cuda, "is_initialized", lambda: self.is_initialized),
            (cuda, "_lazy_call", self._lazy_call),
            (cuda, "device_count", lambda: 1),
            (cuda, "current_device", lambda: 0),
            (cuda, "get_device_properties", self._properties),
            (cuda, "mem_get_info", self._free_and_total),
            (cuda, "synchronize", lambda: None),
            (core, "_cuda_attach_out_of_memory_observer", self._attach),
            (memory, "_record_memory_history", self._new_history if self.release >= (2, 8) else self._old_history),
            (memory, "_snapshot", self._snapshot),
            (memory, "memory_stats", self._stats),
            (memory, "memory_reserved", self._reserved),
            (memory, "reset_peak_memory_stats", self._reset_peaks),
            (memory, "set_per_process_memory_fraction", self._set_fraction),
            (memory, "get_allocator_backend", lambda: "native"),
            (memory, "_set_memory_metadata", self._set_label if has_labels else None),
            (memory, "_get_memory_metadata", self.label if has_labels else None),
        ]
        for owner, name, value in patches:
            setattr(owner, name, value, raising=False)


def main(out: str, program: str) -> None:
    """Run a Python program text under a recorder and the stand-in, in a process that may end as it likes."""
    import torch

    def patch(owner: object, name: str, value: object, raising: bool = True) -> None:  # noqa: ARG001
        setattr(owner, name, value)

    gpu = StandIn(torch, patch)
    from tracekit.recorder import Recorder

    recorder = Recorder(out)
    exec(program, {"gpu": gpu, "recorder": recorder, "json": json})  # noqa: S102


if __name__ == "__main__":
    main(*sys.argv[1:])
