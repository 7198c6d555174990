"""Two runs of one program: what is the same, what first differs, and the accounts side by side."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import SAMPLE
from tests.test_commands import run
from tracekit import compare
from tracekit.compare import Side
from tracekit.errors import TracekitError

Row = dict[str, Any]

#                 size, born at, dropped at, who asked, phase
PROGRAM: list[tuple[int, int, int | None, str, str]] = [
    (1_000, 0, None, "to", "load"),
    (4_000, 1, 8, "mm", "forward"),
    (4_000, 2, 4, "gelu", "forward"),
    (2_000, 3, 9, "mm", "forward"),
    (4_000, 5, 7, "mm", "backward"),
    (1_000, 6, 10, "mm", "backward"),
]


def side(program: Sequence[tuple[int, int, int | None, str, str]], name: str = "one") -> Side:
    allocations: list[Row] = [
        {
            "birth_event_ix": born,
            "free_requested_event_ix": dropped,
            "requested_bytes": size,
            "held_bytes": size,
            "step": None if phase == "load" else 1,
            "phase": phase,
            "requested_by": asker,
            "operator": asker,
            "autograd_node": None,
            "user_frame": None,
            "bucket": {"load": "parameter", "forward": "activation"}.get(phase, "gradient"),
        }
        for size, born, dropped, asker, phase in program
    ]
    live = sum(size for size, _, dropped, _, _ in program if dropped is None or dropped > 5)
    summary = {"peak_allocated_bytes": live, "peak_requested_bytes": live, "highest_reserved_bytes": 2 * live}
    return Side(name, 0, summary, allocations, [{"bucket": "activation", "entry_bytes": live}])


def test_a_program_is_the_same_as_itself() -> None:
    found = compare.compare(side(PROGRAM), side(PROGRAM))
    assert found.pairs == [(at, at) for at in range(len(PROGRAM))]
    assert found.first is None
    assert found.divergences == []
    assert {row["difference_bytes"] for row in (*found.peaks, *found.buckets)} == {0}


def test_what_only_one_has_is_named_and_the_rest_still_matches() -> None:
    more = [*PROGRAM[:4], (512, 4, 5, "sum", "backward"), *PROGRAM[4:]]
    found = compare.compare(side(PROGRAM), side(more))
    assert len(found.pairs) == len(PROGRAM)
    assert found.first is not None
    assert (found.first["kind"], found.first["requested_by"], found.first["requested_bytes"]) == (
        "only in second",
        "sum",
        512,
    )
    (divergence,) = found.divergences
    assert (divergence["allocation_count"], divergence["requested_bytes"]) == (1, 512)


def test_one_of_another_size_is_matched_where_all_else_agrees() -> None:
    larger = [(9_000, *row[1:]) if row[3] == "gelu" else row for row in PROGRAM]
    told = compare.compare(side(PROGRAM), side(larger)).as_json()
    assert (told["matched_count"], told["resized_count"]) == (5, 1)
    assert told["first_divergence"]["kind"] == "larger in second"
    assert (told["first_divergence"]["requested_bytes"], told["first_divergence"]["smaller_bytes"]) == (9_000, 4_000)
    assert told["divergences"][0]["requested_bytes"] == 5_000


def test_one_kept_longer_is_named_by_what_the_other_side_did() -> None:
    kept = [(*row[:2], 7, *row[3:]) if row[3] == "gelu" else row for row in PROGRAM]
    found = compare.compare(side(PROGRAM), side(kept))
    assert found.first is not None
    assert (found.first["kind"], found.first["requested_by"]) == ("kept longer in second", "gelu")
    assert found.first["dropped_event_ix"] == 4


def test_strangers_are_refused() -> None:
    count = 3_000
    ours = [(1_000 + at, at, None, "mm", "forward") for at in range(count)]
    theirs = [(9_000 + at, at, None, "mm", "forward") for at in range(count)]
    with pytest.raises(TracekitError, match="too little in common"):
        compare.compare(side(ours), side(theirs))


def test_the_command_says_it_in_every_format() -> None:
    sample = str(SAMPLE / "snapshot.pickle.xz")
    table = run("compare", sample, sample)
    assert "the same in both, by size, step and order: 2,331\nthey do not diverge\n" in table.stdout
    told = json.loads(run("compare", sample, sample, "--format", "json").stdout)
    assert (told["matched_count"], told["first_divergence"], told["divergences"]) == (2_331, None, [])
    rows = list(csv.DictReader(io.StringIO(run("compare", sample, sample, "--format", "csv").stdout)))
    peak = next(row for row in rows if row["name"] == "peak_allocated")
    assert (peak["kind"], peak["first_bytes"], peak["difference_bytes"]) == ("peak", "17882019840", "0")


def test_a_state_without_events_cannot_be_compared(tmp_path: Path) -> None:
    empty = tmp_path / "empty.json"
    empty.write_text('{"segments": [], "device_traces": [[]]}')
    refused = run("compare", str(empty), str(SAMPLE / "snapshot.pickle.xz"))
    assert refused.returncode == 1
    assert "has no events to compare" in refused.stderr
