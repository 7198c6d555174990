"""Real recordings, replayed under their own settings, agree with the allocator in every decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tracekit.allocator.replay import replay_recording

if TYPE_CHECKING:
    from conftest import Recording

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
    replay = replay_recording(given.events, given.segments, given.settings)

    assert replay.is_exact, replay.verdict
    assert replay.opening_count == 0
    assert replay.unknown_held_count == 0
    assert replay.peak_allocated.value == given.peak("allocated_bytes")
    assert replay.peak_reserved.value == given.peak("reserved_bytes")


@pytest.mark.parametrize("name", LATE)
def test_a_recording_that_begins_late_is_reproduced_from_its_opening_state(
    name: str, recording: Callable[[str], Recording]
) -> None:
    given = recording(name)
    replay = replay_recording(given.events, given.segments, given.settings)

    assert replay.is_exact, replay.verdict
