"""How much the whole of `tracekit analyze` costs, as a ratio to a bare pickle.load of the same file in the same run.

Prints ratios; asserts nothing, because machines differ and are shared. Each measurement is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import synthetic

_LOAD = "import gc, pickle, sys; gc.disable(); pickle.load(open(sys.argv[1], 'rb'))"
_ANALYZE = """
import sys
from tracekit.cli import main
main(["analyze", sys.argv[1], "--output", sys.argv[2], "--force", "--quiet", "--no-report", "--format", "json"])
"""
_QUERY = """
select stack_id, sum(allocation.requested_bytes) as bytes from allocation, moment
where moment.moment = 'peak' and allocation.device = moment.device
    and coalesce(birth_event_ix, -1) <= moment.event_ix
    and (allocation.free_requested_event_ix is null or allocation.free_requested_event_ix > moment.event_ix)
group by stack_id order by bytes desc limit 20
"""


def measured(script: str, *arguments: str) -> tuple[float, float]:
    """Wall seconds and peak MiB of a script in a process of its own, start of the interpreter included."""
    wrapper = (
        "import json, resource, subprocess, sys, time\n"
        "begin = time.perf_counter()\n"
        "done = subprocess.run([sys.executable, '-c', *sys.argv[1:]], stdout=subprocess.DEVNULL)\n"
        "seconds = time.perf_counter() - begin\n"
        "peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024\n"
        "print(json.dumps([done.returncode, seconds, peak]))\n"
    )
    done = subprocess.run([sys.executable, "-c", wrapper, script, *arguments], capture_output=True, check=True)
    code, seconds, peak = json.loads(done.stdout)
    if code != 0:
        raise SystemExit(f"a measured process ended with {code}")
    return seconds, peak


def compare(path: Path, name: str, runs: int) -> float:
    """Print the ratios of one file; return the seconds of the whole analysis."""
    with tempfile.TemporaryDirectory() as folder:
        out = str(Path(folder) / "dataset")
        loads: list[tuple[float, float]] = []
        analyses: list[tuple[float, float]] = []
        ratios: list[float] = []
        for _ in range(runs):
            loads.append(measured(_LOAD, str(path)))
            analyses.append(measured(_ANALYZE, str(path), out))
            ratios.append(analyses[-1][0] / loads[-1][0])
        import tracekit

        with tracekit.open(out) as warehouse:
            begin = time.perf_counter()
            warehouse.sql(_QUERY)
            query = time.perf_counter() - begin
            (events,) = warehouse.sql("select count(*) from trace_event").column(0).to_pylist()
    memory = max(one[1] for one in analyses) / max(one[1] for one in loads)
    seconds = min(one[0] for one in analyses)
    print(
        f"{name:28} {events:>9,} events  load {min(one[0] for one in loads):6.2f} s {loads[0][1]:6.0f} MiB"
        f"  analyze {seconds:6.2f} s {analyses[0][1]:6.0f} MiB"
        f"  time x{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})  memory x{memory:.2f}"
        f"  top stacks at the peak {query:.2f} s"
    )
    return seconds


def help_time(runs: int) -> None:
    """Print how long `tracekit --help` takes beside an interpreter that does nothing."""
    script = "import sys; from tracekit.cli import main; main(['--help'])"
    bare = min(measured("pass")[0] for _ in range(runs))
    told = min(measured(script)[0] for _ in range(runs))
    print(f"tracekit --help {told:.2f} s, a bare interpreter {bare:.2f} s")


def main() -> None:
    """Measure the shipped generator at several lengths, and any snapshots named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("snapshots", nargs="*", type=Path, help="uncompressed snapshots to measure as well")
    parser.add_argument("--events", type=int, nargs="*", default=[15_000, 150_000, 1_500_000])
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    help_time(options.runs)
    points: list[tuple[int, float]] = []
    for count in options.events:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "synthetic.pickle"
            with path.open("wb") as file:
                pickle.dump(synthetic.snapshot(count), file, protocol=4)
            points.append((count, compare(path, "synthetic", options.runs)))
    if len(points) > 1:
        (few, quick), (many, slow) = points[-2], points[-1]
        print(f"growth from {few:,} to {many:,} events: exponent {math.log(slow / quick) / math.log(many / few):.2f}")
    for path in options.snapshots:
        compare(path, path.name, options.runs)


if __name__ == "__main__":
    main()
