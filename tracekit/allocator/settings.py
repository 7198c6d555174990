"""The allocator's settings, as a person writes them and as a snapshot records them, and the sizes they give.

No blocks and no state live here: everything is a function of the settings and a number of bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import cast

from tracekit.errors import TracekitError
from tracekit.units import MIB

MIN_BLOCK = 512
"""Every block is a multiple of this (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)."""
SMALL_SIZE = MIB
"""Rounded requests up to this live in the small pool (kSmallSize)."""
SMALL_SEGMENT = 2 * MIB
"""A segment of the small pool, and a page of its expandable segments (kSmallBuffer)."""
LARGE_SEGMENT = 20 * MIB
"""A segment for large requests below MIN_LARGE_REQUEST (kLargeBuffer; an option since torch 2.11)."""
MIN_LARGE_REQUEST = 10 * MIB
"""From here on a request gets a segment of its own size (kMinLargeAlloc)."""
LARGE_STEP = 2 * MIB
"""Such a segment is a multiple of this (kRoundLarge)."""
DIVISION_BUCKETS = 16
"""roundup_power2_divisions has one entry for each power of two from 1 MiB to 32 GiB."""

PoolId = tuple[int, int]


class TieOrder(Enum):
    """Which of several free blocks of one size on one stream comes first.

    The format notes say the lowest, and of torch up to 2.11 that is right: by segment age, 333 addresses of gpt2_b8_ws8
    would be others. Newer sources put an age before the address; a snapshot does not say which torch wrote it.
    """

    ADDRESS = "address"
    """The lowest; up to torch 2.11."""
    BLOCK_AGE = "block age"
    """The one whose Block object is oldest; for some weeks of spring 2026 (pytorch pull requests 178362, 182929)."""
    SEGMENT_AGE = "segment age"
    """The one in the oldest segment, then the lowest; torch 2.13 and later (183591)."""


DEFAULT_POOL: PoolId = (0, 0)

_HINT = "write options as KEY:VALUE,KEY:VALUE, as in PYTORCH_CUDA_ALLOC_CONF"
_KNOWN = (
    "max_split_size_mb",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "roundup_power2_divisions",
    "garbage_collection_threshold",
    "expandable_segments",
    "per_process_memory_fraction",
)
_IGNORED = frozenset(
    {
        "backend",
        "graph_capture_record_stream_reuse",
        "pinned_num_register_threads",
        "pinned_reserve_segment_size_mb",
        "pinned_use_background_threads",
        "pinned_use_cuda_host_register",
        "pinned_use_hip_host_register",
        "release_lock_on_cudamalloc",
        "release_lock_on_hipmalloc",
        "throw_on_cudamalloc_oom",
    }
)
"""Options that change no placement: host memory, locks, and how a failure is reported."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one device's caching allocator is set.

    Attributes:
        max_split_size: blocks of this size or more are never split; None is unlimited, torch's default.
        max_non_split_rounding: a request of max_split_size or more takes a cached block only below its own
            size plus this (an option since torch 2.6, fixed at 20 MiB before).
        roundup_power2_divisions: for requests in the buckets [1 MiB, 2 MiB), [2 MiB, 4 MiB), ... the number
        of
            steps between two powers of two; 0 and 1 switch it off; the first bucket also takes smaller
            requests.
        garbage_collection_threshold: the share of the memory limit above which cached segments are collected.
        expandable_segments: segments grow by mapping pages.
        large_segment_size: a segment for middling requests, and the page of large expandable segments.
        memory_limit: bytes that may be reserved in all (set_per_process_memory_fraction); None is no limit.
        device_total: the device's memory in bytes; None where it is not known.
        tie_order: which of several free blocks of one size comes first; it changed with torch's version.
        no_split_pools: private pools made with no_split (torch 2.10 and later), whose blocks are never split.
        fixed_pools: private pools with an allocator of their own, which expandable segments never serve.
        overflow_pools: private pools made with use_on_oom (torch 2.8 and later), whose free blocks serve a
            request
            of the default pool that the driver refused.
    """

    max_split_size: int | None = None
    max_non_split_rounding: int = 20 * MIB
    roundup_power2_divisions: tuple[int, ...] = (0,) * DIVISION_BUCKETS
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    large_segment_size: int = LARGE_SEGMENT
    memory_limit: int | None = None
    device_total: int | None = None
    tie_order: TieOrder = TieOrder.ADDRESS
    no_split_pools: frozenset[PoolId] = frozenset()
    fixed_pools: frozenset[PoolId] = frozenset()
    overflow_pools: tuple[PoolId, ...] = ()

    @property
    def rounds_plainly(self) -> bool:
        """True where every request is rounded to the next multiple of 512 and nothing else."""
        return max(self.roundup_power2_divisions, default=0) <= 1

    def round_request(self, requested: int) -> int:
        """Round a request to the size that is looked for.

        Learned from c10/cuda/CUDACachingAllocator.cpp, round_size; recording gpt2_b8_maxsplit shows the
        divisions at work. The bucket comes from the request itself, not from the rounded size.
        """
        if requested < MIN_BLOCK:
            return MIN_BLOCK
        bucket = min(max(requested.bit_length() - 21, 0), DIVISION_BUCKETS - 1)
        divisions = self.roundup_power2_divisions[bucket]
        if divisions > 1 and requested > MIN_BLOCK * divisions:
            return _round_to_division(requested, divisions)
        return (requested + MIN_BLOCK - 1) & -MIN_BLOCK

    def segment_size(self, rounded: int) -> int:
        """Tell what is asked of the driver when no cached block fits.

        Learned from c10/cuda/CUDACachingAllocator.cpp, get_allocation_size. Exactly 10 MiB takes the last
        branch.
        """
        if rounded <= SMALL_SIZE:
            return SMALL_SEGMENT
        if rounded < MIN_LARGE_REQUEST:
            return self.large_segment_size
        return (rounded + LARGE_STEP - 1) // LARGE_STEP * LARGE_STEP

    def page_size(self, is_small: bool) -> int:
        """Tell the page of an expandable segment: the unit in which memory is mapped and unmapped.

        Learned from c10/cuda/CUDACachingAllocator.cpp, find_expandable_block; gpt2_b8_expandable shows both.
        """
        return SMALL_SEGMENT if is_small else self.large_segment_size

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Read options as a person gives them to PYTORCH_CUDA_ALLOC_CONF.

        Raises:
            TracekitError: where an option is unknown or its value cannot be used.
        """
        return cls().with_options(text)

    def with_options(self, text: str) -> Settings:
        """Return these settings with the options in `text` laid over them."""
        settings = self
        for key, value in _options(text):
            settings = settings._with_option(key, value)
        return settings

    def _with_option(self, key: str, value: str) -> Settings:
        match key:
            case "max_split_size_mb":
                return replace(self, max_split_size=_mebibytes(key, value, above=20))
            case "max_non_split_rounding_mb":
                return replace(self, max_non_split_rounding=_mebibytes(key, value, above=20, or_equal=True))
            case "large_segment_size_mb":
                return replace(self, large_segment_size=_mebibytes(key, value, above=20, or_equal=True))
            case "roundup_power2_divisions":
                return replace(self, roundup_power2_divisions=_divisions(value))
            case "garbage_collection_threshold":
                return replace(self, garbage_collection_threshold=_fraction(key, value, may_be_one=False))
            case "expandable_segments":
                return replace(self, expandable_segments=_switch(key, value))
            case "per_process_memory_fraction":
                return self._with_fraction(_fraction(key, value, may_be_one=True))
            case _ if key in _IGNORED:
                return self
            case _:
                raise TracekitError(f"{key!r} is not an allocator option", f"the options are {', '.join(_KNOWN)}")

    def _with_fraction(self, fraction: float) -> Settings:
        if self.device_total is None:
            return self
        return replace(self, memory_limit=int(fraction * self.device_total) if fraction < 1 else None)

    @classmethod
    def from_snapshot(
        cls, allocator_settings: Mapping[str, object] | None, device_total: int | None = None
    ) -> Settings:
        """Read what a snapshot says of the settings it was recorded under; the rest are torch's defaults.

        Values that have the wrong type are passed over, never fatal: the replay will show where they
        mattered.
        """
        settings = cls(device_total=device_total)
        if not allocator_settings:
            return settings
        for key, value in _options(str(allocator_settings.get("PYTORCH_CUDA_ALLOC_CONF") or ""), is_strict=False):
            try:
                settings = settings._with_option(key, value)
            except TracekitError:
                continue
        return settings._with_recorded(allocator_settings)

    def _with_recorded(self, recorded: Mapping[str, object]) -> Settings:
        settings = self
        split = recorded.get("max_split_size")
        if isinstance(split, int):
            settings = replace(settings, max_split_size=split if 0 < split < 2**63 - 1 else None)
        threshold = recorded.get("garbage_collection_threshold")
        if isinstance(threshold, (int, float)):
            settings = replace(settings, garbage_collection_threshold=float(threshold))
        expandable = recorded.get("expandable_segments")
        if isinstance(expandable, bool):
            settings = replace(settings, expandable_segments=expandable)
        divisions = recorded.get("roundup_power2_divisions")
        if isinstance(divisions, dict):
            buckets = cast("dict[object, object]", divisions)
            settings = replace(settings, roundup_power2_divisions=_recorded_divisions(buckets))
        return settings

    def describe(self) -> str:
        """Say in one line what differs from torch's defaults, as options would be written."""
        parts: list[str] = []
        if self.expandable_segments:
            parts.append("expandable_segments:True")
        if self.max_split_size is not None:
            parts.append(f"max_split_size_mb:{self.max_split_size // MIB}")
        if self.max_non_split_rounding != 20 * MIB:
            parts.append(f"max_non_split_rounding_mb:{self.max_non_split_rounding // MIB}")
        if not self.rounds_plainly:
            parts.append(f"roundup_power2_divisions:{_describe_divisions(self.roundup_power2_divisions)}")
        if self.garbage_collection_threshold > 0:
            parts.append(f"garbage_collection_threshold:{self.garbage_collection_threshold:g}")
        if self.large_segment_size != LARGE_SEGMENT:
            parts.append(f"large_segment_size_mb:{self.large_segment_size // MIB}")
        return ",".join(parts) or "default"


