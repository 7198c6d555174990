"""A recording that tries everything: each text in it that a program chose is markup, a control character or a megabyte.

Nothing here reads one.
"""

from __future__ import annotations

from typing import Any

from tests.snapshots import block, event, frame, segment, snapshot

MIB = 1024 * 1024

MARKUP = "</script><script>document.title='taken'</script><img src=x onerror=\"document.title='taken'\">"
QUOTES = "\"'`${document.title='taken'}`{{7*7}}&lt;"
ZERO = "zero\0byte\x1b[31m\u2028\u202e"
LONG = "long_" + "x" * MIB

TEXTS = (MARKUP, QUOTES, ZERO, LONG)


def stack(text: str) -> list[dict[str, Any]]:
    """A stack whose every text is hostile: the function, the file, and a C++ name."""
    return [
        frame(f"at::_ops::{text}::call(at::Tensor const&)"),
        frame("Module::forward" + text, f"/home/{text}/train.py", 12),
        frame(text, f"{text}.py", 13),
    ]


def recording() -> Any:
    """Two steps, each allocating one MiB for every hostile stack, and a request that fails; a name for every mark."""
    address = 0x7000_0000
    size = 20 * MIB
    events = [event("segment_alloc", address, size, frames=stack(MARKUP), time_us=1)]
    for step in range(2):
        for index, text in enumerate(TEXTS):
            where = address + 2 * MIB * index
            events.append(
                event("alloc", where, 2 * MIB, frames=stack(text), time_us=10 + step, user_metadata=text[:200_000])
            )
        if step == 0:
            for index, text in enumerate(TEXTS):
                where = address + 2 * MIB * index
                events.append(event("free_requested", where, 2 * MIB, frames=stack(text), time_us=12))
                events.append(event("free_completed", where, 2 * MIB, frames=stack(text), time_us=12))
    events.append(event("oom", 0, 80 * MIB, frames=stack(MARKUP), time_us=20))
    blocks = [block(address + 2 * MIB * index, 2 * MIB, frames=stack(text)) for index, text in enumerate(TEXTS)]
    blocks.append(block(address + 8 * MIB, 12 * MIB, "inactive"))
    annotations = [
        {"name": f"step {text}", "stage": stage, "device": 0, "time_us": time}
        for text in TEXTS
        for stage, time in (("START", 5), ("END", 13))
    ]
    return snapshot([segment(address, size, blocks, frames=stack(MARKUP))], [events], external_annotations=annotations)
