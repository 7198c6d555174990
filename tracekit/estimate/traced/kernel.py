"""What a CUDA kernel asks of the allocator: its outputs in their order, and the scratch memory that a meta trace hides.

A recipe is a function of shapes, strides and item sizes, and of the card; torch is not known here. Formulas are
re-stated from ATen's sources where those say them, and say so where they were read off recordings.
"""

from __future__ import annotations

import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from tracekit.estimate.traced import reduction
from tracekit.estimate.traced.cards import Card
from tracekit.units import MIB


@dataclass(frozen=True, slots=True)
class Shape:
    """A tensor as a kernel sees it: sizes and strides in elements, bytes of an element, and its dtype's name."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    item_bytes: int
    dtype: str

    @property
    def count(self) -> int:
        """Its elements."""
        return prod(self.sizes)

    @property
    def bytes(self) -> int:
        """Bytes of its elements, laid side by side."""
        return self.count * self.item_bytes

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie side by side, the last dimension's first."""
        step = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    @property
    def is_channels_last(self) -> bool:
        """Whether its elements lie side by side, the channels (the second dimension) last."""
        if len(self.sizes) < 3:
            return False
        order = (0, *range(2, len(self.sizes)), 1)
        sizes, strides = (tuple(numbers[dim] for dim in order) for numbers in (self.sizes, self.strides))
        return Shape(sizes, strides, self.item_bytes, self.dtype).is_contiguous

    def transposed(self, one: int, other: int) -> Shape:
        """The same tensor with two dimensions exchanged."""
        order = list(range(len(self.sizes)))
        order[one], order[other] = order[other], order[one]
        sizes, strides = (tuple(numbers[dim] for dim in order) for numbers in (self.sizes, self.strides))
        return Shape(sizes, strides, self.item_bytes, self.dtype)


@dataclass(frozen=True, slots=True)
class Call:
    """A call of an operator.

    Attributes:
        name: the operator without its overload: sum, _softmax.
        arguments: what it was given, by name; tensors as `Shape`, lists of them as lists.
        outputs: what it returned; None where that is no tensor.
        is_new: whether each output has a storage of its own.
        card: the GPU.
    """

    name: str
    arguments: Mapping[str, Any]
    outputs: Sequence[Shape | None]
    is_new: Sequence[bool]
    card: Card

    def tensor(self, name: str) -> Shape:
        """An argument that is a tensor."""
        value = self.arguments[name]
        if not isinstance(value, Shape):
            raise TypeError(f"{self.name} was given no tensor as {name}")
        return value


@dataclass(frozen=True, slots=True)
class Out:
    """An output's storage is allocated, with more bytes than it needs where that is said."""

    index: int
    byte_count: int | None = None


@dataclass(frozen=True, slots=True)
class Take:
    """Scratch memory is taken; `frame` is the C++ function that asks for it, where it is not the operator."""

    key: str
    byte_count: int
    frame: str | None = None


@dataclass(frozen=True, slots=True)
class Drop:
    """Scratch memory is given back."""

    key: str


@dataclass(frozen=True, slots=True)
class Workspace:
    """A library needs its workspace: one a thread and a stream, taken once and kept."""

    library: str


_CONTIGUOUS = "at::native::contiguous(...)"

Step = Out | Take | Drop | Workspace
Recipe = Callable[[Call], Iterator[Step]]

RECIPES: dict[str, Recipe] = {}
"""Operators that do more than allocate their outputs in order."""

PLAIN: frozenset[str] = frozenset(Path(__file__).with_name("plain_operators.txt").read_text(encoding="utf-8").split())
"""Operators known to allocate their outputs, in order, and nothing else; pointwise ones and views besides."""

APPROXIMATE: dict[str, str] = {
    "convolution": "its workspace is that of the commonest kernel; another one takes more or less",
    "convolution_backward": "its workspace is that of the commonest kernel; another one takes more or less",
    "_cudnn_rnn": "its workspace and what it keeps are as one recording of an LSTM had them",
    "_cudnn_rnn_backward": "its workspace is as one recording of an LSTM had it",
    "_scaled_dot_product_flash_attention_backward": "told by its source, and not held against a recording",
}
"""Operators whose scratch memory is only about right, and why."""


