"""Phases from the pattern of allocations alone: recordings without stacks and annotations, against what these say."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from tests.queries import rows
from tracekit.analysis import build
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

Given = Callable[..., Warehouse]


def silenced(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """The same recording as if it had been made with context=None, and without a record_function."""
    quiet = dict(tables)
    for name in ("trace_event", "placement", "block", "segment"):
        for column in ("stack_id", "free_stack_id"):
            index = quiet[name].schema.get_field_index(column)
            if index >= 0:
                nothing = pa.nulls(len(quiet[name]), pa.int64())
                quiet[name] = quiet[name].set_column(index, quiet[name].schema.field(column), nothing)
    quiet["annotation"] = TABLES["annotation"].schema.empty_table()
    return quiet


def agreement(told: Warehouse, silent: Warehouse, column: str) -> float:
    """The share of bytes for which both say the same."""
    query = f"select allocation_id, requested_bytes, {column} as told from allocation order by allocation_id"  # noqa: S608
    pairs = list(zip(told.rows(query), silent.rows(query), strict=True))
    same = sum(one["requested_bytes"] for one, other in pairs if one["told"] == other["told"])
    return same / sum(one["requested_bytes"] for one, _ in pairs)


@pytest.mark.parametrize(
    ("name", "at_least"),
    [
        ("gpt2_b8_ws8", 0.999),
        ("gpt2_b2_accum4", 0.999),  # four passes a step
        ("llama_b2", 0.999),
        ("zoo_encoder", 0.999),
        ("zoo_unet_b8", 0.999),
        ("zoo_hf_gpt2_b4", 0.999),
        ("sweep_21_ws8", 0.999),  # the last step is cut off by an out-of-memory error
        ("resnet_b32", 0.99),
        ("small_leak", 0.99),
        ("small_nocontext", 0.96),  # its warm-up is no load
    ],
)
def test_phases_and_steps_agree_with_stacks_and_annotations(shared: Path, name: str, at_least: float) -> None:
    tables = build(shared / "captures" / f"{name}.pickle.xz")[1]
    with Warehouse(tables) as told, Warehouse(silenced(tables)) as silent:
        assert agreement(told, silent, "phase") >= at_least
        assert agreement(told, silent, "coalesce(step, 0)") >= 0.999
        evidence = silent.rows("select distinct phase_evidence from span where phase is not null")
        assert evidence == [{"phase_evidence": "pattern"}]
        steps = silent.rows("select distinct step_evidence from span where step is not null")
        assert steps == [{"step_evidence": "pattern"}]


@pytest.mark.parametrize(
    "name", ["frag_dynamic", "trainer_py", "gpt2_b8_ckpt", "small_ring", "small_streams", "mempool"]
)
def test_where_the_pattern_does_not_tell_nothing_is_said(shared: Path, name: str) -> None:
    """Sizes that change every step, passes that are not alike, recomputation, a lost beginning, no training."""
    tables = build(shared / "captures" / f"{name}.pickle.xz")[1]
    with Warehouse(silenced(tables)) as silent:
        assert silent.table("phase_pattern").num_rows == 0
        assert silent.rows("select phase from span where phase is not null") == []


def test_a_recording_with_stacks_is_not_guessed_at(sample: Warehouse) -> None:
    assert sample.table("phase_pattern").num_rows == 0


def test_two_steps_given(given: Given) -> None:
    """Three weights, then twice: two activations, the loss, its gradient, three gradients, and they are dropped.

    event   0-2 load   3-5 forward   6-11 backward   12 optimizer   13-16 zero_grad, then again from 17
    """
    lines = ["alloc 0x10 4096", "alloc 0x20 4096", "alloc 0x30 4096"]
    for _ in range(2):
        lines += [
            "alloc 0x100 50000",
            "alloc 0x200 60000",
            "alloc 0x300 4",
            "alloc 0x400 4",
            "alloc 0x500 4096",
            "free_requested 0x200 60000",
            "alloc 0x600 4096",
            "free_requested 0x100 50000",
            "alloc 0x700 4096",
            "free_requested 0x400 4",
            "snapshot - 0",
            "alloc 0x800 4096",
            "free_requested 0x800 4096",
            "free_requested 0x500 4096",
            "free_requested 0x600 4096",
            "free_requested 0x700 4096",
            "free_requested 0x300 4",
        ]
    placements = [f"{address:#x} 4096 4096 {event} - -" for event, address in enumerate((0x10, 0x20, 0x30))]
    for begin in (3, 20):
        for address, size, born, freed in (
            (0x100, 50000, 0, 7), (0x200, 60000, 1, 5), (0x300, 4, 2, 16), (0x400, 4, 3, 9), (0x500, 4096, 4, 13),
            (0x600, 4096, 6, 14), (0x700, 4096, 8, 15), (0x800, 4096, 11, 12),
        ):  # fmt: skip
            placements.append(f"{address:#x} {size} {size} {begin + born} {begin + freed} {begin + freed}")
    warehouse = given(
        device=[rows.device(len(lines))],
        trace_event=rows.events(*lines),
        placement=rows.placements(*placements),
        replay=[{"device": 0}],
    )
    assert [tuple(row.values()) for row in warehouse.rows("select event_ix, phase from phase_pattern")] == [
        (0, "load"),
        (3, "forward"),
        (6, "backward"),
        (13, "optimizer"),
        (16, "zero_grad"),
        (20, "forward"),
        (23, "backward"),
        (30, "optimizer"),
        (33, "zero_grad"),
    ]
