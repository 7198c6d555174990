"""What kernels that look up, sort and add by index take besides their outputs.

Recipes only, as `kernel` describes them; formulas are re-stated from ATen's sources where those say them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from tracekit.estimate.traced.kernel import (
    Call,
    Drop,
    Shape,
    Step,
    Take,
    copied,
    dropped,
    outputs,
    recipe,
    reduced,
)

_ARANGE = "at::_ops::arange_start_out::call(...)"


@recipe("embedding")
def _embedding(call: Call) -> Iterator[Step]:
    """Indices that cannot be seen as one row are copied into one."""
    indices = call.tensor("indices")
    yield from copied(indices, "indices")
    yield from outputs(call)
    yield from dropped(indices, "indices")


MOST_UNSORTED = 3_072
"""Up to so many indices the gradient of an embedding is summed up without sorting (Embedding.cu)."""


def _sort_scratch(count: int, key_bytes: int, value_bytes: int) -> int:
    """Bytes of cub's radix sort of keys and values; the constants were read off recordings (torch 2.11, sm_90)."""
    return count * (key_bytes + value_bytes) + 16_895 + 1_024 * -(-count // 5_120)


@recipe("embedding_dense_backward")
def _embedding_backward(call: Call) -> Iterator[Step]:
    """Few indices need nothing; many are sorted, and gradients are summed up in parts (Embedding.cu)."""
    indices, gradient = call.tensor("indices"), call.tensor("grad_output")
    yield from copied(gradient, "gradient")
    yield from copied(indices, "indices")
    if indices.count <= MOST_UNSORTED:
        yield from outputs(call)
    else:
        yield from _sorted(indices)
        yield from outputs(call)
        yield from _summed_in_parts(gradient, indices, call.arguments["num_weights"])
    yield from dropped(indices, "indices")
    yield from dropped(gradient, "gradient")


@recipe("_embedding_bag_backward")
def _embedding_bag_backward(call: Call) -> Iterator[Step]:
    """Indices are sorted, however few, but where the largest value was taken (EmbeddingBag.cu)."""
    gradient, indices = call.tensor("grad"), call.tensor("indices")
    if call.arguments["mode"] == _LARGEST:
        yield from outputs(call)
        return
    yield from copied(gradient, "gradient")
    yield from _sorted(indices)
    yield from outputs(call)
    yield from _summed_in_parts(gradient, indices, call.arguments["num_weights"])
    yield from dropped(gradient, "gradient")


_LARGEST = 2
"""The mode of an embedding bag that takes the largest value."""


def _sorted(indices: Shape) -> Iterator[Step]:
    """Indices and their order, sorted; what they are sorted from is given back."""
    yield Take("sorted", indices.bytes)
    yield Take("order", indices.bytes)
    yield Take("range", indices.bytes, _ARANGE)
    yield Take("sort", _sort_scratch(indices.count, indices.item_bytes, indices.item_bytes))
    yield Drop("sort")
    yield Drop("range")


def _summed_in_parts(gradient: Shape, indices: Shape, words: int) -> Iterator[Step]:
    """Gradients of one word are summed up in parts of ten, then the parts (EmbeddingBackwardKernel.cu)."""
    item = indices.item_bytes
    width = gradient.sizes[-1] if gradient.sizes else 1
    segments = min(indices.count, words)
    parts = indices.count // 10 + segments
    yield Take("segment offsets", indices.bytes)
    yield Take("segment count", 8)
    yield Take("unique keys", indices.bytes)
    yield Take("unique", 1_279)
    yield Drop("unique")
    yield Drop("unique keys")
    yield Take("parts", segments * item)
    yield Take("part offsets", segments * item)
    yield Take("scan", 1_279)
    yield Drop("scan")
    yield Take("part count", 8)
    yield Take("part starts", parts * item)
    yield Take("part sums", parts * -(-width // 32) * 32 * max(4, gradient.item_bytes))
    for key in ("part sums", "part starts", "part count", "part offsets", "parts", "segment count"):
        yield Drop(key)
    for key in ("segment offsets", "order", "sorted"):
        yield Drop(key)


@recipe("index_put", "index_put_", "_index_put_impl_")
def _put_by_index(call: Call) -> Iterator[Step]:
    """What is added up is sorted by where it goes (Indexing.cu, index_put_with_sort_kernel); else nothing is taken."""
    yield from outputs(call)
    indices = [index for index in call.arguments["indices"] if isinstance(index, Shape)]
    if not call.arguments.get("accumulate") or not indices or indices[0].dtype == "bool":
        return
    whole, values = call.tensor("self"), call.tensor("values")
    count = max(index.count for index in indices)
    sums = 8 * count
    slices = whole.count // max(prod(whole.sizes[dim] for dim in _places(call)), 1)
    yield Take("wrapped", sums, "at::_ops::remainder_Scalar::call(...)")
    yield Take("places", sums, "at::_ops::mul_Tensor::call(...)")
    yield Drop("wrapped")
    yield from _spread(values, count * slices)
    yield Take("sorted", sums)
    yield Take("order", sums)
    yield Take("range", sums, _ARANGE)
    yield Take("sort", _sort_scratch(count, 8, 8))
    for key in ("sort", "range", "order", "sorted"):
        yield Drop(key)
    if not values.is_contiguous or values.count < count * slices:
        yield Drop("values")
    yield Drop("places")


def _places(call: Call) -> list[int]:
    """The dimensions that are indexed."""
    return [dim for dim, index in enumerate(call.arguments["indices"]) if isinstance(index, Shape)]


def _spread(values: Shape, count: int) -> Iterator[Step]:
    """Values are laid side by side, one for each element that is added to."""
    if not values.is_contiguous or values.count < count:
        yield Take("values", count * values.item_bytes, "at::native::contiguous(...)")


MOST_SORTED_IN_PLACE = 4_096
"""Up to so many elements are sorted where they are (Sort.h, should_use_small_sort)."""
MOST_SORTED_AT_ONCE = 128
"""Up to so many rows are sorted as one, with their number as part of the key (SortStable.cu)."""
LARGE_ROWS = 1_000_000
"""Rows of so many elements are sorted one after the other (SortStable.cu)."""


@recipe("sort", "argsort", "msort")
def _sort(call: Call) -> Iterator[Step]:
    """Short rows are sorted in place; long ones by radix (Sort.cpp, SortStable.cu)."""
    shape = call.tensor("self")
    dim: int = call.arguments.get("dim", -1)
    length = shape.sizes[dim] if shape.sizes else 1
    rows = shape.count // max(length, 1)
    yield from outputs(call)
    if length <= MOST_SORTED_IN_PLACE:
        yield Take("range", length * 8, _ARANGE)
        yield Drop("range")
        return
    is_laid_out = shape.is_contiguous and dim in (-1, len(shape.sizes) - 1)
    copies = () if is_laid_out else (("input", shape.bytes), ("values", shape.bytes), ("indices", shape.count * 8))
    for key, size in copies:
        yield Take(key, size)
    if rows == 1 or length >= LARGE_ROWS:
        yield Take("range", length * 8)
        yield Take("sort", _sort_scratch(length, shape.item_bytes, 8))
        yield Drop("sort")
        yield Drop("range")
    elif rows < MOST_SORTED_AT_ONCE:
        for key in ("rows", "sorted rows"):
            yield Take(key, shape.count * 8)
        yield Take("sorted keys", shape.bytes)
        yield Take("sort", _sort_scratch(shape.count, shape.item_bytes, 8))
        for key in ("sort", "sorted keys"):
            yield Drop(key)
        yield Take("sort again", _sort_scratch(shape.count, 8, 0))
        for key in ("sort again", "sorted rows", "rows"):
            yield Drop(key)
    else:
        yield Take("range", shape.count * 8)
        yield Take("sort", _sort_scratch(shape.count, shape.item_bytes, 8))
        yield Drop("sort")
        yield Drop("range")
    for key, _ in reversed(copies):
        yield Drop(key)


@recipe("topk")
def _topk(call: Call) -> Iterator[Step]:
    """Rows that do not lie side by side are copied; the few that are found are sorted in place (TensorTopK.cpp)."""
    shape = call.tensor("self")
    yield from outputs(call)
    yield from copied(shape, "input")
    yield from dropped(shape, "input")


@recipe("cumsum", "cumprod", "logcumsumexp")
def _scan(call: Call) -> Iterator[Step]:
    """An input of another dtype than the output is converted first (ScanKernels.cpp)."""
    shape, first = call.tensor("self"), call.outputs[0]
    yield from outputs(call)
    if first is not None and first.dtype != shape.dtype:
        yield Take("converted", first.bytes, "at::_ops::_to_copy::call(...)")
        yield Drop("converted")


@recipe("scatter_reduce")
def _scatter_reduce(call: Call) -> Iterator[Step]:
    """A mean is a sum and a count of what went into each element (TensorAdvancedIndexing.cpp)."""
    yield from outputs(call)
    if call.arguments.get("reduce") == "mean":
        whole, source = call.tensor("self"), call.tensor("src")
        yield Take("ones", whole.bytes)
        yield Take("source ones", source.bytes)
        yield Take("count", whole.bytes)
        for key in ("source ones", "ones", "count"):
            yield Drop(key)


@recipe("logsumexp")
def _logsumexp(call: Call) -> Iterator[Step]:
    """The largest values, then what is left of each element, which is summed up (ReduceOps.cpp)."""
    shape, first = call.tensor("self"), call.outputs[0]
    size = max(first.bytes if first else 0, 1)
    dims = {dim % max(len(shape.sizes), 1) for dim in call.arguments["dim"]}
    yield Take("largest", size, "at::_ops::amax::call(...)")
    yield from reduced(call, shape, dims, max(4, shape.item_bytes))
    yield Take("differences", shape.bytes, "at::_ops::sub_Tensor::call(...)")
    yield from outputs(call)
    yield from reduced(call, shape, dims, max(4, shape.item_bytes))
    yield Drop("differences")
    yield Drop("largest")
