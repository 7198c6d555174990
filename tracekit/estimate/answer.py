"""An estimate as plain rows: the fields that scripts may rely on, and in sentences what it rests on.

Numbers come from the modules beside this one; nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tracekit.errors import TracekitError
from tracekit.estimate import activations, fit, levers, static
from tracekit.estimate.inference import pinned_cache
from tracekit.estimate.ledger import BUCKETS, Account, Estimate, estimate, estimate_generation
from tracekit.estimate.run import Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.static import trained_sizes
from tracekit.estimate.tensors import SYMBOLS, total_bytes
from tracekit.units import format_mib

Row = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """An estimate and what was asked about it.

    Attributes:
        estimate: the accounts.
        make: makes another estimate of the same model.
        is_generation: whether it generates instead of training.
        limit_bytes: bytes that may be reserved, where a limit was given.
    """

    estimate: Estimate
    make: Callable[[Run], Estimate]
    is_generation: bool
    limit_bytes: int | None


def answer(shape: Shape, run: Run, *, is_generation: bool = False, limit_bytes: int | None = None) -> Answer:
    """Estimate a model under a run.

    Raises:
        TracekitError: where the model has no position for so long a sequence.
    """
    if shape.has_learned_positions and run.sequence > shape.positions:
        raise TracekitError(
            f"{shape.name} has learned positions for {shape.positions:,} tokens, not for {run.sequence:,}",
            f"give --sequence {shape.positions} or less",
        )

    def make(other: Run) -> Estimate:
        return estimate_generation(shape, other) if is_generation else estimate(shape, other)

    return Answer(make(run), make, is_generation, limit_bytes)


_NOT_KNOWN = (
    ("allocated_bytes", "blocks are larger than what is asked for, by the history of the cache: trace a script for it"),
    ("held_bytes", "likewise, by bucket"),
    ("reserved_bytes", "segments hang on the order of requests: trace a script for it"),
    ("event_count", "a formula has no events, steps or stacks"),
)
"""Fields of a recording that a formula leaves null, and why."""


def as_json(one: Answer) -> Row:
    """The estimate in the shape of a device of `tracekit analyze --format json`, and what only an estimate has.

    What a sum of tensors cannot say, such as reserved bytes, is null, and `not_known` says why.
    """
    shape, run, peak = one.estimate.shape, one.estimate.run, one.estimate.peak
    row: Row = {
        "model": shape.name,
        "settings": settings(one),
        "device": 0,
        "event_count": None,
        "step_count": None,
        "parameter_count": shape.sizes["P"],
        "peak_bytes": peak.requested_bytes,
        "peak": {
            "event_ix": None,
            "allocated_bytes": None,
            "requested_bytes": peak.requested_bytes,
            "reserved_bytes": None,
            "step": None,
            "phase": peak.phase,
            "moment": peak.moment,
            "place": peak.place,
            "requested_by": None,
            "request_bytes": None,
        },
        "peak_reserved_bytes": None,
        "replay": None,
        "ledger": ledger_rows(peak),
        "evidence": [
            {
                "evidence": "formula",
                "requested_bytes": peak.requested_bytes,
                "allocation_count": sum(line.allocation_count for line in peak.lines()),
            }
        ],
        "moments": moment_rows(one.estimate),
        "sequence_bytes": one.make(replace(run, batch=run.batch + 1)).peak_bytes - peak.requested_bytes,
        "not_known": dict(_NOT_KNOWN),
        "assumptions": assumptions(one),
    }
    if not one.is_generation:
        row |= {"model_bytes": model_bytes(shape, run), "block_saved_bytes": block_saved_bytes(shape, run)}
    if one.limit_bytes is not None:
        sure, possible = fit.largest_batch(one.make, run, one.limit_bytes)
        row |= {
            "limit_bytes": one.limit_bytes,
            "fits": fit.fits(peak.requested_bytes, one.limit_bytes),
            "largest_batch": {"surely": sure, "by_tensors": possible},
            "levers": lever_rows(one),
        }
    return row


def settings(one: Answer) -> Row:
    """What was chosen, by the names of the command line's options."""
    run = one.estimate.run
    chosen: Row = {
        "batch": run.batch,
        "sequence": run.sequence,
        "precision": run.precision.name,
        "attention": run.attention,
        "code": run.code,
        "workspace_bytes": run.workspace_bytes,
    }
    if one.is_generation:
        return {"mode": "generation", **chosen}
    return {
        "mode": "training",
        **chosen,
        "optimizer": run.optimizer.name,
        "step": run.step,
        "checkpoint": run.is_checkpointed,
        "loss": run.loss,
        "logits": run.logits,
        "dropout": run.has_dropout,
        "lora": run.rank if run.is_adapted else None,
        "lora_on": run.adapted,
        "accumulate": run.accumulate,
        "zero": run.stage,
        "ranks": run.ranks,
        "offload": run.offloads_state,
    }


def ledger_rows(account: Account) -> list[Row]:
    """The lines of an account, with the columns of the view `ledger_at`; what is held in blocks is not known."""
    return [
        {
            "bucket": line.bucket,
            "requested_bytes": line.requested_bytes,
            "held_bytes": None,
            "allocation_count": line.allocation_count,
        }
        for line in account.lines()
    ]


