"""What the recorder's tests share: torch, or a sentence that says how to get it, and the pretended GPU."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stand_in import StandIn


@pytest.fixture(scope="session")
def torch() -> Any:
    """The module; one thread is enough, and leaves the machine to others."""
    module = pytest.importorskip(
        "torch", reason="torch is not installed: pip install torch (a CPU build will do) to test the recorder"
    )
    module.set_num_threads(1)
    return module


@pytest.fixture
def pretend(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[tuple[int, int]], StandIn]:
    """Makes a pretended GPU under the torch of a release."""
    for name in [*os.environ]:
        if name in ("RANK", "WORLD_SIZE", "LOCAL_RANK") or name.startswith(
            ("SLURM_", "OMPI_", "PMI_", "TORCHELASTIC_")
        ):
            monkeypatch.delenv(name)
    return lambda release: StandIn(torch, monkeypatch.setattr, release)


@pytest.fixture
def gpu(pretend: Callable[[tuple[int, int]], StandIn]) -> StandIn:
    """A pretended GPU under a recent torch."""
    return pretend((2, 13))


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where a run folder may go."""
    return tmp_path / "a.run"
