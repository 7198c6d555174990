"""torch's own out-of-memory messages, of every generation: given a text, expected numbers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import facts_of
from tests.test_commands import run
from tracekit.errors import TracekitError
from tracekit.oom_message import parse, sentences

MIB, GIB = 1 << 20, 1 << 30


def gib(number: float) -> int:
    """As the message means it: hundredths of a GiB, exactly."""
    return round(number * 100) * GIB // 100


def mib(number: float) -> int:
    return round(number * 100) * MIB // 100


V10 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.93 GiB total capacity; 6.99 GiB"
    " already allocated; 11.44 MiB free; 297.24 MiB cached)"
)
V14 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.96 GiB (GPU 1; 23.69 GiB total capacity; 20.28 GiB"
    " already allocated; 1.08 GiB free; 22.11 GiB reserved in total by PyTorch) If reserved memory is >>"
    " allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for Memory"
    " Management and PYTORCH_CUDA_ALLOC_CONF"
)
V14_ALLOWED = (
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 7.79 GiB total capacity; 3.31 GiB already"
    " allocated; 3.18 GiB free; 3.50 GiB allowed; 3.35 GiB reserved in total by PyTorch)"
)
V20 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 720.00 MiB. GPU 0 has a total capacty"
    " of 184.31 GiB of which 443.94 MiB is free. Process 12 has 1.50 GiB memory in use. Including non-PyTorch"
    " memory, this process has 183.87 GiB memory in use. Of the allocated memory 171.63 GiB is allocated by"
    " PyTorch, and 2.00 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is"
    " large try setting max_split_size_mb"
)
V23_POOLS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 594.00 MiB. GPU 0 has a total capacity of"
    " 15.77 GiB of which 514.19 MiB is free. Including non-PyTorch memory, this process has 15.26 GiB memory"
    " in use. Of the allocated memory 13.73 GiB is allocated by PyTorch, with 46.00 MiB allocated in private"
    " pools (e.g., CUDA Graphs), and 736.86 MiB is reserved by PyTorch but unallocated."
)
SWALLOWED = (
    "CUDA out of memory. Tried to allocate 7.65 GiB. GPU 0 has a total capacity of 79.19 GiB of which 6.87 GiB"
    " is free. Process 1 has 72.31 GiB memory in use. Of the allocated memory 70.63 GiB is allocated by"
    " PyTorch, and 134.28 MiB is reserved by PyTorch but unallocated."
)
HIP = (
    "HIP out of memory. Tried to allocate 12.60 GiB. GPU 2 has a total capacity of 63.98 GiB of which 12.44"
    " GiB is free. Of the allocated memory 50.00 GiB is allocated by PyTorch, and 1.00 GiB is reserved by"
    " PyTorch but unallocated."
)
XPU = (
    "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of"
    " 15.91 GiB. Of the allocated memory 15.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch"
    " but unallocated. Please use `empty_cache` to release all unoccupied cached memory."
)
MPS = (
    "RuntimeError: MPS backend out of memory (MPS allocated: 18.04 GB, other allocations: 80.00 KB, max"
    " allowed: 18.13 GB). Tried to allocate 1.00 GB on private pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0"
    " to disable upper limit"
)
OVERFLOW = (
    "CUDA out of memory. Tried to allocate 17179869183.95 GiB (GPU 0; 11.17 GiB total capacity; 1.50 GiB"
    " already allocated; 8.90 GiB free; 1.60 GiB reserved in total by PyTorch)"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            V10,
            {
                "backend": "CUDA",
                "device": 0,
                "asked_bytes": 20 * MIB,
                "total_bytes": gib(7.93),
                "allocated_bytes": gib(6.99),
                "free_bytes": mib(11.44),
                "unallocated_bytes": mib(297.24),
                "reserved_bytes": gib(6.99) + mib(297.24),
                "verdict": "fragmented",
            },
        ),
        (
            V14,
            {
                "device": 1,
                "asked_bytes": gib(1.96),
                "reserved_bytes": gib(22.11),
                "allocated_bytes": gib(20.28),
                "unallocated_bytes": gib(22.11) - gib(20.28),
                "free_bytes": gib(1.08),
                "verdict": "between",
            },
        ),
        (V14_ALLOWED, {"allowed_bytes": gib(3.5), "free_bytes": gib(3.18), "verdict": "fragmented"}),
        (
            V20,
            {
                "asked_bytes": 720 * MIB,
                "total_bytes": gib(184.31),
                "free_bytes": mib(443.94),
                "process_bytes": gib(183.87),
                "allocated_bytes": gib(171.63),
                "unallocated_bytes": 2 * GIB,
                "outside_bytes": gib(183.87) - gib(171.63) - 2 * GIB,
                "processes": [[12, gib(1.5)]],
                "verdict": "fragmented",
            },
        ),
        (
            V23_POOLS,
            {
                "allocated_bytes": gib(13.73),
                "private_pool_bytes": 46 * MIB,
                "unallocated_bytes": mib(736.86),
                "free_bytes": mib(514.19),
                "total_bytes": gib(15.77),
                "verdict": "fragmented",
            },
        ),
        (
            SWALLOWED,
            {
                "asked_bytes": gib(7.65),
                "total_bytes": gib(79.19),
                "free_bytes": gib(6.87),
                "process_bytes": None,
                "processes": [[1, gib(72.31)]],
                "allocated_bytes": gib(70.63),
                "unallocated_bytes": mib(134.28),
                "verdict": "full",
            },
        ),
        (HIP, {"backend": "HIP", "device": 2, "asked_bytes": gib(12.6), "verdict": "between"}),
        (XPU, {"backend": "XPU", "unallocated_bytes": 0, "free_bytes": None, "verdict": "full"}),
        (
            MPS,
            {
                "backend": "MPS",
                "asked_bytes": GIB,
                "allocated_bytes": gib(18.04),
                "other_bytes": 80 << 10,
                "allowed_bytes": gib(18.13),
                "verdict": None,
            },
        ),
        (OVERFLOW, {"asked_bytes": gib(17179869183.95), "verdict": "overflow"}),
    ],
)  # fmt: skip
def test_each_generation_is_read(text: str, expected: dict[str, Any]) -> None:
    (message,) = parse(text)
    assert {name: message.as_dict()[name] for name in expected} == expected
    assert sentences(message)[0].startswith(message.backend)


def test_the_message_of_a_recording_agrees_with_its_counters(shared: Path) -> None:
    """Two decimals of a GiB are right to 5.4 MB."""
    facts = facts_of(shared / "captures" / "sweep_21_ws8.pickle.xz")
    (message,) = parse(facts["oom_message"])
    stats = facts["oom"]["stats"]
    for found, exact in (
        (message.asked_bytes, facts["oom"]["alloc"]),
        (message.free_bytes, facts["oom"]["free"]),
        (message.total_bytes, facts["device_total"]),
        (message.allowed_bytes, facts["oom"]["total"]),
        (message.allocated_bytes, stats["allocated_bytes.all.current"]),
        (message.reserved_bytes, stats["reserved_bytes.all.current"]),
    ):
        assert found is not None
        assert abs(found - exact) <= 0.01 * GIB
    assert [process for process, _ in message.processes] == [433, 417, 419, 428, 426]
    assert message.outside_bytes == gib(41.67) - gib(37.31) - gib(3.75)
    # 3.75 GiB idle of 4.03 asked: the message alone says full, and the recording says more
    assert message.verdict == "full"


def test_a_log_may_hold_several(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"step 1\n{V20}\nTraceback\n{HIP}\n", encoding="utf-8")
    told = json.loads(run("oom-message", log, "--format", "json").stdout)
    assert [message["backend"] for message in told] == ["CUDA", "HIP"]
    assert [message["asked_bytes"] for message in told] == [720 * MIB, gib(12.6)]


def test_a_message_may_come_as_an_argument_or_through_a_pipe() -> None:
    for done in (run("oom-message", V14), run("oom-message", stdin=V14.encode())):
        assert done.returncode == 0
        assert "between full and fragmented" in done.stdout
        assert "the request is 8.8 % of what would be live" in done.stdout


def test_the_failing_request_may_be_a_trifle() -> None:
    """The request of 720 MiB is 0.4 % of what was live: it is what failed, and not the cause."""
    (message,) = parse(V20)
    assert message.why is not None
    assert "the request is 0.4 % of what would be live" in message.why


@pytest.mark.parametrize("text", ["", "all is well", "CUDA out of memory"])
def test_a_text_without_a_message_is_said_to_be_one(text: str) -> None:
    with pytest.raises(TracekitError, match="no out-of-memory message of torch is in the text"):
        parse(text)