def moment_rows(one: Estimate) -> list[Row]:
    """Moment x kind of tensor x bytes: one row for each line of every moment's account."""
    return [
        {
            "moment_ix": index,
            "moment": account.moment,
            "phase": account.phase,
            "place": account.place,
            "bucket_ix": BUCKETS.index(line.bucket),
            "bucket": line.bucket,
            "requested_bytes": line.requested_bytes,
        }
        for index, account in enumerate(one.accounts)
        for line in account.lines()
    ]


def tensor_rows(account: Account) -> list[Row]:
    """Every kind of tensor at the peak with its formula, the largest first."""
    rows = [
        {
            "tensor": tensor.name,
            "bucket": tensor.bucket,
            "formula": tensor.formula(),
            "requested_bytes": tensor.size_bytes(account.sizes, account.ranks),
            "allocation_count": tensor.allocation_count(account.sizes),
        }
        for tensor in account.tensors
    ]
    return sorted((row for row in rows if row["requested_bytes"]), key=lambda row: -row["requested_bytes"])


def symbol_rows(account: Account) -> list[Row]:
    """The symbols in the formulas of an account: what each means, and its number."""
    used = {symbol for tensor in account.tensors for symbol in (*tensor.dims, *tensor.each)}
    return [
        {"symbol": symbol, "value": account.sizes[symbol], "meaning": meaning}
        for symbol, meaning in SYMBOLS.items()
        if symbol in used
    ]


def lever_rows(one: Answer) -> list[Row]:
    """What each lever would do, pulled alone; the most saving first."""
    limit = one.limit_bytes
    return [
        {
            "lever": pulled.lever.name,
            "option": pulled.lever.option,
            "peak_bytes": pulled.peak_bytes,
            "saved_bytes": pulled.saved_bytes,
            "fits": None if limit is None else fit.fits(pulled.peak_bytes, limit),
            "shrinks": pulled.lever.shrinks,
            "cost": pulled.lever.cost,
        }
        for pulled in levers.pull(one.make, one.estimate.run)
    ]


def model_bytes(shape: Shape, run: Run) -> int:
    """Weights, gradients and optimizer state together, on one device: 16 bytes a parameter in fp32 with Adam."""
    tensors = [*static.parameters(shape, run), *static.gradients(shape, run), *static.states(shape, run)]
    return total_bytes(tensors, shape.sizes | trained_sizes(shape, run), run.ranks)


def block_saved_bytes(shape: Shape, run: Run) -> int:
    """What one block saves for the backward."""
    return total_bytes(activations.block_saved(shape, run), shape.sizes | trained_sizes(shape, run))


def assumptions(one: Answer) -> list[str]:
    """What the estimate rests on, in sentences."""
    return list(_assumptions(one.estimate.shape, one.estimate.run, is_generation=one.is_generation))


def _assumptions(shape: Shape, run: Run, *, is_generation: bool) -> Iterator[str]:
    yield (
        "bytes that tensors ask for; the allocator rounds up and keeps more,"
        " reserved bytes were 1.01 to 1.26 times these in the recordings"
    )
    yield "the CUDA context, NCCL's buffers and the driver are outside of the allocator and come on top"
    written = "capture/gpt2.py with fused norms" if run.code == "plain" else "transformers' models"
    yield f"the model is written as {written}; cuBLAS workspaces of {format_mib(run.workspace_bytes)} MiB"
    if shape.note:
        yield shape.note
    if is_generation:
        yield "the cache holds exactly the tokens of the sequence, and copies of keys and values"
        if shape.has_fused_qkv:
            sizes = shape.sizes | trained_sizes(shape, run)
            pinned = format_mib(pinned_cache(run).size_bytes(sizes))
            yield f"a cache of views of the fused projection would pin all of it: {pinned} MiB"
        return
    yield "the second step or a later one, after zero_grad(set_to_none=True)"
    if run.loss == "whole":
        yield {
            "dropped": "the script keeps the loss only, not the logits",
            "backward": "the script keeps the logits until the backward is over",
            "step": "the script keeps the logits over the optimizer's step into the next forward",
        }[run.logits]
    if run.precision.master_bytes:
        yield "the step updates the master copy, and casts gradients tensor by tensor"
    if run.accumulate > 1:
        yield "the second micro-batch or a later one: gradients of those before it are there"
    if run.is_adapted:
        yield "the first block counts like the others, though nothing before its first adapter is saved"
    if run.stage:
        yield "shares are equal; gathered: the block that runs and the next one"
    unconfirmed = list(_unconfirmed(run))
    if unconfirmed:
        yield f"by formula, not held against a recording: {', '.join(unconfirmed)}"


def _unconfirmed(run: Run) -> Iterator[str]:
    if run.precision.basis != "recorded":
        yield run.precision.name
    if run.optimizer.basis != "recorded":
        yield run.optimizer.name
    if run.step != "foreach":
        yield f"{run.step} step"
    if run.loss == "fused":
        yield "fused loss"
    if run.is_adapted:
        yield "adapters"
    if run.stage:
        yield f"ZeRO {run.stage}"
    if run.offloads_state:
        yield "offloading"
