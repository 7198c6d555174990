"""Real values behind small tensors without data, so that a branch on them is the right one.

Nothing is written down here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

from tracekit.estimate.traced.door import aten, tensors, torch


class Values:
    """Real values behind small tensors of whole numbers and truths, so that a branch on them is the right one.

    A tensor on the device has no data. What follows from numbers that the program itself gave (positions, masks,
    counters) is worked out beside it, on real storages of the same layout; what follows from data is not known.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._storages: dict[int, Any] = {}
        self._tell = tell

    def of(self, tensor: Any) -> Any:
        """A tensor of real values like this one; None where they are not known."""
        if not tensor.is_meta:
            return tensor
        storage = self._storages.get(tensor.untyped_storage()._cdata)
        if storage is None:
            return None
        plain = torch.empty(0, dtype=tensor.dtype)
        return plain.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())

    def forget(self, address: int) -> None:
        """A storage is gone."""
        self._storages.pop(address, None)

    def follow(self, operator: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Do on real values what was done on the device, where all that goes in is known."""
        outputs = [one for one in tensors(result) if one.is_meta]
        given = [one for one in tensors((args, kwargs)) if one.is_meta]
        if not outputs:
            self._forget_written(operator, args)
        if not outputs or operator.is_view or not all(map(_may_have_value, outputs)):
            return
        foregone = _foregone(operator, args)
        if foregone is not None:
            self._tell("numbers were taken to be finite where the program asks")
            self._storages[outputs[0].untyped_storage()._cdata] = torch.full(
                outputs[0].shape, foregone
            ).untyped_storage()
            return
        known = all(one.untyped_storage()._cdata in self._storages for one in given)
        if not known or torch.Tag.nondeterministic_seeded in operator.tags or (not given and not _is_filled(operator)):
            for one in outputs:
                self.forget(one.untyped_storage()._cdata)
            return
        try:
            real = operator(*self._real(args), **self._real(kwargs))
        except (NotImplementedError, RuntimeError):  # what runs without data may not run here
            return
        for one, value in zip(outputs, tensors(real), strict=False):
            address = one.untyped_storage()._cdata
            if address not in self._storages:
                laid = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype)
                self._storages[address] = laid.copy_(value).untyped_storage()

    def _forget_written(self, operator: Any, args: Any) -> None:
        """An operator that returns nothing has written into what it was given."""
        for argument, value in zip(operator._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                for one in tensors(value):
                    self.forget(one.untyped_storage()._cdata)

    def _real(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        if isinstance(value, torch.device):
            return torch.device("cpu")
        if isinstance(value, (list, tuple)):
            return [self._real(one) for one in cast("list[Any]", value)]
        if isinstance(value, dict):
            return {name: self._real(one) for name, one in cast("dict[str, Any]", value).items()}
        return value


def _foregone(operator: Any, args: Any) -> bool | None:
    """The answer where the program asks whether numbers are finite: they are. None where it asks for something else."""
    if operator in (aten.isnan.default, aten.isinf.default):
        return False
    if operator in (aten.eq.Tensor, aten.ne.Tensor) and args[0] is args[1]:
        return operator is aten.eq.Tensor
    if operator in (aten.eq.Scalar, aten.ne.Scalar) and isinstance(args[1], float) and math.isinf(args[1]):
        return operator is aten.ne.Scalar
    return None


MOST_VALUES = 1 << 20
"""Elements of a tensor whose values are worked out; floats only where they are fewer."""
MOST_FLOATS = 1 << 18


def _may_have_value(tensor: Any) -> bool:
    most = MOST_FLOATS if tensor.dtype.is_floating_point or tensor.dtype.is_complex else MOST_VALUES
    return tensor.numel() <= most


def _is_filled(operator: Any) -> bool:
    """Whether an operator makes a tensor whose values its arguments say, or copies one of the host."""
    return operator._schema.name.removeprefix("aten::") in (
        *("arange", "eye", "full", "linspace", "ones", "scalar_tensor", "zeros", "_to_copy", "tril_indices"),
        *("triu_indices", "copy_"),
    )
