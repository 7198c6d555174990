"""The roll, on CPU tensors: what is listed, and how."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from reading import Row, docs, rows
from stand_in import StandIn

from tracekit.recorder import Recorder
from tracekit.recorder import session as session_module
from tracekit.recorder.roll import COLUMNS, take_roll, write_roll


def roll(models: list[Any], optimizers: list[Any]) -> list[Row]:
    return take_roll(models, optimizers, step=3, time_us=9, alloc_counts={0: 5}, device_type="cpu")


def by_role(listed: list[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in listed:
        found.setdefault(row["role"], []).append(row["name"])
    return found


def trained(torch: Any, optimizer: str, **options: Any) -> tuple[Any, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    stepper = getattr(torch.optim, optimizer)(model.parameters(), **options)
    model(torch.ones(4, 3)).sum().backward()
    stepper.step()
    return model, stepper


def test_every_tensor_of_a_model_and_its_optimizer_is_listed(torch: Any) -> None:
    model, optimizer = trained(torch, "AdamW", amsgrad=True)
    listed = roll([model], [optimizer])
    names = ["0.weight", "0.bias", "1.weight", "1.bias"]
    keys = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step")
    found = by_role(listed)
    assert found["parameter"] == found["gradient"] == names
    assert found["buffer"] == ["1.running_mean", "1.running_var", "1.num_batches_tracked"]
    assert sorted(found["optimizer_state"]) == sorted(f"{name}.{key}" for name in names for key in keys)
    weight = listed[0]
    assert weight == {
        "address": model[0].weight.data_ptr(),
        "byte_count": 24,
        "storage_bytes": 24,
        "storage_offset_bytes": 0,
        "shape": [2, 3],
        "dtype": "float32",
        "role": "parameter",
        "name": "0.weight",
        "device": 0,
        "step": 3,
        "time_us": 9,
        "alloc_count": 5,
    }
    assert set(weight) == set(COLUMNS)


def test_optimizers_without_state_have_none(torch: Any) -> None:
    assert "optimizer_state" not in by_role(roll(*[[one] for one in trained(torch, "SGD", lr=0.1)]))


def test_an_optimizer_alone_numbers_its_parameters(torch: Any) -> None:
    _, optimizer = trained(torch, "SGD", lr=0.1, momentum=0.9)
    found = by_role(roll([], [optimizer]))
    assert found["parameter"][0] == "group0.0"
    assert found["optimizer_state"][0] == "group0.0.momentum_buffer"


def test_tied_parameters_are_listed_once(torch: Any) -> None:
    model = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    assert by_role(roll([model], []))["parameter"] == ["0.weight", "0.bias", "1.bias"]


def test_a_part_of_a_larger_storage_says_where_it_lies(torch: Any) -> None:
    flat = torch.zeros(10)
    model = torch.nn.Module()
    model.part = torch.nn.Parameter(flat[4:10].view(2, 3))
    row = roll([model], [])[0]
    assert (row["address"], row["storage_bytes"]) == (flat.data_ptr(), 40)
    assert (row["storage_offset_bytes"], row["byte_count"]) == (16, 24)


def test_a_wrapper_is_looked_into(torch: Any) -> None:
    two_tensor = pytest.importorskip("torch.testing._internal.two_tensor")
    model = torch.nn.Module()
    model.register_buffer("pair", two_tensor.TwoTensor(torch.ones(2), torch.ones(2)))
    assert by_role(roll([model], []))["buffer"] == ["pair.a", "pair.b"]


def test_tensors_elsewhere_are_passed_over(torch: Any) -> None:
    model = torch.nn.Linear(2, 2, device="meta")
    assert roll([model], []) == []


def test_the_file_documents_its_columns(torch: Any) -> None:
    file = io.BytesIO()
    write_roll(roll([torch.nn.Linear(3, 2)], []), file)
    assert [row["shape"] for row in rows(file)] == [[2, 3], [2]]
    assert list(docs(file)) == list(COLUMNS)
    assert all(docs(file).values())


def test_the_roll_is_taken_when_the_optimizer_has_stepped(
    torch: Any, gpu: StandIn, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take(models: Any, optimizers: Any, **given: Any) -> list[Row]:
        return take_roll(models, optimizers, **given, device_type="cpu")

    monkeypatch.setattr(session_module, "take_roll", take)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with Recorder(out, model=model, optimizer=optimizer) as r:
        gpu.allocate()
        for _ in range(2):
            model(torch.ones(1, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()  # the gradients are gone before the step ends
            r.step()
    table = rows(out / "tensors.parquet")
    assert [(row["step"], row["role"]) for row in table if row["name"].startswith("weight")] == [
        (step, role) for step in (1, 2) for role in ("parameter", "gradient", "optimizer_state")
    ]
    assert {row["alloc_count"] for row in table} == {1}


def test_a_model_that_cannot_be_listed_does_not_stop_the_training(
    gpu: StandIn, out: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Odd:
        def named_modules(self) -> list[Any]:
            return []

    odd = Odd()
    with Recorder(out, model=odd, modules=False) as r:
        gpu.allocate()
        r.step()
    assert "no roll for step 1" in capsys.readouterr().err
