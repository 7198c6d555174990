"""How right the labels are, as shares of bytes: against torch's own lists, autograd's saved tensors and made truth.

The labels under test see stacks and lifetimes only; what is compared with was measured beside the recording.
`python -m benchmarks.scores` prints the table, and the tests assert its values.
"""

from __future__ import annotations

import json
import lzma
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tracekit.analysis import build
from tracekit.warehouse import Warehouse

SHARED = Path(__file__).resolve().parents[2] / "shared"
CAPTURES = SHARED / "captures"
PUBLIC = SHARED / "public-snapshots"
GENERATOR = SHARED / "tools" / "gen_snapshot.py"

BUCKET_OF_ROLE = {
    "parameter": "parameter",
    "buffer": "buffer",
    "gradient": "gradient",
    "optimizer": "optimizer_state",
}
"""Our bucket for each role of the list of tensors that torch gave."""

BUCKETS_OF_TRUTH = {
    "weights": {"parameter"},
    "inputs": {"input"},
    "activations": {"activation", "logits_and_loss"},
    "gradients": {"gradient"},
    "activation_grads": {"backward_temporary", "gradient_in_flight", "logits_and_loss"},
    "optimizer_state": {"optimizer_state"},
    "workspaces": {"library_workspace"},
    "temporaries": {"forward_temporary", "backward_temporary", "optimizer_temporary"},
    "leak": {"unattributed", "forward_temporary"},
}
"""Our buckets for each bucket of a made recording: its `activations` include the logits and what the loss saves, its
`temporaries` are those of any phase, and its `leak` is a forward's tensor that nobody ever frees."""


@dataclass(frozen=True, slots=True)
class Score:
    """Bytes that have the right label, of bytes for which the truth is known.

    Attributes:
        what: what was compared.
        right_bytes: bytes with the right label.
        total_bytes: bytes for which the truth is known.
        wrong: bytes by (the truth, our bucket, our rule); `nothing` is the truth of bytes it does not have.
    """

    what: str
    right_bytes: int
    total_bytes: int
    wrong: dict[tuple[str, str, str], int] = field(default_factory=dict[tuple[str, str, str], int])

    @property
    def share(self) -> float:
        """Right bytes as a share of 1."""
        return self.right_bytes / self.total_bytes if self.total_bytes else 1.0


def facts_of(name: str) -> dict[str, Any]:
    """What was measured beside a shared recording."""
    return json.loads(lzma.decompress((CAPTURES / f"{name}.facts.json.xz").read_bytes()))


def opened(path: Path) -> Warehouse:
    """The views over a snapshot file, in memory."""
    return Warehouse(build(path)[1])


def names_with_tensors() -> list[str]:
    """The shared recordings whose facts list the model's tensors."""
    names = sorted(path.name.removesuffix(".pickle.xz") for path in CAPTURES.glob("*.pickle.xz"))
    return [name for name in names if facts_of(name).get("tensors")]


def model_score(warehouse: Warehouse, facts: dict[str, Any]) -> Score:
    """Parameters, buffers, gradients and optimizer state after the last optimizer step, against torch's own list.

    A tied weight is listed under each of its names and counts once.
    """
    truth = {address: (BUCKET_OF_ROLE[role], size) for role, _, address, size, _, _ in facts["tensors"]}
    now = max(row[5] for row in facts["readings"] if row[0].partition(".")[2] == "optimizer")
    right, wrong = 0, Counter[tuple[str, str, str]]()
    alive = {row["address"]: row for row in _alive(warehouse, now)}
    for address, (bucket, size) in truth.items():
        found = alive.get(address)
        if found is not None and found["bucket"] == bucket and found["requested_bytes"] == size:
            right += size
        else:
            wrong[bucket, *(("absent", "") if found is None else (found["bucket"], found["rule_id"]))] += size
    for address, row in alive.items():
        if address not in truth and row["bucket"] in BUCKET_OF_ROLE.values():
            wrong["nothing", row["bucket"], row["rule_id"]] += row["requested_bytes"]
    return Score("model tensors", right, sum(size for _, size in truth.values()), dict(wrong))


def _alive(warehouse: Warehouse, now: int) -> list[dict[str, Any]]:
    return warehouse.rows(
        "select allocation_bucket.*, allocation.birth_us, allocation.free_requested_us"
        " from allocation_bucket join allocation using (allocation_id)"
        " where coalesce(birth_us, 0) <= $now and coalesce(free_requested_us, $now + 1) > $now order by allocation_id",
        {"now": now},
    )


def saved_score(warehouse: Warehouse, facts: dict[str, Any]) -> Score:
    """Bytes that autograd said it saved for backward and that are no parameter, input or buffer, against our buckets.

    Every storage that a hook of autograd's saw is one of activation and logits_and_loss here, and every allocation in
    the bucket activation is such a storage.
    """
    rows = warehouse.rows(
        "select allocation_bucket.*, allocation.birth_us, allocation.free_requested_us"
        " from allocation_bucket join allocation using (allocation_id) order by allocation_id"
    )
    spans: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        spans.setdefault(row["address"], []).append(row)
    saved: set[int] = set()
    for address, *_, time_us in facts["saved"]:
        for row in spans.get(address, []):
            if (row["birth_us"] or 0) <= time_us and (
                row["free_requested_us"] is None or row["free_requested_us"] > time_us
            ):
                saved.add(row["allocation_id"])
    right = total = 0
    wrong = Counter[tuple[str, str, str]]()
    for row in rows:
        is_saved = row["allocation_id"] in saved
        if row["bucket"] in ("parameter", "buffer", "input"):
            continue
        if not is_saved and row["bucket"] != "activation":
            continue
        total += row["requested_bytes"]
        if is_saved and row["bucket"] in ("activation", "logits_and_loss"):
            right += row["requested_bytes"]
        else:
            wrong["saved" if is_saved else "not saved", row["bucket"], row["rule_id"]] += row["requested_bytes"]
    return Score("saved for backward", right, total, dict(wrong))


