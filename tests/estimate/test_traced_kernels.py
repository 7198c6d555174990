"""Scratch memory of kernels that copy, sort and add by index, as ATen's sources and recordings have it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import SHARED
from tests.estimate.traced import MIB, conditions, traced
from tracekit import analysis
from tracekit.allocator.program import ALLOCATE
from tracekit.estimate.traced import cards, indexing, kernel
from tracekit.estimate.traced.kernel import Call, Drop, Out, Shape, Take, Workspace

H200 = cards.card("h200")


def laid(*sizes: int, strides: tuple[int, ...] | None = None, dtype: str = "float32", item: int = 4) -> Shape:
    """A tensor, contiguous unless strides are given."""
    step, dense = 1, list[int]()
    for size in reversed(sizes):
        dense.insert(0, step)
        step *= size
    return Shape(sizes, strides or tuple(dense), item, dtype)


def told(name: str, arguments: dict[str, Any], *outputs: Shape, is_new: bool = True) -> list[object]:
    """What a call does, in short: an output's index, bytes taken, minus bytes given back, a library's name."""
    held: dict[str, int] = {}
    words: list[object] = []
    for step in kernel.steps(Call(name, arguments, outputs, [is_new] * len(outputs), H200)):
        if isinstance(step, Out):
            words.append(f"out {step.index}")
        elif isinstance(step, Take):
            held[step.key] = step.byte_count
            words.append(step.byte_count)
        elif isinstance(step, Drop):
            words.append(-held.pop(step.key))
        else:
            assert isinstance(step, Workspace)
            words.append(step.library)
    assert not held
    return words


def test_a_gradient_that_is_a_slice_is_copied_before_it_is_scaled_down() -> None:
    """A U-Net joins what it scaled up with what it kept: on the way back its gradient is a slice of a larger one."""
    path = SHARED / "captures" / "zoo_unet_b8.pickle.xz"
    if not path.is_file():
        pytest.skip("the shared recordings are not beside the checkout")
    with analysis.open_any(path) as warehouse:
        recorded = [
            row["size_bytes"] * (1 if row["action"] == "alloc" else -1)
            for row in warehouse.rows(
                "select action, size_bytes from trace_event where action in ('alloc', 'free_requested')"
                " order by event_ix"
            )
        ]
    tape = traced("unet", conditions(steps=3)).tape
    made = [
        tape.requested[number] * (1 if kind == ALLOCATE else -1)
        for kind, number in zip(tape.kind, tape.number, strict=True)
    ]
    for scaled_down in (16 * MIB, 8 * MIB, 4 * MIB):
        pattern = [scaled_down, 4 * scaled_down, -4 * scaled_down]
        assert pattern in [recorded[at : at + 3] for at in range(len(recorded))]
        assert pattern in [made[at : at + 3] for at in range(len(made))]


def test_matrices_that_cublas_cannot_read_are_copied_after_the_output() -> None:
    out = laid(8, 16)
    assert told("mm", {"self": laid(8, 4), "mat2": laid(4, 16)}, out) == ["out 0", "cublas"]
    turned = laid(8, 4, strides=(1, 8))
    assert told("mm", {"self": turned, "mat2": laid(4, 16, strides=(1, 4))}, out) == ["out 0", "cublas"]
    slice_of_rows = laid(8, 4, strides=(100, 1))
    assert told("mm", {"self": slice_of_rows, "mat2": laid(4, 16)}, out) == ["out 0", "cublas"]
    spread = laid(8, 4, strides=(0, 0))
    assert told("mm", {"self": spread, "mat2": laid(4, 16)}, out) == ["out 0", 128, "cublas", -128]
    batch = laid(3, 8, 4, strides=(0, 4, 1))
    assert told("bmm", {"self": batch, "mat2": laid(3, 4, 16)}, laid(3, 8, 16)) == ["out 0", "cublas"]


def test_softmax_and_loss_copy_what_does_not_lie_in_rows() -> None:
    columns = laid(8, 4, strides=(1, 8))
    assert told("_log_softmax", {"self": columns}, laid(8, 4)) == ["out 0", 128, -128]
    assert told("_log_softmax", {"self": laid(8, 4)}, laid(8, 4)) == ["out 0"]
    pictures = laid(2, 3, 4, 4, strides=(48, 1, 12, 3))
    assert told("max_pool2d_with_indices", {"self": pictures}, laid(2, 3, 2, 2), laid(2, 3, 2, 2)) == ["out 0", "out 1"]


def test_what_is_added_up_by_index_is_sorted() -> None:
    """Indexing.cu, index_put_with_sort_kernel: where each goes twice, sorted, in order, from a range, and cub's own."""
    index = laid(1_000, dtype="int64", item=8)
    arguments = {"self": laid(50, 64), "indices": [index], "values": laid(1_000, 64), "accumulate": True}
    scratch = 16_000 + 16_895 + 1_024
    assert told("index_put", arguments, laid(50, 64), is_new=False) == [
        *(8_000, 8_000, -8_000),
        *(8_000, 8_000, 8_000, scratch, -scratch, -8_000, -8_000, -8_000),
        -8_000,
    ]
    assert told("index_put_", {**arguments, "accumulate": False}, laid(50, 64), is_new=False) == []