def is_known(name: str) -> bool:
    """Whether it is known what an operator allocates; pointwise operators and views need not be asked about."""
    return name in RECIPES or name in PLAIN


def steps(call: Call) -> Iterator[Step]:
    """What a call asks of the allocator, in order."""
    known = RECIPES.get(call.name)
    yield from outputs(call) if known is None else known(call)


def outputs(call: Call, *order: int) -> Iterator[Step]:
    """The outputs that own a storage, in their order or in the one given."""
    for index in order or range(len(call.outputs)):
        if call.outputs[index] is not None and call.is_new[index]:
            yield Out(index)


def recipe(*names: str) -> Callable[[Recipe], Recipe]:
    """Enter what follows as the recipe of these operators."""

    def enter(made: Recipe) -> Recipe:
        for name in names:
            RECIPES[name] = made
        return made

    return enter


def copied(shape: Shape, key: str) -> Iterator[Step]:
    """A contiguous copy of a tensor that is not contiguous."""
    if not shape.is_contiguous:
        yield Take(key, shape.bytes, _CONTIGUOUS)


def dropped(shape: Shape, key: str) -> Iterator[Step]:
    """Such a copy is given back."""
    if not shape.is_contiguous:
        yield Drop(key)


class _Copy(NamedTuple):
    """A row of contiguous.csv: an argument that a kernel copies where it is not laid out as the kernel wants it."""

    argument: str
    moment: str
    layout: str

    def of(self, call: Call) -> Shape | None:
        """The argument, where it is copied."""
        shape = call.arguments.get(self.argument)
        if not isinstance(shape, Shape) or shape.is_contiguous:
            return None
        return None if self.layout == "dense" and shape.is_channels_last else shape


def _copying(copies: Sequence[_Copy]) -> Recipe:
    """A kernel that copies arguments before or after its outputs are allocated, and has no other scratch memory."""

    def steps_of(call: Call) -> Iterator[Step]:
        needed = [(copy, shape) for copy in copies if (shape := copy.of(call)) is not None]
        for moment in ("before", "after"):
            for copy, shape in needed:
                if copy.moment == moment:
                    yield Take(copy.argument, shape.bytes, _CONTIGUOUS)
            if moment == "before":
                yield from outputs(call)
        for copy, _ in reversed(needed):
            yield Drop(copy.argument)

    return steps_of


COPIES_FILE = Path(__file__).with_name("contiguous.csv")


def _read_copies() -> None:
    """Enter the rows of contiguous.csv, whose last column says which of ATen's native sources has it."""
    copies: defaultdict[str, list[_Copy]] = defaultdict(list)
    for row in COPIES_FILE.read_text(encoding="utf-8").split()[1:]:
        operator, *rest = row.split(",")
        copies[operator].append(_Copy(*rest[:3]))
    RECIPES.update({operator: _copying(found) for operator, found in copies.items()})


_read_copies()


# Products


def _is_for_blas(shape: Shape) -> bool:
    """Whether cuBLAS can read matrices as they lie: rows or columns side by side, none over another (cuda/Blas.cpp)."""
    (rows, columns), (down, across) = shape.sizes[-2:], shape.strides[-2:]
    return (across == 1 and down >= max(columns, 1)) or (down == 1 and across >= max(rows, 1)) or shape.is_contiguous


def _multiplied(call: Call, *names: str) -> Iterator[Step]:
    """Matrices that cuBLAS cannot read are copied once the output is there."""
    copies = [name for name in names if not _is_for_blas(call.tensor(name))]
    yield from outputs(call)
    for name in copies:
        yield Take(name, call.tensor(name).bytes, "at::native::clone(...)")
    yield Workspace("cublas")
    for name in reversed(copies):
        yield Drop(name)


@recipe("addbmm", "mv", "addmv", "dot", "vdot", "addr", "_int_mm")
def _product(call: Call) -> Iterator[Step]:
    yield from outputs(call)
    yield Workspace("cublas")


@recipe("mm", "bmm")
def _product_of_matrices(call: Call) -> Iterator[Step]:
    yield from _multiplied(call, "self", "mat2")


@recipe("baddbmm")
def _sum_with_product(call: Call) -> Iterator[Step]:
    yield from _multiplied(call, "batch1", "batch2")


