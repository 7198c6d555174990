"""The text of torch's own out-of-memory messages, of all generations, read into numbers.

Messages only; a recording's own events are explained by `tracekit.oom`. Nothing is printed here.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, field
from typing import Any

from tracekit.errors import TracekitError
from tracekit.terminal import mib

_UNITS = ({"bytes": 0, "B": 0}, {"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40}, {"KB": 10, "MB": 20, "GB": 30})
_FACTORS = {unit: 1 << power for units in _UNITS for unit, power in units.items()}
"""Bytes a unit; MPS writes GB and means powers of 1,024."""

_SIZE = r"(\d+(?:\.\d+)?) ?(bytes|[KMGT]i?B|B)\b"

_START = re.compile(r"(?:(CUDA|HIP|XPU|MPS backend|NPU) out of memory|Allocation on device)", re.IGNORECASE)
_PARTS = {
    "asked_bytes": re.compile(rf"[Tt]ried to allocate {_SIZE}"),
    "total_bytes": re.compile(rf"(?:total capac(?:i?ty) of {_SIZE}|; {_SIZE} total capacity)"),
    "free_bytes": re.compile(rf"(?:of which {_SIZE} is free|; {_SIZE} free)"),
    "process_bytes": re.compile(rf"this process has {_SIZE} memory in use"),
    "allowed_bytes": re.compile(rf"(?:{_SIZE} allowed;|max allowed: {_SIZE})"),
    "allocated_bytes": re.compile(
        rf"(?:[Oo]f the allocated memory {_SIZE} is allocated by PyTorch|; {_SIZE} already allocated"
        rf"|MPS allocated: {_SIZE})"
    ),
    "private_pool_bytes": re.compile(rf"with {_SIZE} allocated in private pools"),
    # before torch 1.4, what is cached is what is not live
    "unallocated_bytes": re.compile(rf"(?:{_SIZE} is reserved by PyTorch but unallocated|; {_SIZE} cached)"),
    "reserved_bytes": re.compile(rf"; {_SIZE} reserved in total by PyTorch"),
    "other_bytes": re.compile(rf"other allocations: {_SIZE}"),
}
_DEVICE = re.compile(r"(?:\(GPU (\d+);|\bGPU (\d+) has a total)")
_PROCESS = re.compile(rf"(?<!this )\bProcess (\d+) has {_SIZE} memory in use")

_IMPOSSIBLE = 1 << 60
"""Bytes that no device has: a request beyond them is a size that overflowed."""


@dataclass(frozen=True, slots=True)
class OomMessage:
    """What one message says, in bytes; None where it does not say. Its numbers have two decimals, so they are rounded.

    Attributes:
        backend: CUDA, HIP, XPU, NPU or MPS.
        device: the device's ordinal.
        asked_bytes: what was asked for.
        total_bytes: the device's memory.
        free_bytes: what was free on the device.
        allowed_bytes: the limit set on the process.
        process_bytes: what the process used on the device in all.
        allocated_bytes: what tensors held.
        private_pool_bytes: of that, what lies in private pools, such as those of CUDA graphs.
        unallocated_bytes: what was reserved and held nothing.
        reserved_bytes: what was reserved; allocated and unallocated together where the message says these.
        outside_bytes: what the process used beside the allocator: the context, NCCL, libraries.
        other_bytes: what MPS used beside the allocator.
        processes: other processes on the device, as [process id, bytes].
        verdict: fragmented, full, between or overflow; None where the numbers do not tell.
        why: the verdict in a sentence.
    """

    backend: str
    device: int | None
    asked_bytes: int | None
    total_bytes: int | None
    free_bytes: int | None
    allowed_bytes: int | None
    process_bytes: int | None
    allocated_bytes: int | None
    private_pool_bytes: int | None
    unallocated_bytes: int | None
    reserved_bytes: int | None
    outside_bytes: int | None
    other_bytes: int | None
    processes: list[list[int]] = field(default_factory=list[list[int]])
    verdict: str | None = None
    why: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return asdict(self)


def parse(text: str) -> list[OomMessage]:
    """Every message in a text, such as a log, in order.

    Raises:
        TracekitError: where there is none.
    """
    starts = [match.start() for match in _START.finditer(text)]
    parts = [text[start:end] for start, end in zip(starts, [*starts[1:], len(text)], strict=False)]
    found = [_message(part) for part in parts if _PARTS["asked_bytes"].search(part)]
    if not found:
        raise TracekitError(
            "no out-of-memory message of torch is in the text",
            "give the sentence that begins with: CUDA out of memory. Tried to allocate ...",
        )
    return found


def sentences(message: OomMessage) -> list[str]:
    """What a message says, in lines of text."""
    device = "" if message.device is None else f" on device {message.device}"
    told = [f"{message.backend}: {_about(message.asked_bytes)} asked for{device}"]
    for what, size in (
        ("the device has", message.total_bytes),
        ("of it free", message.free_bytes),
        ("the process may use", message.allowed_bytes),
        ("the process uses", message.process_bytes),
        ("live in tensors", message.allocated_bytes),
        ("of these in private pools", message.private_pool_bytes),
        ("reserved and not live", message.unallocated_bytes),
        ("reserved", message.reserved_bytes),
        ("outside the allocator", message.outside_bytes),
        ("other allocations", message.other_bytes),
    ):
        if size is not None:
            told.append(f"  {what}: {_about(size)}")
    told += [f"  process {pid}: {_about(size)}" for pid, size in message.processes]
    if message.why:
        told.append(message.why)
    return told


def _message(text: str) -> OomMessage:
    start = _START.match(text)
    backend = (start[1] if start and start[1] else "CUDA").removesuffix(" backend").upper()
    sizes = {name: _size(pattern.search(text)) for name, pattern in _PARTS.items()}
    device = _DEVICE.search(text)
    allocated, unallocated = sizes["allocated_bytes"], sizes["unallocated_bytes"]
    if allocated is not None and unallocated is not None:
        sizes["reserved_bytes"] = allocated + unallocated
    elif allocated is not None and sizes["reserved_bytes"] is not None:
        sizes["unallocated_bytes"] = max(sizes["reserved_bytes"] - allocated, 0)
    outside = None
    if sizes["process_bytes"] is not None and sizes["reserved_bytes"] is not None:
        outside = max(sizes["process_bytes"] - sizes["reserved_bytes"], 0)
    verdict, why = _verdict(sizes)
    return OomMessage(
        backend=backend,
        device=int(device[1] or device[2]) if device else None,
        outside_bytes=outside,
        processes=[[int(match[1]), _bytes(match[2], match[3])] for match in _PROCESS.finditer(text)],
        verdict=verdict,
        why=why,
        **sizes,
    )


def _verdict(sizes: dict[str, int | None]) -> tuple[str | None, str | None]:
    """Full or fragmented, from the message's own numbers; bytes in private pools serve no other request."""
    asked, idle, free = sizes["asked_bytes"], sizes["unallocated_bytes"], sizes["free_bytes"]
    if asked is None or idle is None:
        return None, None
    if asked >= _IMPOSSIBLE:
        return "overflow", "no device has that much: a size overflowed on its way to the allocator"
    total = sizes["allocated_bytes"]
    share = f"; the request is {100 * asked / (total + asked):.1f} % of what would be live" if total is not None else ""
    if idle >= asked:
        return "fragmented", f"fragmented: reserved and not live is as much as was asked, but not in one place{share}"
    if free is not None and sizes["allowed_bytes"] is None and idle + free >= asked:
        why = "only with what is free on the device does the unused memory hold the request"
        return "between", f"between full and fragmented: {why}{share}"
    return "full", f"full: what is reserved and not live is less than the request{share}"


def _size(match: re.Match[str] | None) -> int | None:
    if match is None:
        return None
    groups = [group for group in match.groups() if group is not None]
    return _bytes(groups[0], groups[1])


def _bytes(number: str, unit: str) -> int:
    """Whole bytes; decimals are exact in text and must not become a float on the way."""
    whole, _, fraction = number.partition(".")
    factor = _FACTORS[unit]
    return int(whole) * factor + int(fraction or "0") * factor // 10 ** len(fraction)


def _about(size: int | None) -> str:
    return "an unknown size" if size is None else f"{mib(size)} MiB"
