"""Recordings from the shared folder, in the shape that the allocator's room takes."""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.conftest import SHARED
from tracekit.allocator.program import Program, program_of
from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.replay import Replay, replay_recording
from tracekit.allocator.settings import Settings
from tracekit.snapshot import read_snapshot


class Recording(NamedTuple):
    """One device's recording and what was measured beside it."""

    events: Events
    time_us: list[int]
    segments: list[FinalSegment]
    settings: Settings
    facts: dict[str, Any]

    def replay(self) -> Replay:
        return replay_recording(self.events, self.segments, self.settings)

    def program(self) -> Program:
        return program_of(self.replay(), self.events)

    def peak(self, name: str) -> int:
        """The largest of a memory_stats peak over the whole recording."""
        readings: list[dict[str, int]] = [*(self.facts.get("step_stats") or []), self.facts.get("stats") or {}]
        peaks = [reading.get(f"{name}.all.peak", 0) for reading in readings]
        if name in ("allocated_bytes", "reserved_bytes"):
            column = 3 if name == "allocated_bytes" else 4
            rows: list[Any] = self.facts.get("readings") or []
            peaks += [row[column] for row in rows]
        return max(peaks)

    def reading_ix(self, label: str) -> int:
        """The first event after a reading of the facts."""
        rows: list[Any] = self.facts["readings"]
        time_us = next(row[5] for row in rows if row[0] == label)
        return sum(time <= time_us for time in self.time_us)


def _events(trace: list[dict[str, Any]]) -> Events:
    def column(key: str) -> list[Any]:
        return [event.get(key) for event in trace]

    stacks = [id(event["frames"]) if event.get("frames") else None for event in trace]
    pools = column("pool_id") if any("pool_id" in event for event in trace) else None
    return Events(column("action"), column("addr"), column("size"), column("stream"), pools, stacks)


def _segment(segment: dict[str, Any]) -> FinalSegment:
    blocks = [
        FinalBlock(block["address"], block["size"], block.get("requested_size"), block["state"])
        for block in segment["blocks"]
    ]
    pool = segment.get("segment_pool_id", (0, 0))
    is_small = segment["segment_type"] == "small"
    is_expandable = segment.get("is_expandable", False)
    return FinalSegment(
        segment["address"], segment["total_size"], segment["stream"], pool, is_small, is_expandable, blocks
    )


def _load(name: str, device: int) -> Recording:
    for folder in ("captures", "public-snapshots"):
        path = SHARED / folder / f"{name}.pickle.xz"
        if path.exists():
            break
    else:
        pytest.skip(f"{name} is not in the shared folder")
    snapshot = read_snapshot(path)
    facts_path = SHARED / "captures" / f"{name}.facts.json.xz"
    facts: dict[str, Any] = {}
    if facts_path.exists():
        facts = json.loads(lzma.decompress(facts_path.read_bytes()))
    trace = snapshot.device_traces[device] if device < len(snapshot.device_traces) else []
    return Recording(
        _events(trace),
        [event.get("time_us", 0) for event in trace],
        [_segment(segment) for segment in snapshot.segments if segment["device"] == device],
        Settings.from_snapshot(snapshot.allocator_settings),
        facts,
    )


@pytest.fixture(scope="session")
def recording() -> Iterator[Callable[..., Recording]]:
    """A recording of a device by name; skips where the shared folder is not there."""
    loaded: dict[tuple[str, int], Recording] = {}

    def load(name: str, device: int = 0) -> Recording:
        if (name, device) not in loaded:
            loaded[name, device] = _load(name, device)
        return loaded[name, device]

    yield load
    loaded.clear()
