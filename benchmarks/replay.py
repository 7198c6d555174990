"""How fast a recording is replayed, and run again under other settings: seconds by events, and the exponent of growth.

Prints and asserts nothing, because machines differ and are shared.
"""

from __future__ import annotations

import math
import time

from benchmarks import synthetic
from tracekit.allocator.program import program_of
from tracekit.allocator.recording import Events, FinalBlock, FinalSegment
from tracekit.allocator.replay import replay_recording
from tracekit.allocator.settings import Settings
from tracekit.allocator.whatif import run
from tracekit.collector import paused


def recording(event_count: int) -> tuple[Events, list[FinalSegment]]:
    """A synthetic recording in the shape that the allocator's room takes."""
    raw = synthetic.snapshot(event_count)
    (trace,) = raw["device_traces"]
    events = Events(
        action=[entry["action"] for entry in trace],
        address=[entry["addr"] for entry in trace],
        size=[entry["size"] for entry in trace],
        stream=[entry["stream"] for entry in trace],
    )
    segments = [
        FinalSegment(
            address=segment["address"],
            total_size=segment["total_size"],
            stream=0,
            pool=(0, 0),
            is_small=segment["segment_type"] == "small",
            is_expandable=False,
            blocks=[
                FinalBlock(block["address"], block["size"], block["requested_size"], block["state"])
                for block in segment["blocks"]
            ],
        )
        for segment in raw["segments"]
    ]
    return events, segments


def main() -> None:
    """Measure at 10,000, 100,000 and 1,000,000 events."""
    points: list[tuple[int, float]] = []
    for count in (10_000, 100_000, 1_000_000):
        events, segments = recording(count)
        with paused():
            begin = time.perf_counter()
            replay = replay_recording(events, segments, Settings())
            replayed = time.perf_counter() - begin
            program = program_of(replay, events)
            begin = time.perf_counter()
            run(program, Settings.parse("expandable_segments:True"), keeps_events=False)
            again = time.perf_counter() - begin
        points.append((len(events), replayed))
        print(
            f"{len(events):>9,} events  replay {replayed:6.2f} s ({replay.verdict.partition(':')[0]})"
            f"  under expandable segments {again:6.2f} s"
        )
    (few, quick), (many, slow) = points[0], points[-1]
    print(f"growth of the replay: exponent {math.log(slow / quick) / math.log(many / few):.2f}")


if __name__ == "__main__":
    main()
