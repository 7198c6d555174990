"""What tests share: the recordings at hand, and a database over rows given inline."""

# pyarrow's stubs leave many generics open:
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportUnknownParameterType=false, reportMissingTypeArgument=false

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pyarrow as pa
import pytest

from tracekit.schema import TABLES
from tracekit.warehouse import Warehouse

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
SAMPLE = ROOT / "samples" / "gpt2_b8"

Rows = list[dict[str, Any]]

# machines that run the tests may be shared and slow: what a property test finds must not depend on the clock
hypothesis.settings.register_profile("no clock", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("no clock")


def captures(folder: str = "captures") -> list[Path]:
    """The recordings of a shared folder, in order; none where it is not there."""
    return sorted((SHARED / folder).glob("*.pickle.xz"))


def recording_name(path: Path) -> str:
    return path.name.removesuffix(".pickle.xz")


def facts_of(path: Path) -> dict[str, Any]:
    """What was measured beside a recording."""
    facts = path.with_name(f"{recording_name(path)}.facts.json.xz")
    return json.loads(lzma.decompress(facts.read_bytes()))


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("TRACEKIT_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def shared() -> Path:
    if not SHARED.is_dir():
        pytest.skip("the shared recordings are not beside the checkout")
    return SHARED


@pytest.fixture
def given() -> Callable[..., Warehouse]:
    """A database over tables given as rows: what is not given is empty, a column not given is null."""

    def warehouse(**tables: Rows) -> Warehouse:
        unknown = tables.keys() - TABLES.keys()
        assert not unknown, f"no such table: {unknown}"
        return Warehouse(
            {name: pa.Table.from_pylist(tables.get(name, []), schema=spec.schema) for name, spec in TABLES.items()}
        )

    return warehouse


@pytest.fixture(scope="session")
def sample_dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample as `tracekit analyze` leaves it."""
    from tracekit.analysis import analyze

    folder = tmp_path_factory.mktemp("sample") / "gpt2_b8.tracekit"
    analyze(SAMPLE / "snapshot.pickle.xz", folder)
    return folder


@pytest.fixture(scope="session")
def sample(sample_dataset: Path) -> Iterator[Warehouse]:
    """The sample's database."""
    with Warehouse.open(sample_dataset) as warehouse:
        yield warehouse
