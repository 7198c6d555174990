"""Real recordings, replayed under their own settings, agree with the allocator in every decision."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.allocator.conftest import Recording
from tracekit.units import MIB

WHOLE = [
    "ddp_rank0",
    "ddp_rank1",
    "frag_dynamic",
    "fsdp2",
    "g2_b12_t1024_ws8",
    "g2_b1_t1024_ws8",
    "g2_b2_t1024_ws8",
    "g2_b3_t1024_ws8",
    "g2_b4_t1024_ws8",
    "g2_b4_t512_ws8",
    "g2_b6_t1024_ws8",
    "g2_b8_t512_ws8",
    "gpt2_b2_accum4",
    "gpt2_b8",
    "gpt2_b8_bf16_sdpa",
    "gpt2_b8_ckpt",
    "gpt2_b8_dispatch",
    "gpt2_b8_saved",
    "gpt2_b8_ws8",
    "legacy_history",
    "llama_b1",
    "llama_b2",
    "llama_b4",
    "module_metadata",
    "profiler_timeline",
    "resnet_b16",
    "resnet_b32",
    "small_compile",
    "small_leak",
    "small_long",
    "small_metadata",
    "small_nocontext",
    "sweep_16_ws8",
    "sweep_20_ws8",
    "sweep_21_ws8",
    "trainer_py",
    "zoo_encoder",
    "zoo_hf_gpt2_b4",
    "zoo_opt_sgdm",
    "zoo_resnet50_b32",
    "zoo_unet_b8",
    "gpt2_b8_maxsplit",
    "gpt2_b8_expandable",
    "sweep_21_ws8_expandable",
    "gc_threshold",
    "small_streams",
    "small_cudagraph",
    "mempool",
]
"""Recordings that begin at an empty device."""

LATE = [
    "small_late",
    "small_ring",
    "small_state",
    "small_nohistory",
    "five_events",
    "growing_buffer",
    "half_without_stacks",
    "late_recording_ctx128",
    "late_recording_ctx512",
    "private_pools_no_trace",
    "torch20_format",
    "windows_paths",
]
"""Recordings whose opening state has to be rebuilt, or that have no events."""


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_recording_is_reproduced_with_its_peaks(name: str, recording: Callable[[str], Recording]) -> None:
    given = recording(name)
    replay = given.replay()

    assert replay.is_exact, replay.verdict
    assert replay.opening_count == 0
    assert replay.unknown_held_count == 0
    assert not replay.notes
    assert replay.peak_allocated.value == given.peak("allocated_bytes")
    assert replay.peak_reserved.value == given.peak("reserved_bytes")


@pytest.mark.parametrize("name", LATE)
def test_a_recording_that_begins_late_is_reproduced_from_its_opening_state(
    name: str, recording: Callable[[str], Recording]
) -> None:
    replay = recording(name).replay()

    assert replay.is_exact, replay.verdict
    assert not replay.notes


def test_the_golden_runs_peak_is_known_to_the_byte(recording: Callable[[str], Recording]) -> None:
    replay = recording("gpt2_b8_ws8").replay()

    assert replay.peak_allocated == (17_882_019_840, 3815)
    assert replay.peak_requested == (17_877_285_964, 3815)
    assert replay.peak_reserved.value == 19_224_592_384
    rows = replay.placements
    at_peak = rows.birth_ix.index(3815)
    assert rows.requested[at_peak] == rows.held[at_peak] == 1_646_821_376


def test_active_bytes_fall_only_when_the_last_stream_is_done(recording: Callable[[str], Recording]) -> None:
    """Blocks of small_streams that two streams used stay active after the program dropped them."""
    given = recording("small_streams")
    replay = given.replay()
    rows = replay.placements
    deferred = [
        number
        for number, (dropped, ended) in enumerate(zip(rows.free_requested_ix, rows.death_ix, strict=True))
        if dropped is not None and ended is not None and ended > dropped + 1
    ]

    assert deferred
    assert replay.peak_active.value == given.peak("active_bytes")
    assert replay.peak_active.value > replay.peak_allocated.value


def test_a_release_by_the_program_is_told_from_one_that_a_request_caused(
    recording: Callable[[str], Recording],
) -> None:
    assert recording("small_streams").replay().empty_cache_ix == [205]
    assert recording("small_cudagraph").replay().empty_cache_ix == [1958]
    ran_short = recording("sweep_21_ws8").replay()
    assert (ran_short.empty_cache_ix, ran_short.retry_ix) == ([], [3816])
    collected = recording("gc_threshold").replay()
    assert (collected.empty_cache_ix, collected.retry_ix) == ([], [2739])


@pytest.mark.parametrize(("name", "pool"), [("small_cudagraph", (1, 0)), ("mempool", (0, 1))])
def test_the_final_segments_tell_the_private_pool_of_an_allocation(
    name: str, pool: tuple[int, int], recording: Callable[[str], Recording]
) -> None:
    assert set(recording(name).replay().placements.pool) == {(0, 0), pool}


@pytest.mark.parametrize("name", ["small_ring", "small_late"])
def test_a_part_of_a_recording_gives_the_same_blocks_as_the_whole(
    name: str, recording: Callable[[str], Recording]
) -> None:
    """Both were made by the same program as small_metadata, whose peak lies in the part they hold."""
    replay = recording(name).replay()

    assert replay.opening_count > 0
    assert replay.unknown_held_count == 0
    assert replay.peak_allocated.value == recording("small_metadata").replay().peak_allocated.value


@pytest.mark.parametrize("begin", [1, 100, 1000, 2000, 3000, 4000])
@pytest.mark.parametrize("name", ["gpt2_b8", "resnet_b16", "gpt2_b8_expandable", "gpt2_b8_maxsplit", "small_cudagraph"])
def test_whatever_beginning_is_lost_no_size_is_stated_wrongly(
    name: str, begin: int, recording: Callable[[str], Recording]
) -> None:
    given = recording(name)
    whole = given.replay().placements
    events = given.events.since(begin)
    late = given._replace(events=events).replay()

    held_at_birth = {
        (address, birth): held for address, birth, held in zip(whole.address, whole.birth_ix, whole.held, strict=True)
    }
    rows = late.placements
    for number in range(len(late.placements)):
        birth = rows.birth_ix[number]
        if birth is not None and rows.held[number] is not None:
            assert rows.held[number] == held_at_birth[rows.address[number], birth + begin]
    opening_then = {
        address: held
        for address, birth, death, held in zip(whole.address, whole.birth_ix, whole.death_ix, whole.held, strict=True)
        if birth is not None and birth < begin and (death is None or death >= begin)
    }
    assert dict.fromkeys(rows.address[: late.opening_count]) == dict.fromkeys(sorted(opening_then))
    for number in range(late.opening_count):
        assert rows.held[number] in (None, opening_then[rows.address[number]])


def test_five_events_and_75_blocks_they_never_mention(recording: Callable[[str], Recording]) -> None:
    replay = recording("five_events").replay()
    rows = replay.placements

    assert replay.opening_count == 75
    assert sum(rows.requested[number] or 0 for number in range(75)) == 186_240
    assert replay.peak_requested == (13_293_440, 2)
    assert replay.final_allocated == 6_760_960
    assert replay.final_reserved == 23_068_672


def test_a_pending_block_is_active_and_not_allocated(recording: Callable[[str], Recording]) -> None:
    replay = recording("private_pools_no_trace").replay()

    assert len(replay.pending_at_opening) == 9
    assert replay.final_active - replay.final_allocated == 597_377_024
    assert replay.final_reserved == 3_810_525_184 + 585_105_408 + 21_793_603_584


def test_a_file_that_contradicts_itself_is_followed_and_its_faults_counted(
    recording: Callable[[str], Recording],
) -> None:
    """Its addresses are random and its blocks do not fill their segments."""
    replay = recording("synthetic_inconsistent").replay()

    assert replay.mismatch_count == 520
    assert replay.final_difference_count == 5
    assert replay.unknown_held_count == 520
    assert "no known segment" in replay.verdict


def test_requests_are_not_above_blocks_and_blocks_not_above_segments(
    recording: Callable[[str], Recording],
) -> None:
    replay = recording("frag_dynamic").replay()

    assert replay.peak_requested.value < replay.peak_allocated.value < replay.peak_reserved.value
    assert replay.peak_reserved.value == 3_490 * MIB
