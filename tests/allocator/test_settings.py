"""What a person writes, what a snapshot records, and the sizes that follow from it."""

from __future__ import annotations

import pytest

from tracekit.allocator.settings import Settings
from tracekit.errors import TracekitError
from tracekit.units import MIB


def test_nothing_said_is_torchs_default() -> None:
    assert Settings.parse("") == Settings.from_snapshot(None) == Settings.from_snapshot({}) == Settings()
    assert Settings().describe() == "default"


def test_options_are_read_as_torch_reads_them() -> None:
    settings = Settings.parse("expandable_segments:True, max_split_size_mb:256 ,garbage_collection_threshold:0.6")

    assert settings.expandable_segments
    assert settings.max_split_size == 256 * MIB
    assert settings.garbage_collection_threshold == 0.6
    assert settings.describe() == "expandable_segments:True,max_split_size_mb:256,garbage_collection_threshold:0.6"


def test_options_that_change_no_placement_are_accepted() -> None:
    assert Settings.parse("backend:native,release_lock_on_cudamalloc:True") == Settings()


def test_divisions_may_differ_from_bucket_to_bucket() -> None:
    settings = Settings.parse("roundup_power2_divisions:[4:8,64:2,256:1,>:4],max_split_size_mb:64")

    assert settings.roundup_power2_divisions == (8, 8, 8, 0, 0, 0, 2, 0, 1, 4, 4, 4, 4, 4, 4, 4)
    assert settings.max_split_size == 64 * MIB


def test_a_memory_fraction_becomes_a_limit_where_the_device_is_known() -> None:
    assert Settings(device_total=1000 * MIB).with_options("per_process_memory_fraction:0.5").memory_limit == 500 * MIB
    assert Settings.parse("per_process_memory_fraction:0.5").memory_limit is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("max_split_size:256", "'max_split_size' is not an allocator option"),
        ("max_split_size_mb", "'max_split_size_mb' is not an allocator option"),
        ("max_split_size_mb:20", "max_split_size_mb must be more than 20, not 20"),
        ("max_split_size_mb:-1", "max_split_size_mb is a whole number of MiB, not '-1'"),
        ("expandable_segments:yes", "expandable_segments is True or False, not 'yes'"),
        ("garbage_collection_threshold:1", "garbage_collection_threshold is a number between 0 and 1, not '1'"),
        ("roundup_power2_divisions:3", "roundup_power2_divisions is a power of two, not '3'"),
        ("roundup_power2_divisions:[3:4]", "a key of roundup_power2_divisions is a power of two in MiB, not '3'"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(text: str, told: str) -> None:
    with pytest.raises(TracekitError) as caught:
        Settings.parse(text)

    assert caught.value.problem == told
    assert caught.value.remedy


def test_a_snapshot_says_most_settings_in_keys_and_some_only_in_the_text() -> None:
    recorded: dict[str, object] = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:256,large_segment_size_mb:40,a_later_option:1,junk",
        "max_split_size": 256 * MIB,
        "garbage_collection_threshold": 0,
        "expandable_segments": True,
        "roundup_power2_divisions": {"1": 0, "2": 4, "32768": 8, "words": 1},
    }

    settings = Settings.from_snapshot(recorded)

    assert settings.max_split_size == 256 * MIB
    assert settings.large_segment_size == 40 * MIB
    assert settings.expandable_segments
    assert settings.roundup_power2_divisions == (0, 4, *[0] * 13, 8)


@pytest.mark.parametrize("unlimited", [-1, 2**63 - 1])
def test_no_split_limit_is_recorded_as_a_number(unlimited: int) -> None:
    assert Settings.from_snapshot({"max_split_size": unlimited}).max_split_size is None


@pytest.mark.parametrize(
    ("requested", "rounded"),
    [(0, 512), (1, 512), (512, 512), (513, 1024), (MIB, MIB), (1646821376, 1646821376), (1646821377, 1646821888)],
)
def test_a_request_is_rounded_to_512_bytes(requested: int, rounded: int) -> None:
    assert Settings().round_request(requested) == rounded


@pytest.mark.parametrize(
    ("requested", "rounded"),
    [
        (2048, 2048),  # not above 512 times the divisions: plain rounding
        (2049, 2560),
        (4097, 5120),  # a quarter of 4096 is a step
        (MIB, MIB),  # a power of two stays
        (MIB + 1, MIB + MIB // 4),
        (7 * MIB - 1, 7 * MIB),
        (7 * MIB + 1, 8 * MIB),
    ],
)
def test_divisions_round_to_steps_between_powers_of_two(requested: int, rounded: int) -> None:
    assert Settings.parse("roundup_power2_divisions:4").round_request(requested) == rounded


@pytest.mark.parametrize(
    ("rounded", "size"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_the_driver_is_asked_for_whole_segments(rounded: int, size: int) -> None:
    assert Settings().segment_size(rounded) == size