def made(folder: Path, *options: str, events: int = 20_000) -> tuple[Path, dict[str, Any]]:
    """A recording made by the shared generator, and its truth."""
    out, truth = folder / "made.pickle", folder / "truth.json"
    command = [sys.executable, str(GENERATOR), "-n", str(events), "-o", str(out), "--truth", str(truth), *options]
    subprocess.run(command, check=True, capture_output=True)
    return out, json.loads(truth.read_text(encoding="utf-8"))


def made_score(warehouse: Warehouse, truth: dict[str, Any]) -> Score:
    """Every allocation of a made recording against the bucket it was made for, in bytes."""
    right = total = 0
    wrong = Counter[tuple[str, str, str]]()
    meant: dict[str, str] = truth["alloc_buckets"]
    for row in warehouse.rows("from allocation_bucket where birth_event_ix is not null order by allocation_id"):
        name = meant[str(row["birth_event_ix"])]
        total += row["requested_bytes"]
        if row["bucket"] in BUCKETS_OF_TRUTH[name]:
            right += row["requested_bytes"]
        else:
            wrong[name, row["bucket"], row["rule_id"]] += row["requested_bytes"]
    return Score("made recording", right, total, dict(wrong))


def unattributed_at_peak(warehouse: Warehouse) -> Score:
    """Bytes asked for at the peak of every device that some rule explains."""
    rows = warehouse.rows("select bucket, requested_bytes from ledger where moment = 'peak' and allocation_count > 0")
    total = sum(row["requested_bytes"] for row in rows)
    rest = sum(row["requested_bytes"] for row in rows if row["bucket"] == "unattributed")
    return Score("explained at the peak", total - rest, total)


CANNOT_TELL = {
    "small_nohistory": "no event and no stack was recorded, only the segments at the end",
    "small_state": "enabled='state' keeps one event and the stacks of what is alive at the end, which the model is not",
    "small_ring": "the ring buffer lost everything before the last step: who asked for the model is not in the file",
    "small_late": "history was switched on before the last step: who asked for the model is not in the file",
}
"""Recordings whose facts list the model's tensors and that do not hold what the score needs: what they lack."""


def table() -> Iterable[tuple[str, Score]]:
    """Every score by the name of its recording."""
    with_tensors = set(names_with_tensors())
    for path in sorted(CAPTURES.glob("*.pickle.xz")):
        name = path.name.removesuffix(".pickle.xz")
        facts = facts_of(name)
        with opened(path) as warehouse:
            if name in with_tensors:
                score = model_score(warehouse, facts)
                yield name, replace(score, what="model tensors, lost") if name in CANNOT_TELL else score
            if facts.get("saved"):
                yield name, saved_score(warehouse, facts)
            yield name, unattributed_at_peak(warehouse)
    for path in sorted(PUBLIC.glob("*.pickle.xz")):
        with opened(path) as warehouse:
            score = unattributed_at_peak(warehouse)
        yield path.name.removesuffix(".pickle.xz"), replace(score, what="explained at the peak, public snapshots")
    for options in ((), ("--leak-every", "2"), ("--preexisting",), ("--ring",)):
        for stacks in ("all", "python"):
            with tempfile.TemporaryDirectory() as folder:
                path, truth = made(Path(folder), "--stacks", stacks, *options)
                with opened(path) as warehouse:
                    yield " ".join(["made, stacks", stacks, *options]), made_score(warehouse, truth)


def main() -> None:
    """Print the table of scores."""
    if not CAPTURES.is_dir():
        raise SystemExit(f"the shared recordings are not beside the checkout ({CAPTURES})")
    print("| recording | compared | right bytes | of bytes | share |\n|---|---|---:|---:|---:|")
    scores: dict[str, list[Score]] = {}
    for name, score in table():
        scores.setdefault(score.what, []).append(score)
        print(f"| {name} | {score.what} | {score.right_bytes:,} | {score.total_bytes:,} | {_percent(score.share)} |")
        for (truth, bucket, rule), size in sorted(score.wrong.items(), key=lambda item: -item[1]):
            print(f"    {name}: {truth} is called {bucket} by {rule}: {size:,} bytes", file=sys.stderr)
    print("\n| compared | recordings | right bytes | of bytes | share | worst |\n|---|---:|---:|---:|---:|---:|")
    for what, found in scores.items():
        right, total = sum(score.right_bytes for score in found), sum(score.total_bytes for score in found)
        worst = min(score.share for score in found)
        print(f"| {what} | {len(found)} | {right:,} | {total:,} | {_percent(right / total)} | {_percent(worst)} |")


def _percent(share: float) -> str:
    return f"{100 * share:.4f} %"


if __name__ == "__main__":
    main()
