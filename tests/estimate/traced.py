"""What the tests of traced estimates share: torch, or a sentence that says how to get it, and models to trace."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tracekit.allocator.settings import Settings
from tracekit.estimate.traced import answer, cards
from tracekit.estimate.traced.answer import Conditions, Estimate
from tracekit.place import place
from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

MIB = 1 << 20
MODELS = Path(__file__).parent / "models"
AMPERE = 8_519_680


def need_torch() -> None:
    """Skip where there is no torch."""
    module = pytest.importorskip(
        "torch", reason="torch is not installed: pip install torch (a CPU build will do) to test traced estimates"
    )
    module.set_num_threads(1)


def conditions(
    card: str = "h200", workspace: int | None = None, limit: int | None = None, steps: int = 2
) -> Conditions:
    """The GPU of the recordings, unless told otherwise."""
    chosen = cards.card(card)
    return Conditions(chosen, workspace or chosen.cublas_workspace, Settings(), limit, steps)


@cache
def _traced(model: str, given: Conditions, arguments: tuple[tuple[str, Any], ...]) -> Estimate:
    if str(ROOT / "capture") not in sys.path:
        sys.path.append(str(ROOT / "capture"))
    path = ROOT / "capture" / "train_step.py" if model == "train_step" else MODELS / f"{model}.py"
    return answer.estimate(answer.load(f"{path}:build"), dict(arguments), given, lambda _: None)


def traced(model: str, given: Conditions | None = None, **arguments: Any) -> Estimate:
    """A model of models/, or the story's own step, traced once."""
    need_torch()
    return _traced(model, given or conditions(), tuple(arguments.items()))


def opened(estimate: Estimate) -> Warehouse:
    """An estimate's database."""
    raw = estimate.tables()
    return Warehouse(raw | place(raw) | {"user_rule": TABLES["user_rule"].schema.empty_table()})
