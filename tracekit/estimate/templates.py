"""Every tensor of every choice as rows of numbers, small enough to travel in a page.

The tensors are those of `tracekit.estimate.moments`; here they are only written down.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, TypeVar

from tracekit.estimate.ledger import BUCKETS
from tracekit.estimate.moments import PARTS, PLACES, Part, Place
from tracekit.estimate.rows import optimizers, precisions
from tracekit.estimate.run import ADAPTED, ATTENTIONS, LOSSES, STEPS, Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.tensors import Tensor

Row = dict[str, Any]
Key = TypeVar("Key", bound=Hashable)

KINDS: Sequence[tuple[str, str | None]] = tuple(dict.fromkeys((place.kind, place.part) for place in PLACES))
"""The kinds of place; places of one kind have the same tensors, and differ in how many blocks are around them."""


def choices() -> dict[str, list[Any]]:
    """What a page lets a person choose among, by the fields of a run; numbers that a person types are not in it."""
    return {
        "precision": list(precisions().values()),
        "optimizer": list(optimizers().values()),
        "step": list(STEPS),
        "attention": list(ATTENTIONS),
        "is_checkpointed": [False, True],
        "loss": list(LOSSES),
        "adapted": list(ADAPTED),
        "accumulate": [1, 2],
        "stage": [0, 1, 2, 3],
        "offloads_state": [False, True],
    }


class Templates:
    """All rows of some models under one run, whatever a person chooses.

    `products`, `lists` and `bundles` hold each distinct thing once: a product of symbols, the rows of a place, the
    lists of all kinds of place. A part's `table` then says which bundle belongs to which choice, in the order of
    `itertools.product` over the kinds of model and the choices it depends on.
    """

    def __init__(self, shapes: Sequence[Shape], run: Run) -> None:
        self._products: dict[tuple[str, ...], int] = {}
        self._lists: dict[tuple[tuple[int, ...], ...], int] = {}
        self._bundles: dict[tuple[int, ...], int] = {}
        self.parts = [self._part(part, shapes, run) for part in PARTS]

    def as_json(self) -> Row:
        """Plain data for the page."""
        return {
            "products": list(self._products),
            "lists": list(self._lists),
            "bundles": list(self._bundles),
            "parts": self.parts,
        }

    def _part(self, part: Part, shapes: Sequence[Shape], run: Run) -> Row:
        """One part's table.

        Returns:
            depends: the choices it depends on, each with how many there are; families: which kind of model each model
            is; table: a bundle for every kind and choice.
        """
        kinds: dict[tuple[Any, ...], Shape] = {}
        families: list[int] = []
        for shape in shapes:
            kind = tuple(getattr(shape, name) for name in part.of_shape)
            kinds.setdefault(kind, shape)
            families.append(list(kinds).index(kind))
        chosen = {name: values for name, values in choices().items() if name in part.of_run}
        table = [
            self._bundle(part, shape, replace(run, **dict(zip(chosen, values, strict=True))))
            for shape in kinds.values()
            for values in product(*chosen.values())
        ]
        return {
            "depends": [[name, len(values)] for name, values in chosen.items()],
            "families": families,
            "table": table,
        }

    def _bundle(self, part: Part, shape: Shape, run: Run) -> int:
        places = {(place.kind, place.part): place for place in reversed(PLACES)}
        return _index(self._bundles, tuple(self._list(part, shape, run, places[kind]) for kind in KINDS))

    def _list(self, part: Part, shape: Shape, run: Run, place: Place) -> int:
        return _index(self._lists, tuple(self._row(tensor) for tensor in _merged(part.tensors(shape, run, place))))

    def _row(self, tensor: Tensor) -> tuple[int, ...]:
        """Bucket, bytes of an element, product; a 1 behind them where the ranks share it."""
        symbols = tuple(sorted((*tensor.dims, *tensor.each)))
        row = (BUCKETS.index(tensor.bucket), tensor.element_bytes, _index(self._products, symbols))
        return (*row, 1) if tensor.is_shared else row


def _merged(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The same bytes in fewer rows: tensors of one bucket and size are one; what is shared is rounded up on its own."""
    merged: dict[Any, Tensor] = {}
    for index, tensor in enumerate(tensors):
        key = index if tensor.is_shared else (tensor.bucket, tuple(sorted((*tensor.dims, *tensor.each))))
        known = merged.get(key)
        merged[key] = replace(known, element_bytes=known.element_bytes + tensor.element_bytes) if known else tensor
    return list(merged.values())


def _index(known: dict[Key, int], key: Key) -> int:
    """Where a thing stands among those known; at their end where it is new."""
    return known.setdefault(key, len(known))
