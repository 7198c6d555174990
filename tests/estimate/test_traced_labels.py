"""Labels of programs that no recording here is of, traced, against torch's own lists of what such a program holds."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tests.estimate.traced import MODELS, need_torch, opened, traced
from tracekit import ledger

Sizes = dict[str, int]


def held_by_torch(how: str) -> Sizes:
    """Bytes by bucket after two steps of the same program on the CPU, by asking its objects."""
    spec = importlib.util.spec_from_file_location("homes", MODELS / "homes.py")
    assert spec is not None
    assert spec.loader is not None
    homes: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(homes)
    model, optimizer, step = homes.build("cpu", how)
    step()
    step()
    velocity, kept = step.kept
    copied = getattr(kept, "module", kept)  # beside which torch keeps a count
    states: list[Any] = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    lists: dict[str, Any] = {
        "parameter": model.parameters(),
        "buffer": model.buffers(),
        "gradient": [one.grad for one in model.parameters()],
        "optimizer_state": [*states, *(velocity or [])],
        "weight_copy": [] if copied is None else [*copied.parameters(), *copied.buffers()],
    }
    return {bucket: sum(int(one.nbytes) for one in tensors) for bucket, tensors in lists.items()}


@pytest.mark.parametrize("how", ["moved", "made there", "assigned", "averaged", "swa", "by hand"])
def test_every_byte_that_outlives_a_step_has_its_bucket(how: str) -> None:
    need_torch()
    expected = held_by_torch(how)
    with opened(traced("homes", how=how)) as warehouse:
        (moment,) = ledger.find_moments(warehouse, "end")
        found = {row["bucket"]: row["requested_bytes"] for row in ledger.lines(warehouse, moment)}
    assert {bucket: found.get(bucket, 0) for bucket in expected} == expected
    assert not found.keys() & {"unattributed", "input", "activation"}
