"""Snapshots of any length: a training loop of made-up layers, driven through the allocator's own model.

Lists and dicts are shared as torch shares them: one dict a frame, a new list a call. Nothing is measured here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tracekit.allocator.blocks import Block
from tracekit.allocator.device import Device
from tracekit.allocator.model import Allocator
from tracekit.allocator.settings import Settings

Row = dict[str, Any]
MIB = 1 << 20


class _Loop:
    """A recorder's view of the loop: events, and the frames that they share."""

    def __init__(self) -> None:
        self.allocator = Allocator(Settings(), Device(Settings()))
        self.events: list[Row] = []
        self.frames: dict[tuple[str, str, int], Row] = {}
        self.now = 1_790_000_000_000_000
        self.live: dict[int, tuple[Block, list[Row]]] = {}

    def stack(self, *path: tuple[str, str, int]) -> list[Row]:
        """A new list of shared frames, as deep as real ones."""
        gather = [("torch::unwind::unwind()", "??", 0), ("torch::CapturedTraceback::gather(bool, bool, bool)", "??", 0)]
        calls = [(f"at::native::dispatch_{depth}(at::Tensor const&)", "??", 0) for depth in range(22)]
        return [
            self.frames.setdefault(key, {"name": key[0], "filename": key[1], "line": key[2]})
            for key in (*gather, *calls, *path, ("main", "train.py", 100))
        ]

    def note(self, action: str, address: int, size: int, frames: list[Row]) -> None:
        self.now += 3
        self.events.append(
            {"action": action, "addr": address, "size": size, "stream": 0, "time_us": self.now,
             "compile_context": "N/A", "user_metadata": "", "frames": frames}
        )  # fmt: skip

    def malloc(self, size: int, *path: tuple[str, str, int]) -> Block:
        frames = self.stack(*path)
        block = self.allocator.malloc(size)
        for step in self.allocator.steps:
            self.note(step.action, step.address, step.size, frames)
        self.allocator.steps.clear()
        self.note("alloc", block.address, size, frames)
        self.live[block.address] = (block, frames)
        return block

    def free(self, block: Block, *path: tuple[str, str, int]) -> None:
        frames = self.stack(*path)
        self.note("free_requested", block.address, block.requested, frames)
        self.note("free_completed", block.address, block.requested, frames)
        del self.live[block.address]
        self.allocator.free(block)


_CALL = ("_call_impl", "site-packages/torch/nn/modules/module.py", 1779)
_ENGINE = ("torch::autograd::Engine::evaluate_function(std::shared_ptr<GraphTask>&)", "??", 0)


def _node(layer: int) -> tuple[str, str, int]:
    return (f"torch::autograd::generated::Layer{layer % 7}Backward0::apply(std::vector<at::Tensor>&&)", "??", 0)


def _step(loop: _Loop, layers: int) -> None:
    """Forward saves two tensors a layer and drops one; backward takes them off again."""
    saved: list[Block] = []
    for layer in range(layers):
        line = ("forward", "model.py", 10 + layer)
        saved.append(loop.malloc((4 + layer % 3) * MIB + 512 * layer, line, _CALL))
        scratch = loop.malloc(3 * MIB + 1000, line, _CALL)
        saved.append(loop.malloc(40_000 + 512 * (layer % 5), line, _CALL))
        loop.free(scratch, line, _CALL)
    gradient = loop.malloc(8 * MIB, _node(layers), _ENGINE)
    for layer in reversed(range(layers)):
        following = loop.malloc(8 * MIB + 512 * (layer % 2), _node(layer), _ENGINE)
        loop.free(gradient, _node(layer), _ENGINE)
        loop.free(saved.pop(), _node(layer), _ENGINE)
        loop.free(saved.pop(), _node(layer), _ENGINE)
        gradient = following
    loop.free(gradient, _ENGINE)


def snapshot(event_count: int, layers: int = 48) -> Row:
    """A snapshot of about so many events: 48 weights, then as many steps as it takes."""
    loop = _Loop()
    for layer in range(layers):
        loop.malloc(2 * MIB + 512 * layer, ("convert", "site-packages/torch/nn/modules/module.py", 1370))
    marks: list[Row] = []
    step = 0
    while len(loop.events) < event_count:
        step += 1
        marks.append({"name": f"step {step}", "stage": "START", "device": 0, "time_us": loop.now + 1})
        _step(loop, layers)
        marks.append({"name": f"step {step}", "stage": "END", "device": 0, "time_us": loop.now + 1})
    return {
        "segments": list(_segments(loop)),
        "device_traces": [loop.events],
        "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1, "expandable_segments": False},
        "external_annotations": marks,
    }


def _segments(loop: _Loop) -> Iterator[Row]:
    for segment in sorted(loop.allocator.segments.values(), key=lambda one: one.address):
        blocks: list[Row] = []
        block: Block | None = segment.first
        while block is not None:
            held = loop.live.get(block.address)
            is_held = held is not None and held[0] is block
            blocks.append(
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested if is_held else 0,
                    "state": "active_allocated" if is_held else "inactive",
                    "frames": held[1] if held is not None and is_held else [],
                }
            )
            block = block.next
        held_bytes = sum(one["size"] for one in blocks if one["state"] == "active_allocated")
        yield {
            "device": 0,
            "address": segment.address,
            "total_size": segment.size,
            "allocated_size": held_bytes,
            "active_size": held_bytes,
            "requested_size": sum(one["requested_size"] for one in blocks if one["state"] == "active_allocated"),
            "stream": 0,
            "segment_type": "small" if segment.size == 2 * MIB else "large",
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "frames": [],
            "blocks": blocks,
        }
