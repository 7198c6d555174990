"""The closed form against torch itself, on a CPU: parameters, optimizer state, and what autograd saves."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.estimates import SMALL
from tests.conftest import ROOT
from tracekit.estimate import static
from tracekit.estimate.ledger import estimate
from tracekit.estimate.rows import optimizers
from tracekit.estimate.run import Run
from tracekit.estimate.static import trained_sizes
from tracekit.estimate.tensors import total_bytes

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:Failed to initialize NumPy")

SIZES = {"vocabulary": 5003, "context": 256, "width": 256, "heads": 4, "layers": 3}
RUN = Run(batch=2, sequence=64, attention="eager")

MADE: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {}),
    "sgd-momentum": ("SGD", {"momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "adamw-amsgrad": ("AdamW", {"amsgrad": True}),
    "nadam": ("NAdam", {}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "adafactor": ("Adafactor", {}),
}


@pytest.fixture(scope="module")
def gpt2() -> Any:
    sys.path.insert(0, str(ROOT / "capture"))
    try:
        import gpt2  # pyright: ignore[reportMissingImports]
    finally:
        sys.path.pop(0)
    return gpt2


def step(model: Any) -> None:
    tokens = torch.randint(SIZES["vocabulary"], (RUN.batch, RUN.sequence))
    model(tokens, tokens)[1].backward()


@pytest.mark.parametrize("name", MADE)
def test_optimizer_state(gpt2: Any, name: str) -> None:
    kind, given = MADE[name]
    if not hasattr(torch.optim, kind):
        pytest.skip(f"this torch has no {kind}")
    model = gpt2.GPT2(gpt2.Config(**SIZES))
    optimizer = getattr(torch.optim, kind)(model.parameters(), **given)
    step(model)
    optimizer.step()
    # counters of one number stay on the CPU
    kept = [value for state in optimizer.state.values() for value in state.values() if value.dim()]
    run = replace(RUN, optimizer=optimizers()[name])
    tensors = list(static.states(SMALL, run))
    assert sum(value.nbytes for value in kept) == total_bytes(tensors, SMALL.sizes | trained_sizes(SMALL, run))


@pytest.mark.parametrize("is_checkpointed", [False, True])
def test_what_autograd_saves(gpt2: Any, is_checkpointed: bool) -> None:
    model = gpt2.GPT2(gpt2.Config(**SIZES, checkpoint=is_checkpointed))
    own = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage  # keeping it, so that no other takes its address
        return tensor

    tokens = torch.randint(SIZES["vocabulary"], (RUN.batch, RUN.sequence))
    targets = torch.randint(SIZES["vocabulary"], (RUN.batch, RUN.sequence))
    given = {tensor.untyped_storage().data_ptr() for tensor in (tokens, targets)}

    def unpack(tensor: Any) -> Any:
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        model(tokens, targets)
    saved = sum(storage.nbytes() for address, storage in kept.items() if address not in given)
    run = replace(RUN, is_checkpointed=is_checkpointed)
    activation = estimate(SMALL, run).accounts[4].by_bucket()["activation"]
    log_softmax, total_weight = 2 * 64 * 5003 * 4, 4
    assert saved == activation + log_softmax + total_weight