def _round_to_division(requested: int, divisions: int) -> int:
    """Round up to one of `divisions` steps between two powers of two (roundup_power2_next_division)."""
    floor = 1 << (requested.bit_length() - 1)
    if requested == floor:
        return requested
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return (requested + step - 1) & -step


def _options(text: str, is_strict: bool = True) -> list[tuple[str, str]]:
    """Split `a:1,b:[256:1,>:8]` at its outer commas."""
    options: list[tuple[str, str]] = []
    for part in re.findall(r"(?:\[[^\]]*\]?|[^,\[])+", text):
        key, colon, value = part.strip().partition(":")
        if colon and key.strip() and value.strip():
            options.append((key.strip(), value.strip()))
        elif part.strip() and is_strict:
            raise TracekitError(f"{part.strip()!r} is not an allocator option", _HINT)
    return options


def _mebibytes(key: str, value: str, above: int, or_equal: bool = False) -> int:
    if not value.isdecimal():
        raise TracekitError(f"{key} is a whole number of MiB, not {value!r}", f"for example {key}:256")
    count = int(value)
    if count < above or (count == above and not or_equal):
        bound = f"{above} or more" if or_equal else f"more than {above}"
        raise TracekitError(f"{key} must be {bound}, not {value}", f"for example {key}:256")
    return count * MIB


