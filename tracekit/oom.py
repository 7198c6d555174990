"""Out of memory, explained at the event: what was asked, what was live, why it failed, and what would have helped.

The facts come from queries/report/oom.sql and the replay; here they are put together and said. Nothing is printed.
"""

from __future__ import annotations

from typing import Any

from tracekit import ledger
from tracekit.ledger import Moment
from tracekit.terminal import mib, printable
from tracekit.units import format_size
from tracekit.warehouse import Warehouse

Row = dict[str, Any]

MOST_EXPLAINED = 5
"""Requests that are explained one by one; a program that goes on can fail thousands of times."""

MOST_REPLAYED = 50_000
"""Events of a recording that is replayed under other settings unasked; a longer one takes more than seconds."""


def as_json(warehouse: Warehouse, device: int, count: int) -> list[Row]:
    """The first requests of a device that failed, each with its account, its twins and what was tried.

    Args:
        warehouse: the dataset.
        device: the device.
        count: how many of its requests failed; nothing is asked of a recording without one.

    Returns:
        Rows of the view oom with ledger, twins, largest_free_bytes and settings (see `tried`) beside them; settings
        is empty where the program went on.
    """
    if not count:
        return []
    rows = warehouse.rows("from oom where device = ? limit ?", [device, MOST_EXPLAINED])
    return [
        {
            **row,
            "failed_count": count,
            "largest_free_bytes": largest_free(warehouse, row),
            "ledger": ledger.lines(warehouse, Moment(device, row["moment"], row["event_ix"])),
            "twins": warehouse.rows("from twin_at(?, ?, ?)", [device, row["event_ix"], row["asked_bytes"]]),
            "settings": tried(warehouse, row) if row["outcome"] == "fatal" else [],
        }
        for row in rows
    ]


def tried(warehouse: Warehouse, row: Row) -> list[Row] | None:
    """What a replay of the recording under other settings says of a request that failed.

    The limit is not in the file but lies between two numbers that are, so each setting is tried under both: one that
    passes under the lower would have passed, one that fails under the higher would not, and of one between the file
    cannot tell. What was set already is not tried.

    Returns:
        Dicts of name, passes (yes, perhaps or no) and peak_reserved_bytes (of the run that passes), those that pass
        first; None where the recording is too long to be replayed unasked.
    """
    from tracekit import what_if

    (events,) = warehouse.rows("select count(*) as n from trace_event where device = ?", [row["device"]])
    if events["n"] > MOST_REPLAYED:
        return None
    recording = what_if.recorded(warehouse, row["device"])
    names = ["", *what_if.SUGGESTED]
    lower = what_if.trials(recording, names, row["limit_from_bytes"])
    higher = what_if.trials(recording, names, row["limit_below_bytes"] - 1)
    found: list[Row] = []
    for surely, perhaps in zip(lower, higher, strict=True):
        passing = surely if surely.outcome.fits else perhaps if perhaps.outcome.fits else None
        if surely.name != "recorded":
            found.append(
                {
                    "name": surely.name,
                    "passes": "yes" if passing is surely else "no" if passing is None else "perhaps",
                    "peak_reserved_bytes": None if passing is None else passing.outcome.peak_reserved.value,
                }
            )
    order = ("yes", "perhaps", "no")
    return sorted(found, key=lambda one: (order.index(one["passes"]), one["peak_reserved_bytes"] or 0))


def sentences(row: Row) -> list[str]:
    """One request that failed, in lines of text."""
    asker = printable(row["requested_by"]) if row["requested_by"] else "a stack without frames"
    where = f"event {row['event_ix']:,}"
    if row["step"] is not None:
        where += f" in step {row['step']}"
    if row["phase"] is not None:
        where += f", {row['phase']}"
    asked = format_size(row["asked_bytes"])
    told = [f"out of memory at {where}: {asked} requested by {asker}: {_OUTCOME[row['outcome']]}"]
    if row["outcome"] == "recovered":
        told[0] += f", it then got {format_size(row['next_bytes'])}"
    told.append(
        f"live then {mib(row['active_bytes'])} MiB, free inside segments {mib(row['cached_bytes'])} MiB"
        f" (the largest usable piece {mib(row['largest_free_bytes'])} MiB), reserved {mib(row['reserved_bytes'])} MiB"
    )
    held = [line for line in row["ledger"] if line["bucket"] not in ledger.BESIDE and line["requested_bytes"]]
    held.sort(key=lambda line: -line["requested_bytes"])
    parts = [f"{line['bucket']} {mib(line['requested_bytes'])}" for line in held[:6]]
    told.append(f"live by bucket, MiB: {', '.join(parts)}{' ...' if len(held) > 6 else ''}")
    told += [_verdict(row), *_free_elsewhere(row), *_twins(row), *_settings(row)]
    return told


