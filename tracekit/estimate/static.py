"""What a model owns whatever the batch: parameters, buffers, gradients, optimizer state, and what a step allocates.

Each function says which tensors there are, as products of sizes; when they are alive is for `moments`.
"""

from __future__ import annotations

from collections.abc import Iterator

from tracekit.estimate.rows import Precision
from tracekit.estimate.run import CHUNK_ROWS, Run
from tracekit.estimate.shape import Shape, dims
from tracekit.estimate.tensors import Tensor

QUANTISED_FROM = 4096
"""Elements from which 8-bit optimizers quantise a tensor; smaller ones keep fp32 (bitsandbytes' min_8bit_size)."""

QUANTISED_BLOCK = 256
"""Elements that share one fp32 scale in an 8-bit state."""

CUBLASLT_BYTES = 1 << 20
"""A cublasLt workspace, taken by the first product that adds a bias (recorded)."""


def trained_sizes(shape: Shape, run: Run) -> dict[str, int]:
    """The symbols that depend on what is trained: numbers of elements.

    Low-rank adapters beside a matrix of a x b are R·(a + b) parameters (Hu 2021): all that is trained with them.
    Adafactor keeps a + b numbers for a matrix of a x b, and n for a vector of n (Shazeer 2018).
    """
    sizes = shape.sizes
    own = {
        "B": run.batch,
        "T": run.sequence,
        "R": run.rank,
        "W": run.workspace_bytes,
        "M": min(run.batch * run.sequence, CHUNK_ROWS),
    }
    often = {weight: shape.layers if weight.in_block else 1 for weight in shape.weights}
    adapted = [weight for place in run.places for weight in shape.linears(place)]
    if run.is_adapted:
        shapes = [((run.rank, side), often[weight]) for weight in adapted for side in dims(weight, sizes)]
    else:
        shapes = [(dims(weight, sizes), often[weight]) for weight in shape.weights]
    counted = [(_product(one), one, count) for one, count in shapes]
    trained = sum(size * count for size, _, count in counted)
    hidden = 0 if run.is_adapted else sizes["P_hidden"]
    large = [(size, count) for size, _, count in counted if size >= QUANTISED_FROM]
    return own | {
        "P_trained": trained,
        "P_largest": max(size for size, _, _ in counted),
        "P_factored": sum(count * (sum(one) if len(one) > 1 else size) for size, one, count in counted),
        "P_quantised": sum(size * count for size, count in large),
        "P_small": trained - sum(size * count for size, count in large),
        "P_scale": sum(count * -(-size // QUANTISED_BLOCK) for size, count in large),
        "P_other": trained - hidden,
        "N_trained": sum(count for _, _, count in counted),
    }


def parameters(shape: Shape, run: Run) -> Iterator[Tensor]:
    """Weights: bytes of a number x P, tied ones once; with adapters R x the sides of every matrix they stand beside.

    Shared by the ranks from ZeRO's stage 3 on (Rajbhandari 2020; FSDP, Zhao 2023).
    """
    each = run.precision.weight_bytes
    tensors = sum(shape.layers if weight.in_block else 1 for weight in shape.weights)
    yield Tensor("weights", "parameter", each, ("P",), tensors=tensors, is_shared=run.stage >= 3)
    if run.is_adapted:
        yield Tensor(
            "adapters", "parameter", each, ("P_trained",), tensors=_trained_count(shape, run),
            is_shared=run.stage >= 3,
        )  # fmt: skip


def bytes_per_parameter(run: Run) -> int:
    """Weight, gradient, master copy and states of one trained parameter, where its optimizer keeps whole numbers.

    fp32 with Adam 4 + 4 + 8 = 16; bf16 with a master copy 2 + 2 + 4 + 8 = 16; pure bf16 2 + 2 + 4 = 8.
    """
    precision = run.precision
    state = precision.state_bytes * run.optimizer.states
    return precision.weight_bytes + precision.gradient_bytes + precision.master_bytes + state


def buffers(shape: Shape, run: Run) -> Iterator[Tensor]:
    """Tensors of the model that are not trained.

    A causal mask of X² a block, where attention is written out and the mask is registered (capture/gpt2.py: 4 bytes an
    element whatever the precision of torch.autocast); two tables of D/2 inverse frequencies for rotary positions.
    """
    if shape.has_learned_positions and run.is_eager and not run.is_huggingface:
        yield Tensor("causal masks", "buffer", run.precision.weight_bytes, ("X", "X"), ("L",))
    if not shape.has_learned_positions:
        yield Tensor("inverse frequencies", "buffer", run.precision.weight_bytes, ("D",), tensors=2)


def gradients(shape: Shape, run: Run) -> Iterator[Tensor]:
    """One gradient for each trained parameter, all there at the end of the backward: bytes of a number x P_trained.

    Shared by the ranks from ZeRO's stage 2 on.
    """
    yield Tensor(
        "gradients", "gradient", run.precision.gradient_bytes, ("P_trained",), tensors=_trained_count(shape, run),
        is_shared=run.stage >= 2,
    )  # fmt: skip


def states(shape: Shape, run: Run) -> Iterator[Tensor]:
    """What the optimizer keeps between steps, from the first one on: bytes of a state x states x P_trained.

    With it a master copy of the weights where the precision has one. 8 bit: 1 byte a state and an fp32 scale for every
    256 (Dettmers 2022), tensors under 4,096 elements in fp32. Muon (Jordan 2024): one momentum for the matrices inside
    of blocks, AdamW's two moments for the rest. Shared by the ranks from ZeRO's stage 1 on.
    """
    if run.offloads_state:
        return
    precision, optimizer, shared = run.precision, run.optimizer, run.stage >= 1
    count = _trained_count(shape, run)

    def state(name: str, each: int, dims: tuple[str, ...], tensors: int) -> Tensor:
        return Tensor(name, "optimizer_state", each, dims, tensors=tensors, is_shared=shared)

    if precision.master_bytes:
        yield state("master weights", precision.master_bytes, ("P_trained",), count)
    if optimizer.kind == "factored":
        yield state("row and column sums", precision.state_bytes, ("P_factored",), 2 * count)
    elif optimizer.kind == "quantised":
        yield state("quantised states", optimizer.states, ("P_quantised",), optimizer.states * count)
        yield state("scales of quantised states", 4 * optimizer.states, ("P_scale",), optimizer.states * count)
        yield state("states of small tensors", 4 * optimizer.states, ("P_small",), optimizer.states * count)
    elif optimizer.kind == "muon" and not run.is_adapted:
        yield state("momentum of matrices", precision.state_bytes, ("P_hidden",), count)
        yield state("AdamW's states of the rest", 2 * precision.state_bytes, ("P_other",), count)
    elif optimizer.states:
        each = precision.state_bytes * optimizer.states
        yield state("states", each, ("P_trained",), optimizer.states * count)
    if run.step == "fused" and optimizer.has_fused and optimizer.states:
        yield Tensor("step counters", "optimizer_state", 4, ("N_trained",), tensors=count)


def step_temporaries(run: Run) -> Iterator[Tensor]:
    """What one optimizer step holds at its highest point and frees again (torch.optim, second step).

    foreach: a list of whole copies, such as Adam's denominators: 1 x P_trained for Adam, 2 for Adagrad, none for SGD.
    loop: copies of the largest tensor. fused: none. Muon: 2.25 x the largest matrix for Newton-Schulz, of which the
    quarter is rounded down. 8 bit: none. With a master copy they are of its type.
    """
    if run.offloads_state:
        return
    each, optimizer = run.precision.state_bytes, run.optimizer
    if optimizer.kind == "muon" and not run.is_adapted:
        yield Tensor("Newton-Schulz", "optimizer_temporary", each * 9 // 4, ("P_largest_hidden",), tensors=3)
    elif run.step == "foreach" and optimizer.foreach_temporaries:
        yield Tensor(
            "copies of a foreach step", "optimizer_temporary", each * optimizer.foreach_temporaries, ("P_trained",),
            is_shared=run.stage >= 1,
        )  # fmt: skip
    elif (run.step == "loop" or (run.step == "fused" and not optimizer.has_fused)) and optimizer.loop_temporaries:
        yield Tensor(
            "copies of the largest tensor", "optimizer_temporary", each * optimizer.loop_temporaries, ("P_largest",),
            tensors=optimizer.loop_temporaries, is_shared=run.stage >= 1,
        )  # fmt: skip


def workspaces(shape: Shape, run: Run) -> Iterator[Tensor]:
    """Scratch memory of cuBLAS: W for the main thread and W for the thread of autograd; none of it is ever freed.

    cublasLt takes 1 MiB where a product adds a bias in the forward, and 1 MiB more where the backward runs the forward
    again (recorded on an H200; transformers' GPT-2 multiplies otherwise and takes none).
    """
    yield Tensor("cuBLAS", "library_workspace", 1, ("W",))
    yield Tensor("cuBLAS of autograd", "library_workspace", 1, ("W",))
    if (shape.has_qkv_bias or shape.has_mlp_bias) and not (run.is_huggingface and shape.has_fused_qkv):
        often = 2 if run.is_checkpointed else 1
        yield Tensor("cublasLt", "library_workspace", CUBLASLT_BYTES * often, tensors=often)


def casts(precision: Precision) -> Iterator[Tensor]:
    """Copies of a block's matrices in the lower precision, kept from forward to backward.

    torch.autocast: 2 bytes of every number of a matrix (and of the output matrix, see `moments`). fp8: a copy and its
    transpose, 1 byte each (Transformer Engine; not recorded).
    """
    if precision.copy_bytes:
        yield Tensor("copies of matrices", "autocast_cast", precision.copy_bytes, ("P_matrix",))


def gathered(run: Run) -> Iterator[Tensor]:
    """What a rank holds of the others while a block runs, with ZeRO's stage 3: its weights, and those of the next one.

    In the backward also the block's whole gradient, from stage 2 on, until it is reduced and scattered.
    """
    if run.stage >= 3:
        yield Tensor(
            "this block's weights and the next's", "communication", 2 * run.precision.weight_bytes, ("P_block",)
        )


def unreduced(run: Run) -> Iterator[Tensor]:
    """A block's whole gradient before the ranks have reduced it, from ZeRO's stage 2 on."""
    if run.stage >= 2 and not run.is_adapted:
        yield Tensor("this block's whole gradient", "communication", run.precision.gradient_bytes, ("P_block",))


def _trained_count(shape: Shape, run: Run) -> int:
    often = {weight: shape.layers if weight.in_block else 1 for weight in shape.weights}
    if run.is_adapted:
        return 2 * sum(often[weight] for place in run.places for weight in shape.linears(place))
    return sum(often.values())


def _product(shape: tuple[int, ...]) -> int:
    return shape[0] if len(shape) == 1 else shape[0] * shape[1]
