"""The formulas line by line: values traced or counted elsewhere, and what must hold for any model."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.estimate import static
from tracekit.estimate.answer import block_saved_bytes
from tracekit.estimate.ledger import BUCKETS, estimate, estimate_generation
from tracekit.estimate.moments import PARTS, PLACES, Part, Place, place_sizes
from tracekit.estimate.rows import optimizers, precisions, presets
from tracekit.estimate.run import ADAPTED, ATTENTIONS, CODES, LOGITS, LOSSES, STEPS, Run
from tracekit.estimate.shape import Shape
from tracekit.estimate.static import trained_sizes
from tracekit.estimate.tensors import Tensor, total_bytes
from tracekit.units import GIB, MIB

GPT2 = presets()["gpt2"]
EAGER = Run(attention="eager")
FUSED = Run()
TOKENS = 8 * 1024


@pytest.mark.parametrize(
    ("precision", "attention", "expected"),
    [
        ("fp32", "eager", 769.125),
        ("bf16", "eager", 385.125),
        ("fp32", "fused", 384.5),
        ("bf16", "fused", 192.5),
        ("autocast-bf16", "eager", 793.125),
        ("autocast-bf16", "fused", 216.5),
    ],
)
def test_a_block_of_gpt2(precision: str, attention: str, expected: float) -> None:
    run = replace(EAGER, precision=precisions()[precision], attention=attention)
    seeds = 16 if attention == "fused" and precision != "fp32" else 0  # the state of the random numbers
    assert block_saved_bytes(GPT2, run) == expected * MIB + seeds


def test_autocast_keeps_a_copy_of_a_blocks_matrices() -> None:
    run = replace(FUSED, precision=precisions()["autocast-bf16"])
    assert total_bytes(static.casts(run.precision), GPT2.sizes) == 13.5 * MIB


@pytest.mark.parametrize(("adapted", "expected"), [("qkv", 625.375), ("all", 770.125)])
def test_adapters_hardly_save_activations(adapted: str, expected: float) -> None:
    assert block_saved_bytes(GPT2, replace(EAGER, adapted=adapted)) == expected * MIB


@pytest.mark.parametrize("name", ["llama-3.1-8b", "llama-3.1-70b", "llama-2-7b"])
def test_a_block_of_llama(name: str) -> None:
    shape, run = presets()[name], Run(batch=2, sequence=4096, precision=precisions()["bf16"])
    n, c, f, kv = 2 * 4096, shape.width, shape.mlp_width, shape.kv_heads * shape.head_width
    expected = 12 * n * c + 4 * n * kv + 8 * n * f + 4 * 2 * shape.heads * 4096 + 8 * n
    assert block_saved_bytes(shape, run) == expected + 16
    # transformers' norm keeps 8 bytes an element instead of 4
    written_out = replace(run, code="huggingface")
    assert block_saved_bytes(shape, written_out) == expected + 16 + 2 * 4 * n * c


@pytest.mark.parametrize(
    ("precision", "expected"), [("fp32", 16), ("bf16", 8), ("autocast-bf16", 12)], ids=lambda value: str(value)
)
def test_the_vocabularys_bytes_by_token_and_word(precision: str, expected: int) -> None:
    lines = estimate(GPT2, replace(FUSED, precision=precisions()[precision])).accounts[4].by_bucket()
    assert lines["logits_and_loss"] == expected * TOKENS * 50257 + 4


@pytest.mark.parametrize(
    ("optimizer", "state", "foreach"),
    [
        ("sgd", 0, 0),
        ("sgd-momentum", 4, 0),
        ("adam", 8, 4),
        ("adamw", 8, 4),
        ("nadam", 8, 4),
        ("adamw-amsgrad", 12, 4),
        ("rmsprop", 4, 4),
        ("adagrad", 4, 8),
        ("adafactor", 0.0103, 4),
        ("lion", 4, 4),
    ],
)
def test_optimizers_by_parameter(optimizer: str, state: float, foreach: int) -> None:
    run = replace(FUSED, optimizer=optimizers()[optimizer])
    sizes = GPT2.sizes | trained_sizes(GPT2, run)
    kept = total_bytes(static.states(GPT2, run), sizes) / sizes["P"]
    assert kept == pytest.approx(state, abs=0.0001)
    assert total_bytes(static.step_temporaries(run), sizes) == foreach * sizes["P"]


def test_a_step_without_foreach() -> None:
    sizes = GPT2.sizes | trained_sizes(GPT2, FUSED)
    loop, fused = (list(static.step_temporaries(replace(FUSED, step=step))) for step in ("loop", "fused"))
    assert total_bytes(loop, sizes) == 3 * 4 * 50257 * 768
    assert not fused
    muon = replace(FUSED, optimizer=optimizers()["muon"])
    assert total_bytes(static.step_temporaries(muon), GPT2.sizes) == 2.25 * 4 * 768 * 3072
    hidden = 12 * 12 * 768**2
    assert total_bytes(static.states(GPT2, muon), sizes | trained_sizes(GPT2, muon)) == 4 * hidden + 8 * (
        sizes["P"] - hidden
    )


def test_8_bits_leave_small_tensors_alone() -> None:
    run = replace(FUSED, optimizer=optimizers()["adamw-8bit"])
    sizes = trained_sizes(GPT2, run)
    vectors = 12 * (2 * 768 + 2304 + 768 + 2 * 768 + 3072 + 768) + 2 * 768  # no vector has 4,096 elements
    assert (sizes["P_small"], sizes["P_quantised"]) == (vectors, GPT2.sizes["P"] - vectors)
    assert sizes["P_scale"] == sizes["P_quantised"] // 256


def test_a_big_model_peaks_in_the_optimizer_step() -> None:
    shape = presets()["llama-3.1-8b"]
    run = Run(batch=1, sequence=4096, precision=precisions()["bf16"], is_checkpointed=True, loss="fused")
    made = estimate(shape, replace(run, workspace_bytes=32 * MIB))
    assert made.peak.moment == "optimizer"
    assert made.peak_bytes / GIB == pytest.approx(74.8, abs=0.06)  # traced
    assert made.peak_bytes / shape.sizes["P"] == pytest.approx(10.0, abs=0.02)


@pytest.mark.parametrize(("stage", "expected"), [(1, 4 + 12 / 8), (2, 2 + 14 / 8), (3, 16 / 8)])
def test_shares_of_eight_ranks(stage: int, expected: float) -> None:
    run = Run(precision=precisions()["bf16-master"], stage=stage, ranks=8)
    sizes = GPT2.sizes | trained_sizes(GPT2, run)
    tensors = [*static.parameters(GPT2, run), *static.gradients(GPT2, run), *static.states(GPT2, run)]
    assert total_bytes(tensors, sizes, 8) / sizes["P"] == pytest.approx(expected, rel=1e-6)


def test_generating_needs_weights_and_cache() -> None:
    made = estimate_generation(GPT2, FUSED)
    assert [account.moment for account in made.accounts] == ["prefill", "decode"]
    decode = made.accounts[1].by_bucket()
    assert (decode["parameter"], decode["kv_cache"]) == (4 * GPT2.sizes["P"], 576 * MIB)
    assert not {"gradient", "optimizer_state", "activation"} & decode.keys()


runs = st.builds(
    Run,
    batch=st.integers(1, 64),
    sequence=st.sampled_from([1, 17, 128, 1024]),
    precision=st.sampled_from(list(precisions().values())),
    optimizer=st.sampled_from(list(optimizers().values())),
    step=st.sampled_from(STEPS),
    attention=st.sampled_from(ATTENTIONS),
    is_checkpointed=st.booleans(),
    loss=st.sampled_from(LOSSES),
    code=st.sampled_from(CODES),
    logits=st.sampled_from(LOGITS),
    adapted=st.sampled_from(list(ADAPTED)),
    rank=st.integers(1, 64),
    accumulate=st.integers(1, 3),
    stage=st.integers(0, 3),
    ranks=st.integers(1, 9),
    offloads_state=st.booleans(),
    has_dropout=st.booleans(),
)
shapes = st.sampled_from(list(presets().values())).flatmap(
    lambda shape: st.builds(replace, st.just(shape), layers=st.integers(1, 7))
)


@given(shapes, runs)
def test_the_lines_of_every_moment_add_up(shape: Shape, run: Run) -> None:
    made = estimate(shape, run)
    assert len(made.accounts) == 9
    for account in made.accounts:
        lines = account.lines()
        assert sum(line.requested_bytes for line in lines) == account.requested_bytes
        assert {line.bucket for line in lines} <= set(BUCKETS)
        assert all(line.allocation_count > 0 for line in lines)
        assert all(account.sizes[symbol] >= 0 for tensor in account.tensors for symbol in tensor.each)
    assert {account.place for account in made.accounts} <= {place.name for place in PLACES}


@given(shapes, runs)
def test_a_larger_batch_never_needs_less(shape: Shape, run: Run) -> None:
    assert estimate(shape, replace(run, batch=run.batch + 1)).peak_bytes >= estimate(shape, run).peak_bytes


@given(st.integers(1, 200))
def test_every_block_is_before_in_or_after_a_place(layers: int) -> None:
    for place, around in place_sizes(layers).items():
        assert around["before"] + 1 + around["after"] == layers
        assert min(around.values()) >= 0, place


def rows(part: Part, shape: Shape, run: Run, place: Place) -> list[Tensor]:
    return [replace(tensor, tensors=1) for tensor in part.tensors(shape, run, place)]


@given(shapes, runs, runs, st.sampled_from([field.name for field in fields(Run)]))
def test_a_part_depends_on_the_choices_it_names(shape: Shape, run: Run, other: Run, name: str) -> None:
    changed = replace(run, **{name: getattr(other, name)})
    if name == "accumulate" and (run.accumulate > 1) == (changed.accumulate > 1):
        name = ""
    for part in PARTS:
        if name not in part.of_run:
            for place in PLACES:
                assert rows(part, shape, run, place) == rows(part, shape, changed, place), name


@given(shapes, shapes, runs)
def test_a_part_depends_on_what_it_names_of_a_model(shape: Shape, other: Shape, run: Run) -> None:
    for part in PARTS:
        if all(getattr(shape, name) == getattr(other, name) for name in part.of_shape):
            for place in PLACES:
                assert rows(part, shape, run, place) == rows(part, other, run, place)


@given(shapes, runs)
def test_places_of_one_kind_have_the_same_tensors(shape: Shape, run: Run) -> None:
    for part in PARTS:
        made: dict[tuple[str, str | None], list[Tensor]] = {}
        for place in PLACES:
            found = rows(part, shape, run, place)
            assert made.setdefault((place.kind, place.part), found) == found