@recipe("addmm", "_addmm_activation")
def _product_with_bias(call: Call) -> Iterator[Step]:
    """With a vector as bias cublasLt does it; the handle, and its workspace, are cuBLAS's (cuda/Blas.cpp)."""
    bias, one, other = call.tensor("self"), call.tensor("mat1"), call.tensor("mat2")
    is_fused = (
        len(bias.sizes) == 1
        and bias.is_contiguous
        and bias.sizes[0] == other.sizes[1]
        and bias.dtype in ("float64", "float32", "float16", "bfloat16")
        and call.arguments.get("beta", 1) == 1
        and call.arguments.get("alpha", 1) == 1
        and one.sizes[0] > 1
        and other.sizes[0] > 1
        and other.sizes[1] > 1
    )
    yield from _multiplied(call, "mat1", "mat2")
    if is_fused:
        yield Workspace("cublaslt")


# Reductions


def _reduced_dims(call: Call, shape: Shape) -> set[int]:
    dim = call.arguments.get("dim")
    if dim is None or dim == []:
        return set(range(len(shape.sizes)))
    listed: list[int] = [dim] if isinstance(dim, int) else dim
    return {one % max(len(shape.sizes), 1) for one in listed}


def reduced(call: Call, shape: Shape, dims: set[int], sum_bytes: int) -> Iterator[Step]:
    """The scratch memory of a reduction."""
    partial, semaphores = reduction.scratch(shape.sizes, shape.strides, dims, sum_bytes, call.card)
    if partial:
        yield Take("partial", partial)
        yield Take("semaphores", semaphores)
        yield Drop("semaphores")
        yield Drop("partial")


@recipe("sum", "mean", "prod", "amax", "amin", "nansum", "any", "all", "norm", "linalg_vector_norm", "count_nonzero")
def _reduce(call: Call) -> Iterator[Step]:
    shape = call.tensor("self")
    yield from outputs(call)
    first = call.outputs[0]
    sum_bytes = 1 if call.name in ("any", "all") else max(4, shape.item_bytes, first.item_bytes if first else 0)
    yield from reduced(call, shape, _reduced_dims(call, shape), sum_bytes)


@recipe("argmax", "argmin", "max", "min")
def _reduce_with_index(call: Call) -> Iterator[Step]:
    """A value and its index are reduced together; a maximum of two tensors is pointwise."""
    yield from outputs(call)
    if "other" not in call.arguments:
        shape = call.tensor("self")
        has_index = call.name.startswith("arg")
        sum_bytes = max(8, shape.item_bytes) + 8 if has_index else max(4, shape.item_bytes)
        yield from reduced(call, shape, _reduced_dims(call, shape), sum_bytes)


@recipe("var", "std", "var_mean", "std_mean")
def _reduce_moments(call: Call) -> Iterator[Step]:
    """Mean, sum of squares and two counts are reduced together (Welford)."""
    shape = call.tensor("self")
    yield from outputs(call)
    yield from reduced(call, shape, _reduced_dims(call, shape), 16 if shape.item_bytes <= 4 else 32)