_OUTCOME = {
    "fatal": "nothing was allocated after it",
    "recovered": "recovered",
    "survived": "the program went on without it",
}


def _verdict(row: Row) -> str:
    needed = f"live and asked together are {format_size(row['needed_bytes'])}"
    if row["verdict"] == "fragmented":
        return (
            f"fragmented: {needed}, and the recording has had {format_size(row['limit_from_bytes'])} reserved before;"
            " in one place, the free bytes would have served it"
        )
    if row["verdict"] == "full":
        return f"full: {needed}, and that much was refused"
    return (
        f"full or fragmented, the file cannot tell: {needed}, and the limit lies between"
        f" {format_size(row['limit_from_bytes'])} (reserved before)"
        f" and {format_size(row['limit_below_bytes'])} (refused)"
    )


def _free_elsewhere(row: Row) -> list[str]:
    if row["device_free_bytes"] is None or row["device_free_bytes"] < row["segment_bytes"]:
        return []
    free = mib(row["device_free_bytes"])
    return [f"the device had {free} MiB free, so a limit set on the process refused it, not the card"]


def _twins(row: Row) -> list[str]:
    if not row["twins"]:
        share = 100 * row["asked_bytes"] / row["needed_bytes"] if row["needed_bytes"] else 0
        return [f"no live block has its bytes; it is {share:.1f} % of what would have been live"]
    told = ["live blocks of exactly its bytes:"]
    for twin in row["twins"][:6]:
        asker = printable(twin["user_frame"] or twin["requested_by"] or "no frame")
        born = "before the recording" if twin["birth_event_ix"] is None else f"at event {twin['birth_event_ix']:,}"
        told.append(f"  allocation {twin['allocation_id']}, {twin['bucket']}, born {born}, {asker}")
    if len(row["twins"]) > 6:
        told.append(f"  ... and {len(row['twins']) - 6:,} more")
    return told


def _settings(row: Row) -> list[str]:
    if row["settings"] is None:
        command = f"tracekit replay DATASET --suggest --limit {row['limit_from_bytes']}"
        return [f"no other settings were tried, as the recording has over {MOST_REPLAYED:,} events; to try: {command}"]
    passing = [one for one in row["settings"] if one["passes"] != "no"]
    told = [
        f"  {one['name']}: {'yes' if one['passes'] == 'yes' else 'if the limit allows'},"
        f" {mib(one['peak_reserved_bytes'])} MiB reserved at most"
        for one in passing
    ]
    if told:
        limits = f"{mib(row['limit_from_bytes'])} and {mib(row['limit_below_bytes'])} MiB"
        return [f"settings with which it passes in a replay (the limit lay between {limits}):", *told]
    if row["settings"]:
        return ["no allocator setting that was tried in a replay lets it pass"]
    return []


def largest_free(warehouse: Warehouse, row: Row) -> int:
    """Bytes of the largest free piece that may serve a request: of its stream, its pool and its class of size.

    Args:
        warehouse: the dataset.
        row: a row of the view oom; with another event_ix, the piece as it was then.
    """
    (found,) = warehouse.rows(
        "select coalesce(max(size_bytes), 0) as size_bytes from free_piece_at($device, $event_ix)"
        " where stream = $stream and pool = $pool and is_small = $is_small",
        {
            "device": row["device"],
            "event_ix": row["event_ix"],
            "stream": row["stream"],
            "pool": row["pool"] or "(0,0)",
            "is_small": row["asked_bytes"] <= 1 << 20,
        },
    )
    return found["size_bytes"]
