"""The scratch memory of a reduction on a GPU that is spread over several thread blocks.

Re-stated from aten/src/ATen/native/cuda/Reduce.cuh and TensorIterator.cpp; only shapes and strides are known here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from tracekit.estimate.traced.cards import Card

WARP = 32
MOST_THREADS = 512
INPUT_VECTOR = 4
LEAST_VALUES, MOST_VALUES = 16, 256
"""How many values a thread should take: at least, and at most before blocks share an output."""

Dim = tuple[int, int, int]
"""Size, stride of the output and stride of the input, in elements; the output's is 0 where it is reduced."""


def scratch(
    sizes: Sequence[int], strides: Sequence[int], reduced: Collection[int], sum_bytes: int, card: Card
) -> tuple[int, int]:
    """Bytes that a reduction takes for partial results and for semaphores; (0, 0) where a block does it alone.

    Args:
        sizes: the input's shape.
        strides: its strides, in elements.
        reduced: which of its dimensions are reduced.
        sum_bytes: bytes of one partial result: 4 for floats of 4 bytes and less.
        card: the GPU.
    """
    dims = _coalesced(_ordered(sizes, strides, reduced))
    count = prod(sizes)
    outputs = prod(size for size, out, _ in dims if out != 0)
    if count == 0 or outputs == 0:
        return 0, 0
    inputs = count // outputs
    reduced_dims = sum(out == 0 for _, out, _ in dims)
    is_fastest = reduced_dims == len(dims) or (reduced_dims > 0 and dims[0][2] < dims[reduced_dims][2])
    fastest = dims[0][2] if is_fastest and dims else dims[reduced_dims][2] if dims else 1
    dim0, dim1 = (inputs, outputs) if is_fastest else (outputs, inputs)
    vector = 1
    if fastest == 1:
        if is_fastest and dim0 > 128 and len(dims) == 1:
            dim0 //= INPUT_VECTOR
        elif not is_fastest:
            vector = _output_vector(dims, reduced_dims)
            dim0 //= vector
    return _configure(dim0, dim1, vector, inputs, outputs, is_fastest, sum_bytes, card)


def _configure(
    dim0: int, dim1: int, vector: int, inputs: int, outputs: int, is_fastest: bool, sum_bytes: int, card: Card
) -> tuple[int, int]:
    """How the work is laid out over threads and blocks, and the memory that takes."""
    most = MOST_THREADS // vector
    width0 = _last_power(dim0) if dim0 < most else most
    height0 = _last_power(dim1) if dim1 < most else most
    width = min(width0, WARP)
    height = min(height0, most // width)
    width = min(width0, most // height)
    step_input, step_output = (width, 1) if is_fastest else (1, width)
    values = -(-inputs // step_input)
    is_tall = values >= height * LEAST_VALUES or values >= MOST_VALUES
    if is_tall:
        step_input *= height
    else:
        step_output *= height
    values = -(-inputs // step_input)
    grid = -(-(outputs // vector) // step_output)
    target = card.processors * (card.threads // (width * height))
    if not is_tall or values < MOST_VALUES or grid > target:
        return 0, 0
    blocks = max(min(-(-target // grid), -(-values // LEAST_VALUES)), -(-values // MOST_VALUES))
    if blocks <= 1:
        return 0, 0
    partial = sum_bytes * outputs * blocks
    return partial if is_fastest else partial * width * vector, 4 * grid


def _ordered(sizes: Sequence[int], strides: Sequence[int], reduced: Collection[int]) -> list[Dim]:
    """The dimensions as an iterator puts them: reduced ones first, then by stride."""
    out_stride: dict[int, int] = {}
    step = 1
    for dim in reversed(range(len(sizes))):
        out_stride[dim] = 0 if dim in reduced else step
        step *= 1 if dim in reduced else sizes[dim]
    dims = [(sizes[dim], out_stride[dim], strides[dim]) for dim in reversed(range(len(sizes))) if sizes[dim] != 1]
    for last in range(1, len(dims)):
        at = last
        for before in reversed(range(last)):
            comes = _compare(dims[before], dims[at])
            if comes > 0:
                dims[before], dims[at] = dims[at], dims[before]
                at = before
            elif comes < 0:
                break
    return dims


def _compare(one: Dim, other: Dim) -> int:
    """1 where `one` comes after `other`, -1 where before, 0 where that is open."""
    if (one[1] == 0) != (other[1] == 0):
        return 1 if other[1] == 0 else -1
    for mine, its in ((one[1], other[1]), (one[2], other[2])):
        if mine == 0 or its == 0:
            continue
        if mine != its:
            return -1 if mine < its else 1
        if one[0] > other[0]:
            return 1
    return 0


def _coalesced(dims: list[Dim]) -> list[Dim]:
    """Neighbours that run through memory as one become one."""
    merged: list[Dim] = []
    for size, out, stride in dims:
        if merged:
            before, before_out, before_stride = merged[-1]
            if before * before_out == out and before * before_stride == stride:
                merged[-1] = (before * size, before_out, before_stride)
                continue
        merged.append((size, out, stride))
    return merged


def _output_vector(dims: list[Dim], reduced_dims: int) -> int:
    """How many outputs a thread takes at once: up to 4, as far as size and strides are multiples of it."""
    vector = 4
    for number in (dims[reduced_dims][0], *(dim[2] for at, dim in enumerate(dims) if at != reduced_dims)):
        while number % vector:
            vector //= 2
    return vector


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)