@recipe("_foreach_norm")
def _foreach_norm(call: Call) -> Iterator[Step]:
    """Partial norms by chunks of 65,536 elements, 320 a launch (ForeachReduceOp.cu): a float each."""
    shapes: list[Shape] = call.arguments["self"]
    chunks = max((-(-shape.count // 65_536) for shape in shapes), default=0)
    yield Take("partial", len(shapes) * chunks * 4)
    yield from outputs(call)
    yield Drop("partial")


@recipe("aminmax")
def _reduce_to_both(call: Call) -> Iterator[Step]:
    """The smallest and the largest value are reduced together."""
    shape = call.tensor("self")
    yield from outputs(call)
    yield from reduced(call, shape, _reduced_dims(call, shape), 2 * max(4, shape.item_bytes))


# Softmax, normalisation, loss


@recipe("_softmax_backward_data")
def _softmax_backward(call: Call) -> Iterator[Step]:
    """The product of gradient and output is made first (aten/src/ATen/native/cuda/SoftMax.cu)."""
    first = call.outputs[0]
    yield from outputs(call)
    if first is not None and call.is_new[0]:
        yield Take("product", first.bytes, "at::_ops::mul_Tensor::call(...)")
        yield Drop("product")


@recipe("native_layer_norm_backward")
def _layer_norm_backward(call: Call) -> Iterator[Step]:
    """A tall and narrow input has its two weight gradients summed up in parts (layer_norm_kernel.cu)."""
    shape = call.tensor("input")
    inner = prod(call.arguments["normalized_shape"])
    rows = shape.count // max(inner, 1)
    gradient = call.tensor("grad_out")
    yield from copied(gradient, "gradient")
    yield from copied(shape, "input")
    yield from outputs(call)
    if rows > 65_536 and inner // 32 < call.card.processors // 2:
        parts = -(-rows // 32)
        for key in ("weight parts", "bias parts"):
            yield Take(key, parts * inner * shape.item_bytes)
        for key in ("weight parts", "bias parts"):
            yield Drop(key)
    yield from dropped(shape, "input")
    yield from dropped(gradient, "gradient")


@recipe("native_layer_norm")
def _layer_norm(call: Call) -> Iterator[Step]:
    shape = call.tensor("input")
    yield from copied(shape, "input")
    yield from outputs(call)
    yield from dropped(shape, "input")


@recipe("native_group_norm")
def _group_norm(call: Call) -> Iterator[Step]:
    """A factor and a summand for each channel of each sample (group_norm_kernel.cu)."""
    rows = call.arguments["N"] * call.arguments["C"]
    yield from outputs(call)
    if call.arguments["HxW"] > 1:
        for key in ("factor", "summand"):
            yield Take(key, rows * max(4, call.tensor("input").item_bytes))
        for key in ("summand", "factor"):
            yield Drop(key)


@recipe("native_group_norm_backward")
def _group_norm_backward(call: Call) -> Iterator[Step]:
    """Two sums for each channel of each sample, then factors by channel and by group (group_norm_kernel.cu)."""
    item = max(4, call.tensor("input").item_bytes)
    samples, channels, groups = call.arguments["N"], call.arguments["C"], call.arguments["group"]
    yield from outputs(call)
    for key, count in (("ds", channels), ("db", channels), ("c2", groups), ("c3", groups), ("c1", channels)):
        yield Take(key, samples * count * item)
    for key in ("c3", "c2", "c1", "db", "ds"):
        yield Drop(key)


@recipe("mse_loss", "smooth_l1_loss")
def _elementwise_loss(call: Call) -> Iterator[Step]:
    """The result is first made as large as the input and then cut down, which keeps its storage (Loss.cpp)."""
    first = call.outputs[0]
    if call.arguments.get("reduction", 1) == 0 or first is None:
        yield from outputs(call)
        return
    shape = call.tensor("self")
    whole = Shape((shape.count,), (1,), shape.item_bytes, shape.dtype)
    yield Out(0, shape.bytes)
    yield Take("losses", shape.bytes)
    yield from reduced(call, whole, {0}, max(4, shape.item_bytes))
    yield Drop("losses")


@recipe("binary_cross_entropy_with_logits")
def _loss_of_logits(call: Call) -> Iterator[Step]:
    """The log-sigmoids, then the loss of each element, which is reduced (Loss.cpp)."""
    shape = call.tensor("self")
    yield Take("log-sigmoids", shape.bytes, "at::_ops::log_sigmoid_forward::call(...)")
    if isinstance(call.arguments.get("pos_weight"), Shape):
        yield Take("weights", call.tensor("pos_weight").bytes)
        yield Take("weights of targets", shape.bytes)
        yield Drop("weights")
        yield Drop("weights of targets")
    if call.arguments.get("reduction", 1) == 0:
        yield from outputs(call)
    else:
        yield Take("losses", shape.bytes, "at::_ops::rsub_Scalar::call(...)")
        yield from outputs(call)
        whole = Shape((shape.count,), (1,), shape.item_bytes, shape.dtype)
        yield from reduced(call, whole, {0}, max(4, shape.item_bytes))
        yield Drop("losses")
    yield Drop("log-sigmoids")


@recipe("log_sigmoid_forward")
def _log_sigmoid(call: Call) -> Iterator[Step]:
    """The buffer that a CPU keeps has no elements on a GPU (ActivationLogSigmoidKernel.cu)."""
    yield from outputs(call, 0)


@recipe("native_dropout")
def _dropout(call: Call) -> Iterator[Step]:
    """The mask comes before the output (Dropout.cu)."""
    yield from outputs(call, 1, 0)


# Convolution

_PLAN = "at::native::run_conv_plan(...)"
_MARGIN, _STRIDED_MARGIN, _SPLIT_MARGIN, _SEMAPHORES = 16, 147, 175, 400
_TILE = 128
_MOST_BY_BATCH = 32 * MIB
_DEPTHWISE_COPIES, _DEPTHWISE_MARGIN = 4, 10 * MIB
"""About what the weight gradient of a depthwise convolution takes where channels are last: so often its tensors."""


@recipe("convolution")
def _convolution(call: Call) -> Iterator[Step]:
    """CuDNN's kernels want channels last: other tensors are converted inside its workspace (read off recordings)."""
    x, weight = call.tensor("input"), call.tensor("weight")
    y = call.outputs[0]
    copies = _copies_of_layout(call, "input", "weight")
    yield from (Take(name, call.tensor(name).bytes, _CONTIGUOUS) for name in copies)
    yield from outputs(call)
    if y is not None:
        yield from _planned("workspace", _forward_workspace(call, x, weight, y))
    yield from map(Drop, reversed(copies))


@recipe("convolution_backward")
def _convolution_backward(call: Call) -> Iterator[Step]:
    """The gradient of the input, that of the weight, and the bias's, which is a sum."""
    y, x, weight = call.tensor("grad_output"), call.tensor("input"), call.tensor("weight")
    copies = _copies_of_layout(call, "input", "grad_output")
    yield from (Take(name, call.tensor(name).bytes, _CONTIGUOUS) for name in copies)
    for index, workspace in enumerate((_forward_workspace(call, x, weight, y), _weight_workspace(call, x, weight, y))):
        if call.outputs[index] is not None and call.is_new[index]:
            yield Out(index)
            turned = _copies_of_layout(call, "weight") if index == 0 else []
            yield from (Take(name, weight.bytes, _CONTIGUOUS) for name in turned)
            yield from _planned("workspace", workspace)
            yield from map(Drop, turned)
    if len(call.outputs) > 2 and call.outputs[2] is not None and call.is_new[2]:
        yield Out(2)
        yield from reduced(call, y, {dim for dim in range(len(y.sizes)) if dim != 1}, max(4, y.item_bytes))
    yield from map(Drop, reversed(copies))


def _planned(key: str, byte_count: int) -> Iterator[Step]:
    if byte_count:
        yield Take(key, byte_count, _PLAN)
        yield Drop(key)


def _lies_last(shape: Shape) -> bool:
    """Whether a tensor has its channels last, and could not as well have them first."""
    return shape.is_channels_last and not shape.is_contiguous


def _copies_of_layout(call: Call, *names: str) -> list[str]:
    """Arguments that are copied: all have channels last where input or weight has, or first (Convolution.cpp)."""
    is_last = _lies_last(call.tensor("input")) or _lies_last(call.tensor("weight"))
    shapes = {name: call.tensor(name) for name in names}
    return [name for name, shape in shapes.items() if not (shape.is_channels_last if is_last else shape.is_contiguous)]


def _is_pointwise(call: Call, weight: Shape) -> bool:
    """Whether a convolution is a product: 1 x 1, every pixel."""
    return prod(weight.sizes[2:]) == 1 and all(one == 1 for one in call.arguments["stride"])


def _converts(call: Call, x: Shape, weight: Shape) -> bool:
    """Whether tensors are converted at all: not in depthwise kernels, nor where channels are last already."""
    is_thin = x.sizes[1] < 4 and prod(weight.sizes[2:]) <= 9
    return not (_is_depthwise(call, weight) or is_thin or _lies_last(x) or _lies_last(weight))


def _is_depthwise(call: Call, weight: Shape) -> bool:
    """Whether every channel is by itself."""
    return call.arguments["groups"] > 1 and weight.sizes[1] == 1


def _padded(shape: Shape) -> int:
    """Bytes of a tensor with its channels filled up to four."""
    return shape.bytes // shape.sizes[1] * max(shape.sizes[1], 4)


def _forward_workspace(call: Call, x: Shape, weight: Shape, y: Shape) -> int:
    if not _converts(call, x, weight):
        return 0
    if _is_pointwise(call, weight) and prod(x.sizes[2:]) % 4 == 0:
        return _SEMAPHORES if weight.sizes[0] <= weight.sizes[1] else 0
    converted = x.bytes + y.bytes
    is_strided = call.name == "convolution_backward" and any(one > 1 for one in call.arguments["stride"])
    margin = _STRIDED_MARGIN if is_strided else _MARGIN
    return converted + (weight.bytes if prod(weight.sizes[2:]) > 1 else 0) + margin


def _weight_workspace(call: Call, x: Shape, weight: Shape, y: Shape) -> int:
    """Beside what is converted, partial sums of as many tiles as there are multiprocessors."""
    if _is_depthwise(call, weight) and _lies_last(x):
        return _DEPTHWISE_COPIES * (x.bytes + y.bytes) + _DEPTHWISE_MARGIN
    if not _converts(call, x, weight):
        return 0
    by_batch = x.sizes[0] * weight.bytes
    is_even = prod(x.sizes[2:]) % 4 == 0
    if _is_pointwise(call, weight) and is_even and by_batch <= _MOST_BY_BATCH and weight.sizes[0] >= 4:
        return by_batch
    rows, columns = weight.sizes[0], max(weight.sizes[1], 4) * prod(weight.sizes[2:])
    tile = [min(_TILE, 64 if size <= 64 else _TILE) for size in (rows, max(weight.sizes[1], 4))]
    tiles = -(-rows // tile[0]) * -(-columns // tile[1])
    processors = call.card.processors
    count = tiles * (processors // tiles) if tiles <= processors else processors
    converted = _padded(x) + _padded(y) + (weight.bytes if prod(weight.sizes[2:]) > 1 else 0)
    if count == tiles or not is_even:
        return converted + _MARGIN
    return converted + count * (tile[0] * tile[1] * 4 + 4) + _SPLIT_MARGIN


# Recurrent layers

_GATES = (1, 1, 4, 3)
"""Gates of a cell by cuDNN's number of its kind: two plain ones, LSTM, GRU."""


def recurrent_reserve(mode: int, layers: int, length: int, unit: int) -> int:
    """Bytes that cuDNN keeps for the backward of a recurrent layer: as one recording of an LSTM has it.

    Args:
        mode: cuDNN's number of the kind.
        layers: layers times directions.
        length: steps in time.
        unit: bytes of one state: batch x width.
    """
    return ((_GATES[mode] + 2) * layers - 1) * length * unit + 256


def _recurrent_workspace(call: Call, length: int, unit: int) -> int:
    """Bytes that cuDNN works in, forward and backward: as one recording of an LSTM has it."""
    layers: int = call.arguments["num_layers"] * (2 if call.arguments["bidirectional"] else 1)
    gates = _GATES[int(call.arguments["mode"])]
    return (gates + 1) * layers * (length + 2) * unit + 512


def _recurrent_sizes(call: Call) -> tuple[Shape, int, int]:
    """The input with time first, its length, and the bytes of one state."""
    x = call.tensor("input")
    turned = x.transposed(0, 1) if call.arguments["batch_first"] else x
    return turned, turned.sizes[0], turned.sizes[1] * call.arguments["hidden_size"] * x.item_bytes


@recipe("_cudnn_rnn")
def _recurrent(call: Call) -> Iterator[Step]:
    """The input is copied so that time comes first; then outputs, a workspace, and what is kept (cudnn/RNN.cpp)."""
    x, length, unit = _recurrent_sizes(call)
    yield from copied(x, "input")
    yield from outputs(call, 0, 1, 2)
    yield Take("workspace", _recurrent_workspace(call, length, unit))
    yield from outputs(call, 3)
    yield Drop("workspace")
    yield from dropped(x, "input")


@recipe("_cudnn_rnn_backward")
def _recurrent_backward(call: Call) -> Iterator[Step]:
    """Gradients of input and states, then those of the weights, each with a workspace (cudnn/RNN.cpp)."""
    x, length, unit = _recurrent_sizes(call)
    gradient = call.arguments.get("grad_output")
    turned = gradient.transposed(0, 1) if isinstance(gradient, Shape) and call.arguments["batch_first"] else gradient
    states = [name for name in ("grad_hy", "grad_cy") if not isinstance(call.arguments.get(name), Shape)]
    for name in states:
        yield Take(name, call.tensor("hx").bytes)
    yield from copied(x, "input")
    if isinstance(turned, Shape):
        yield from copied(turned, "gradient")
    yield from outputs(call, 0, 1, 2)
    workspace = _recurrent_workspace(call, length, unit)
    yield Take("workspace", workspace)
    yield Drop("workspace")
    if isinstance(turned, Shape):
        yield from dropped(turned, "gradient")
    yield from dropped(x, "input")
    yield from copied(x, "input again")
    yield from outputs(call, *range(3, len(call.outputs)))
    yield Take("workspace", workspace)
    yield Drop("workspace")
    yield from dropped(x, "input again")
    for name in reversed(states):
        yield Drop(name)


# Attention


@recipe("_scaled_dot_product_efficient_attention")
def _efficient_attention(call: Call) -> Iterator[Step]:
    """The output comes before the log-sums; the seeds are on the host."""
    yield from outputs(call, 0, 1)


@recipe("_scaled_dot_product_efficient_attention_backward")
def _efficient_attention_backward(call: Call) -> Iterator[Step]:
    """Gradients, the product with the output and its sum, and a workspace (attention_backward.cu)."""
    gradient, query = call.tensor("grad_out_").transposed(1, 2), call.tensor("query")
    batch, heads, length, width = query.sizes
    yield from copied(gradient, "gradient")
    yield from outputs(call)
    if query.item_bytes < 4:  # the kernel makes the sum itself
        yield Take("delta copy", batch * heads * length * 4)
    else:
        yield Take("product", batch * heads * length * width * 4)
        yield Take("delta", batch * heads * length * 4)
        yield Take("delta copy", batch * heads * length * 4)
        yield Drop("delta")
        yield Drop("product")
    yield Take("workspace", batch * heads * -(-length // 64) * -(-width // 64) * (16 + 64 * 64 * 4))
    yield Drop("delta copy")
    yield Drop("workspace")
    yield from dropped(gradient, "gradient")


@recipe("_scaled_dot_product_flash_attention")
def _flash_attention(call: Call) -> Iterator[Step]:
    """Output, log-sums, and the state of the random numbers (flash_attn/flash_api.cpp)."""
    yield from outputs(call, 0, 1, 6, 7)


@recipe("_scaled_dot_product_flash_attention_backward")
def _flash_attention_backward(call: Call) -> Iterator[Step]:
    """Sums and a float gradient of the queries, and with fewer key heads two expanded ones (flash_api.cpp, mha_bwd)."""
    query, key = call.tensor("query"), call.tensor("key")
    batch, heads, length, width = query.sizes
    rows, columns = -(-length // 128) * 128, -(-width // 32) * 32
    yield from outputs(call)
    yield Take("sums", batch * heads * rows * 4)
    yield Take("gradient in floats", batch * rows * heads * columns * 4)
    expanded = ("expanded key", "expanded value") if key.sizes[1] != heads else ()
    for one in expanded:
        yield Take(one, batch * key.sizes[2] * heads * width * query.item_bytes)
    for one in (*reversed(expanded), "gradient in floats", "sums"):
        yield Drop(one)


@recipe("_scaled_dot_product_cudnn_attention")
def _cudnn_attention(call: Call) -> Iterator[Step]:
    """Seed and offset come first; cuDNN takes 256 bytes for itself (read off recordings, torch 2.11, sm_90)."""
    yield from outputs(call, 6, 7, 0, 1)
    yield Take("workspace", 256, "run_cudnn_SDP_fprop(...)")
    yield Drop("workspace")


@recipe("_scaled_dot_product_cudnn_attention_backward")
def _cudnn_attention_backward(call: Call) -> Iterator[Step]:
    """A float gradient of the queries, sums, and with fewer key heads two expanded ones (read off recordings)."""
    query, key = call.tensor("query"), call.tensor("key")
    batch, heads, length, width = query.sizes
    workspace = batch * heads * length * width * 4 + batch * heads * length * 4 + 256
    if key.sizes[1] != heads:
        workspace += 2 * batch * heads * key.sizes[2] * width * query.item_bytes
    yield from outputs(call)
    yield Take("workspace", workspace, "run_cudnn_SDP_bprop(...)")
    yield Drop("workspace")


importlib.import_module("tracekit.estimate.traced.indexing")  # which enters its recipes, and needs what is above
