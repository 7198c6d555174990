"""The allocator's room: settings, the caching allocator as a model, the replay of a recording, and what-if.

Pure: values in, values out. Files, tables, charts and torch have no place here.

`settings`, `blocks`, `cache` and `model` are the allocator; `device` and `driver` stand in for the driver. `recording`,
`opening`, `forced`, `recorded`, `account`, `resync` and `replay` compare it with what a recording shows; `result` is
what comes of it. `program` takes the allocator's decisions out of a recording, and `whatif` runs what is left again.
"""

from __future__ import annotations

from tracekit.allocator.device import ascending, descending, shuffled
from tracekit.allocator.program import Program, allocate_earlier, program_of
from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.replay import replay_recording
from tracekit.allocator.result import Mismatch, Peak, Placements, Replay
from tracekit.allocator.settings import Settings, TieOrder
from tracekit.allocator.whatif import CachedBlock, Outcome, OutOfMemory, run

__all__ = [
    "CachedBlock",
    "Events",
    "FinalBlock",
    "FinalSegment",
    "Mismatch",
    "OutOfMemory",
    "Outcome",
    "Peak",
    "Placements",
    "Program",
    "Replay",
    "Settings",
    "TieOrder",
    "allocate_earlier",
    "ascending",
    "descending",
    "program_of",
    "replay_recording",
    "run",
    "shuffled",
]