def _fraction(key: str, value: str, may_be_one: bool) -> float:
    try:
        fraction = float(value)
    except ValueError:
        fraction = -1.0
    if not (0 < fraction < 1 or (may_be_one and fraction == 1)):
        raise TracekitError(f"{key} is a number between 0 and 1, not {value!r}", f"for example {key}:0.8")
    return fraction


def _switch(key: str, value: str) -> bool:
    if value not in {"True", "False"}:
        raise TracekitError(f"{key} is True or False, not {value!r}", f"for example {key}:True")
    return value == "True"


def _divisions(value: str) -> tuple[int, ...]:
    """Read one number for all buckets, or `[256:1,512:2,1024:4,>:8]`.

    Learned from c10/core/AllocatorConfig.h: what stands before the first key fills the buckets below it, `>`
    fills the buckets above the last key, a bucket that is not named stays off.
    """
    if not value.startswith("["):
        return (_division_count(value),) * DIVISION_BUCKETS
    buckets = [0] * DIVISION_BUCKETS
    last = -1
    for part in value.strip("[]").split(","):
        key, _, count = (piece.strip() for piece in part.partition(":"))
        divisions = _division_count(count)
        if key == ">":
            buckets[last + 1 :] = [divisions] * (DIVISION_BUCKETS - last - 1)
            continue
        if not key.isdecimal() or int(key).bit_count() != 1:
            raise TracekitError(
                f"a key of roundup_power2_divisions is a power of two in MiB, not {key!r}",
                "for example roundup_power2_divisions:[256:1,512:2,1024:4,>:8]",
            )
        index = min(int(key).bit_length() - 1, DIVISION_BUCKETS - 1)
        if last < 0:
            buckets[:index] = [divisions] * index
        buckets[index] = divisions
        last = index
    return tuple(buckets)


def _division_count(value: str) -> int:
    if not value.isdecimal() or int(value).bit_count() > 1:
        raise TracekitError(
            f"roundup_power2_divisions is a power of two, not {value!r}",
            "for example roundup_power2_divisions:4",
        )
    return int(value)


def _recorded_divisions(recorded: Mapping[object, object]) -> tuple[int, ...]:
    buckets = [0] * DIVISION_BUCKETS
    for key, value in recorded.items():
        text = str(key)
        if isinstance(value, int) and value >= 0 and text.isdecimal() and int(text).bit_count() == 1:
            buckets[min(int(text).bit_length() - 1, DIVISION_BUCKETS - 1)] = value
    return tuple(buckets)


def _describe_divisions(buckets: tuple[int, ...]) -> str:
    if len(set(buckets)) == 1:
        return str(buckets[0])
    return "[" + ",".join(f"{1 << index}:{count}" for index, count in enumerate(buckets)) + "]"
