"""What the stories' tests share: the stories, and torch, or a sentence that says how to get it."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest

CAPTURE = Path(__file__).resolve().parents[2] / "capture"
SHARED = Path(__file__).resolve().parents[3] / "shared"


@pytest.fixture(scope="session")
def torch() -> Any:
    """The module; one thread is enough, and leaves the machine to others."""
    module = pytest.importorskip(
        "torch", reason="torch is not installed: pip install torch (a CPU build will do) to test the stories"
    )
    module.set_num_threads(1)
    return module


@pytest.fixture
def story(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Imports a file of capture/ by its name."""
    monkeypatch.setattr(sys, "path", [str(CAPTURE), *sys.path])
    return importlib.import_module


@pytest.fixture
def gpt2(torch: Any, story: Any) -> Any:
    """The model."""
    del torch
    return story("gpt2")


@pytest.fixture
def train_step(story: Any) -> Any:
    """The training step; it needs no torch to be imported."""
    return story("train_step")


@pytest.fixture
def batch_sweep(story: Any) -> Any:
    """The sweep; it needs no torch to be imported."""
    return story("batch_sweep")


@pytest.fixture
def activation_scaling(torch: Any, story: Any) -> Any:
    """The exercise on activations."""
    del torch
    return story("activation_scaling")


@pytest.fixture
def shared() -> Path:
    """The folder with the project's recordings, where it is at hand."""
    if not (SHARED / "captures").is_dir():
        pytest.skip("the shared recordings are not beside this checkout (../shared/captures)")
    return SHARED
