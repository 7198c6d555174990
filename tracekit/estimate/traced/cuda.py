"""What `torch.cuda` says while a step is traced: that there is a GPU, which one, and nothing of what it holds.

Only answers to a script's questions; what torch chooses on a GPU is `stand_in`'s.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError
from tracekit.estimate.traced.door import torch

if TYPE_CHECKING:
    from tracekit.estimate.traced.tracer import Tracer

_NOTHING = (
    *("_lazy_init", "synchronize", "set_device", "ipc_collect", "reset_peak_memory_stats"),
    *("reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats"),
)
_COUNTERS = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved")
_NOT_FOLLOWED = ("Stream", "ExternalStream", "CUDAGraph", "graph", "MemPool", "use_mem_pool")


def pretend(stack: contextlib.ExitStack, tracer: Tracer, put: Callable[..., None]) -> None:
    """Put answers in the place of functions of `torch.cuda` until the stack is left.

    Args:
        stack: what takes them back.
        tracer: whose card is stood in for.
        put: puts a value in a module's place, given the stack, the module and the name.
    """
    card = tracer.card
    properties = types.SimpleNamespace(
        name=card.name,
        major=card.major,
        minor=0,
        total_memory=card.total_bytes,
        multi_processor_count=card.processors,
        max_threads_per_multi_processor=card.threads,
        warp_size=32,
    )
    answers: dict[str, Any] = {
        "is_available": True,
        "is_bf16_supported": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_name": card.name,
        "get_device_capability": (card.major, 0),
        "get_device_properties": properties,
        "mem_get_info": (card.total_bytes, card.total_bytes),
        "memory_summary": "",
        **dict.fromkeys(_NOTHING),
    }
    functions = {name: _answering(answer) for name, answer in answers.items()}
    functions |= {name: _counting(tracer, name) for name in _COUNTERS}
    functions |= {name: _refusing(name) for name in _NOT_FOLLOWED}
    functions |= {"empty_cache": tracer.empty_cache, "Event": _Event}
    for module in (torch.cuda, torch.cuda.memory):
        for name, function in functions.items():
            if hasattr(module, name):
                put(stack, module, name, function)


def _answering(answer: object) -> Callable[..., object]:
    """A function of its own for each name: torch lists its functions, and takes no two names for one."""

    def say(*_: object, **__: object) -> object:
        return answer

    return say


def _counting(tracer: Tracer, name: str) -> Callable[..., int]:
    def count(*_: object, **__: object) -> int:
        tracer.tape.assumed[f"torch.cuda.{name}() was answered with 0: no allocator runs while a step is traced"] = None
        return 0

    return count


def _refusing(name: str) -> type:
    """A class that cannot be made: torch asks whether objects are of it."""

    def refuse(*_: object, **__: object) -> None:
        raise TracekitError(
            f"the step uses torch.cuda.{name}, and only work on the usual stream can be followed",
            f"leave torch.cuda.{name} out of what build returns",
        )

    return type(name, (), {"__init__": refuse})


class _Event:
    """An event that has happened already."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def record(self, *_: object) -> None:
        """Nothing is waited for."""

    wait = synchronize = record

    def query(self) -> bool:
        """Whether it has happened."""
        return True

    def elapsed_time(self, _other: object) -> float:
        """Milliseconds between two events."""
        return 1.0
