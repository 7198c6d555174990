"""Recordings from the shared folder, in the shape that the allocator's room takes."""

from __future__ import annotations

import json
import lzma
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.settings import Settings

SHARED = Path(__file__).resolve().parents[2].parent / "shared"


class Recording(NamedTuple):
    events: Events
    segments: list[FinalSegment]
    settings: Settings
    facts: dict[str, Any]

    def peak(self, name: str) -> int:
        """The largest of a memory_stats peak over the whole recording."""
        readings: list[Any] = [*(self.facts.get("step_stats") or []), self.facts.get("stats") or {}]
        peaks: list[int] = [reading.get(f"{name}.all.peak", 0) for reading in readings]
        if name in ("allocated_bytes", "reserved_bytes"):
            column = 3 if name == "allocated_bytes" else 4
            rows: list[Any] = self.facts.get("readings") or []
            peaks += [row[column] for row in rows]
        return max(peaks)


def _events(trace: list[dict[str, Any]]) -> Events:
    def column(key: str) -> list[Any]:
        return [event.get(key) for event in trace]

    stacks = [id(event["frames"]) if event.get("frames") else None for event in trace]
    pools = column("pool_id") if any("pool_id" in event for event in trace) else None
    return Events(column("action"), column("addr"), column("size"), column("stream"), pools, stacks)


def _segment(segment: dict[str, Any]) -> FinalSegment:
    blocks: list[FinalBlock] = []
    address = segment["address"]
    for block in segment["blocks"]:
        address = block.get("address", address)
        blocks.append(FinalBlock(address, block["size"], block.get("requested_size"), block["state"]))
        address += block["size"]
    return FinalSegment(
        segment["address"],
        segment["total_size"],
        segment["stream"],
        tuple(segment.get("segment_pool_id", (0, 0))),
        segment["segment_type"] == "small",
        segment.get("is_expandable", False),
        blocks,
    )


def _load(name: str) -> Recording:
    for folder in ("captures", "public-snapshots"):
        path = SHARED / folder / f"{name}.pickle.xz"
        if path.exists():
            break
    else:
        pytest.skip(f"{name} is not in the shared folder")
    with lzma.open(path) as file:
        snapshot: dict[str, Any] = pickle.load(file)  # noqa: S301  (the project's own recording)
    facts_path = SHARED / "captures" / f"{name}.facts.json.xz"
    facts: dict[str, Any] = json.loads(lzma.decompress(facts_path.read_bytes())) if facts_path.exists() else {}
    traces: list[list[dict[str, Any]]] = snapshot["device_traces"]
    segments = [segment for segment in snapshot["segments"] if segment["device"] == 0]
    return Recording(
        _events(traces[0] if traces else []),
        [_segment(segment) for segment in segments],
        Settings.from_snapshot(snapshot.get("allocator_settings")),
        facts,
    )


@pytest.fixture(scope="session")
def recording() -> Callable[[str], Recording]:
    """A recording of device 0 by name; skips where the shared folder is not there."""
    loaded: dict[str, Recording] = {}

    def load(name: str) -> Recording:
        if name not in loaded:
            loaded[name] = _load(name)
        return loaded[name]

    return load