def test_short_rows_are_sorted_in_place_and_long_ones_by_radix() -> None:
    short, long = laid(8, 64), laid(1, 100_000)
    pair = (short, laid(8, 64, dtype="int64", item=8))
    assert told("sort", {"self": short, "dim": -1}, *pair) == ["out 0", "out 1", 512, -512]
    assert told("topk", {"self": short, "k": 2}, *pair) == ["out 0", "out 1"]
    longer = told("sort", {"self": long, "dim": -1}, long, laid(1, 100_000, dtype="int64", item=8))
    assert longer[:3] == ["out 0", "out 1", 800_000]
    assert isinstance(longer[3], int)
    assert longer[3] > 12 * 100_000  # keys of 4 bytes, values of 8


def test_whatever_sorts_gives_back_what_it_takes() -> None:
    for rows, length in ((2, 5_000), (200, 5_000), (1, 2_000_000)):
        whole = laid(rows, length, strides=(1, rows))
        told("sort", {"self": whole, "dim": -1}, laid(rows, length), laid(rows, length, dtype="int64", item=8))


def test_every_row_of_the_table_of_copies_has_an_argument_of_that_name() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    rows = [line.split(",") for line in (kernel.COPIES_FILE).read_text().split()[1:]]
    for operator, argument, moment, layout, source in rows:
        schema = getattr(torch.ops.aten, operator).default._schema
        assert argument in [one.name for one in schema.arguments], operator
        assert moment in ("before", "after")
        assert layout in ("contiguous", "dense")
        assert source.startswith(("cuda/", "cudnn/"))
    assert indexing.MOST_UNSORTED == 3_072


def convolved(x: Shape, weight: Shape, y: Shape, **more: object) -> dict[str, Any]:
    """Arguments of a convolution and of its backward."""
    return {"input": x, "weight": weight, "grad_output": y, "stride": [1, 1], "groups": 1, **more}


def test_tensors_of_a_convolution_lie_as_its_input_does() -> None:
    """Convolution.cpp: one that has its channels last has weights and gradients copied to lie so too."""
    first, last = laid(2, 8, 4, 4), laid(2, 8, 4, 4, strides=(128, 1, 32, 8))
    weight = laid(16, 8, 3, 3)
    y_first, y_last = laid(2, 16, 4, 4), laid(2, 16, 4, 4, strides=(256, 1, 64, 16))
    assert told("convolution", convolved(last, weight, y_last), y_last) == [weight.bytes, "out 0", -weight.bytes]
    plain = told("convolution", convolved(first, weight, y_first), y_first)
    assert plain[0] == "out 0"
    backward = told("convolution_backward", convolved(last, weight, y_first), last, weight)
    assert backward == [
        *(y_first.bytes, "out 0", weight.bytes, -weight.bytes, "out 1", -y_first.bytes),
    ]
    permuted = laid(2, 8, 4, 4, strides=(128, 16, 1, 4))
    assert told("convolution", convolved(permuted, weight, y_first), y_first)[0] == permuted.bytes
