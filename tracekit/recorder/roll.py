"""The roll: which address was which parameter, buffer, gradient or optimizer state, at a moment of the program.

Tensors are only looked at, never kept; what an address is good for is the analysis's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any, cast

COLUMNS: dict[str, tuple[str, str]] = {
    "address": ("integer", "first address of the tensor's storage, as the allocator gave it"),
    "byte_count": ("integer", "bytes of the tensor itself; several tensors may share a storage"),
    "storage_bytes": ("integer", "bytes of the storage"),
    "storage_offset_bytes": ("integer", "where in the storage the tensor begins"),
    "shape": ("integers", "the tensor's shape; of the local part, where it is distributed"),
    "dtype": ("text", "its dtype, without the word torch"),
    "role": ("text", "parameter, buffer, gradient or optimizer_state"),
    "name": ("text", "parameter's or buffer's path in the model; of an optimizer state, its key after that"),
    "device": ("integer", "ordinal of the device it lies on"),
    "step": (
        "integer",
        "the step at whose end it was seen, counted from 1; the running one where that never came",
    ),
    "time_us": ("integer", "when it was seen, in us since the Unix epoch"),
    "alloc_count": (
        "integer",
        "allocations its device had served by then, as in a mark: the address is of the newest allocation before that",
    ),
}
"""Columns of tensors.parquet: type and meaning."""

Row = dict[str, Any]


def take_roll(
    models: Iterable[Any],
    optimizers: Iterable[Any],
    *,
    step: int,
    time_us: int,
    alloc_counts: Mapping[int, int],
    device_type: str = "cuda",
) -> list[Row]:
    """List the tensors that models and optimizers hold on devices of one type.

    Args:
        models: torch modules.
        optimizers: torch optimizers, or whatever has their `param_groups` and `state`.
        step: the step that the roll belongs to.
        time_us: now.
        alloc_counts: allocations served so far, by device.
        device_type: which tensors count; the rest is passed over.

    Returns:
        Rows with `COLUMNS`, each tensor of a role once.
    """
    roll = _Roll(device_type, {"step": step, "time_us": time_us}, alloc_counts)
    for model in models:
        roll.add_model(model)
    for optimizer in optimizers:
        roll.add_optimizer(optimizer)
    return roll.rows


class _Roll:
    """A roll as it grows: a tensor that is met again in the same role is passed over."""

    def __init__(self, device_type: str, when: Row, alloc_counts: Mapping[int, int]) -> None:
        self.rows: list[Row] = []
        self._device_type = device_type
        self._when = when
        self._alloc_counts = alloc_counts
        self._seen: set[tuple[str, int]] = set()
        self._names: dict[int, str] = {}

    def add_model(self, model: Any) -> None:
        for name, parameter in model.named_parameters():
            self._add_parameter(name, parameter)
        for name, buffer in model.named_buffers():
            self._add("buffer", name, buffer)

    def add_optimizer(self, optimizer: Any) -> None:
        for group_ix, group in enumerate(getattr(optimizer, "param_groups", [])):
            for index, parameter in enumerate(group["params"]):
                self._add_parameter(self._names.get(id(parameter), f"group{group_ix}.{index}"), parameter)
        for parameter, state in list(getattr(optimizer, "state", {}).items()):
            name = self._names.get(id(parameter), "unknown")
            for key, tensor in _state_tensors(state):
                self._add("optimizer_state", f"{name}.{key}", tensor)

    def _add_parameter(self, name: str, parameter: Any) -> None:
        self._names.setdefault(id(parameter), name)
        self._add("parameter", name, parameter)
        if parameter.grad is not None:
            self._add("gradient", name, parameter.grad)

    def _add(self, role: str, name: str, tensor: Any) -> None:
        if (role, id(tensor)) in self._seen:
            return
        self._seen.add((role, id(tensor)))
        for suffix, part in _plain_parts(tensor):
            if part.device.type != self._device_type:
                continue
            device = part.device.index or 0
            row = {"role": role, "name": name + suffix, "device": device, **self._when}
            self.rows.append(_describe(part) | row | {"alloc_count": self._alloc_counts.get(device)})


def write_roll(rows: Iterable[Row], file: IO[bytes]) -> None:
    """Write rows as Parquet, their columns documented in the file."""
    write_table(rows, COLUMNS, file)


def write_table(rows: Iterable[Row], columns: Mapping[str, tuple[str, str]], file: IO[bytes]) -> None:
    """Write rows as Parquet in columns given as name: (type, meaning)."""
    import pyarrow as pa  # not before it is needed: a training loop should not pay for it
    from pyarrow.parquet import ParquetWriter

    types: dict[str, pa.DataType] = {
        "integer": pa.int64(),
        "number": pa.float64(),
        "text": pa.string(),
        "boolean": pa.bool_(),
        "integers": pa.list_(pa.int64()),
    }
    schema = pa.schema([pa.field(name, types[kind], metadata={"doc": doc}) for name, (kind, doc) in columns.items()])
    with ParquetWriter(file, schema, compression="zstd") as writer:
        writer.write_table(pa.Table.from_pylist(list(rows), schema=schema))


def describe_storage(tensor: Any) -> tuple[int, int]:
    """Address and bytes of a tensor's storage; it must be a plain one."""
    storage = tensor.untyped_storage()
    return int(storage.data_ptr()), int(storage.nbytes())


def name_dtype(dtype: object) -> str:
    """A dtype as the roll writes it: float32."""
    return str(dtype).removeprefix("torch.")


def _describe(tensor: Any) -> Row:
    address, storage_bytes = describe_storage(tensor)
    item = int(tensor.element_size())
    return {
        "address": address,
        "byte_count": int(tensor.numel()) * item,
        "storage_bytes": storage_bytes,
        "storage_offset_bytes": int(tensor.storage_offset()) * item,
        "shape": [int(size) for size in tensor.shape],
        "dtype": name_dtype(tensor.dtype),
    }


def _plain_parts(tensor: Any) -> Iterator[tuple[str, Any]]:
    """The tensors with memory of their own inside a tensor: itself, or a wrapper's parts (DTensor, quantized)."""
    flatten = getattr(tensor, "__tensor_flatten__", None)
    if flatten is None:
        if tensor.layout is not None and str(tensor.layout) == "torch.strided":
            yield "", tensor
        return
    attributes = cast("list[str]", flatten()[0])
    for attribute in attributes:
        suffix = "" if len(attributes) == 1 else f".{attribute.strip('_')}"
        for inner, part in _plain_parts(getattr(tensor, attribute)):
            yield suffix + inner, part


def _state_tensors(state: object, path: str = "") -> Iterator[tuple[str, Any]]:
    """The tensors in one parameter's optimizer state, by key; containers in it are looked into."""
    if isinstance(state, Mapping):
        items = [(str(key), value) for key, value in cast("Mapping[object, object]", state).items()]
    elif isinstance(state, (list, tuple)):
        items = [(str(index), value) for index, value in enumerate(cast("list[object]", state))]
    elif hasattr(state, "untyped_storage"):
        yield path, state
        return
    else:
        return
    for key, value in items:
        yield from _state_tensors(value, f"{path}.{key}" if path else key)
