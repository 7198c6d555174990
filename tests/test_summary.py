"""The three sentences: given the numbers of one device, what is said of it."""

from __future__ import annotations

from typing import Any

import pytest

from tracekit import summary
from tracekit.units import format_mib

MIB = 1024 * 1024
MEANINGS = {
    "activation": "saved by the forward for the backward",
    "parameter": "weights",
    "input": "data",
    "buffer": "b",
}

PEAK: dict[str, Any] = {
    "device": 0,
    "event_count": 1000,
    "peak_event_ix": 12,
    "peak_allocated_bytes": 8 * MIB,
    "peak_reserved_bytes": 20 * MIB,
    "highest_reserved_bytes": 20 * MIB,
    "peak_step": 2,
    "peak_phase": "backward",
    "requested_by": "MmBackward0",
    "request_bytes": MIB,
}
FAILED: dict[str, Any] = {
    "event_ix": 999,
    "requested_by": None,
    "asked_bytes": 40 * MIB,
    "largest_free_bytes": 6 * MIB,
    "needed_bytes": 48 * MIB,
    "limit_from_bytes": 50 * MIB,
    "verdict": "fragmented",
}


def line(bucket: str, size: int) -> dict[str, Any]:
    return {"bucket": bucket, "requested_bytes": size, "held_bytes": size}


ACCOUNT = [
    line("parameter", 2 * MIB),
    line("buffer", 0),
    line("activation", 5 * MIB),
    line("input", 1 * MIB),
    line("block_slack", 0),
    line("cached", 12 * MIB),
]


def said(**changes: Any) -> list[str]:
    account, failed = changes.pop("account", ACCOUNT), changes.pop("failed", ())
    return [
        "".join(part if isinstance(part, str) else f"{format_mib(part)} MiB" for part in sentence)
        for sentence in summary.story(PEAK | changes, account, MEANINGS, failed)
    ]


def test_three_sentences_say_how_high_of_what_and_at_what_price() -> None:
    assert said() == [
        "Device 0 held at most 8.0 MiB at event 12 of 1,000, in step 2, backward, when MmBackward0 asked for 1.0 MiB.",
        (
            "Of these 5.0 MiB, 62.5 %, are activation (saved by the forward for the backward), 2.0 MiB, 25.0 %, are"
            " parameter and 1.0 MiB, 12.5 %, are input."
        ),
        (
            "To hold them the allocator had 20.0 MiB reserved from the device, 12.0 MiB (60.0 %) of it free inside its"
            " segments."
        ),
    ]


@pytest.mark.parametrize(
    ("changes", "index", "sentence"),
    [
        (
            {"event_count": 0, "peak_event_ix": None},
            0,
            "No events were recorded: when the snapshot was taken, device 0 held 8.0 MiB.",
        ),
        ({"peak_event_ix": None}, 0, "Device 0 held at most 8.0 MiB, as it did before the first event."),
        (
            {"peak_step": None, "peak_phase": None, "requested_by": "a\x1b[31m"},
            0,
            "Device 0 held at most 8.0 MiB at event 12 of 1,000, when a\\x1b[31m asked for 1.0 MiB.",
        ),
        ({"account": [line("cached", 0)]}, 1, "Nothing was held then."),
        (
            {"highest_reserved_bytes": 22 * MIB},
            2,
            (
                "To hold them the allocator had 20.0 MiB reserved from the device, and at most 22.0 MiB at any time;"
                " 12.0 MiB (60.0 %) of it free inside its segments."
            ),
        ),
        (
            {"failed": [FAILED]},
            2,
            (
                "It ran out of memory at event 999, when a stack without frames asked for 40.0 MiB and the largest"
                " usable free piece had 6.0 MiB: fragmented, for live and asked bytes together are 48.0 MiB, no more"
                " than the 50.0 MiB that it has had reserved before."
            ),
        ),
        (
            {"failed": [FAILED | {"verdict": "full", "requested_by": "mm"}]},
            2,
            (
                "It ran out of memory at event 999, when mm asked for 40.0 MiB and the largest usable free piece had"
                " 6.0 MiB: full, for 48.0 MiB would have been live, and that much was refused."
            ),
        ),
    ],
)
def test_what_is_not_known_is_not_said(changes: dict[str, Any], index: int, sentence: str) -> None:
    assert said(**changes)[index] == sentence


def test_an_account_says_what_it_rests_on_and_what_compiled_code_hides() -> None:
    evidence = [{"evidence": "stack", "requested_bytes": 3 * MIB}, {"evidence": "none", "requested_bytes": MIB}]
    assert summary.basis(evidence, ["stack"], 0) == [
        "the labels rest on: stack 3.0 MiB (75.0 %), nothing 1.0 MiB (25.0 %)",
        "phases are told by stacks",
    ]
    assert summary.basis(evidence, ["stack"], 2 * MIB)[2:] == [
        (
            "code that torch.compile generated asked for 2.0 MiB of this: its stacks name lines and no operators, so"
            " what a compiled loss made is in activation and the temporaries (see --by user-line)"
        )
    ]
