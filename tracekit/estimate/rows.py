"""The data that travels with the estimate, as typed rows: presets, precisions, optimizers.

The numbers are in data/*.csv, one row a thing; nothing is computed from them here.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

from tracekit.errors import TracekitError
from tracekit.estimate.shape import Shape

_DATA = Path(__file__).parent / "data"


def _flag(text: str) -> bool:
    return text == "true"


_READ: Mapping[str, Callable[[str], object]] = {"int": int, "bool": _flag, "str": str}

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class Precision:
    """Bytes of a number, by what it is for.

    Attributes:
        name: what it is called.
        weight_bytes: of a parameter that the forward uses.
        gradient_bytes: of its gradient.
        master_bytes: of the copy that the optimizer updates; 0 where it updates the parameter itself.
        state_bytes: of one of the optimizer's states.
        compute_bytes: of what a matrix product gives.
        residual_bytes: of the stream between blocks.
        linear_input_bytes: of the input that a linear layer saves.
        copy_bytes: of the copies of a matrix that are kept beside it from forward to backward.
        softmax_bytes: of attention probabilities.
        basis: recorded, where a recording was predicted with it; formula, where none was.
        meaning: a sentence for the person.
    """

    name: str
    weight_bytes: int
    gradient_bytes: int
    master_bytes: int
    state_bytes: int
    compute_bytes: int
    residual_bytes: int
    linear_input_bytes: int
    copy_bytes: int
    softmax_bytes: int
    basis: str
    meaning: str

    @property
    def is_autocast(self) -> bool:
        """Whether torch.autocast casts: weights in one type, products in another."""
        return self.name.startswith("autocast")


@dataclass(frozen=True, slots=True)
class Optimizer:
    """What an optimizer keeps and what its step allocates; torch.optim's, from the second step on.

    Attributes:
        name: what it is called.
        states: numbers kept for each trained parameter.
        foreach_temporaries: numbers for each trained parameter that a foreach step holds at once.
        loop_temporaries: the same for a for-loop step, for each parameter of the largest tensor.
        kind: plain; factored (Adafactor), quantised (8 bit) or muon.
        has_fused: whether there is a fused step, which allocates nothing.
        basis: recorded, where a recording was predicted with it; traced, where its step was run without a GPU and
            every tensor counted; formula, where neither was done.
        meaning: a sentence for the person.
    """

    name: str
    states: int
    foreach_temporaries: int
    loop_temporaries: int
    kind: str
    has_fused: bool
    basis: str
    meaning: str


@cache
def presets() -> Mapping[str, Shape]:
    """Published models by name."""
    return {shape.name: shape for shape in _rows("preset", Shape)}


@cache
def precisions() -> Mapping[str, Precision]:
    """Precisions by name."""
    return {row.name: row for row in _rows("precision", Precision)}


@cache
def optimizers() -> Mapping[str, Optimizer]:
    """Optimizers by name."""
    return {row.name: row for row in _rows("optimizer", Optimizer)}


def named(rows: Mapping[str, Made], name: str, what: str) -> Made:
    """The row of that name, whatever its case.

    Raises:
        TracekitError: where there is none, with those that there are.
    """
    found = {known.lower(): row for known, row in rows.items()}.get(name.lower())
    if found is None:
        raise TracekitError(f"there is no {what} {name!r}", f"there are: {', '.join(rows)}")
    return found


def _rows(name: str, kind: type[Made]) -> Iterator[Made]:
    """Rows of data/NAME.csv, each text read as the type that its field has."""
    types = {field.name: str(field.type) for field in fields(cast(Any, kind))}
    with (_DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            yield kind(**{column: _READ[types[column]](text) for column, text in row.items()})
