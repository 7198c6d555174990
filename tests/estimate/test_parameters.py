"""Parameters by formula: published counts, and the shapes that torch listed beside a recording."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.estimates import CASES
from tests.conftest import SHARED, facts_of
from tracekit.estimate.rows import presets
from tracekit.estimate.shape import dims

PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-8b": 8_190_735_360,
}
"""What each model's publisher counts."""


def test_every_preset_has_the_published_number_of_parameters() -> None:
    assert {name: shape.sizes["P"] for name, shape in presets().items()} == PUBLISHED


@pytest.mark.parametrize("name", ["gpt2_b8_ws8", "small_nocontext", "small_long"])
def test_the_shapes_are_those_that_torch_listed(name: str) -> None:
    if not SHARED.is_dir():
        pytest.skip("the shared recordings are not beside the checkout")
    shape = CASES[name].shape
    tensors = facts_of(SHARED / "captures" / f"{name}.pickle.xz")["tensors"]
    # one address, one parameter: the tied matrix is listed under both of its names
    listed = {address: sides for role, _, address, _, sides, _ in tensors if role == "parameter"}
    made = [
        tuple(sorted(dims(weight, shape.sizes)))
        for weight in shape.weights
        for _ in range(shape.layers if weight.in_block else 1)
    ]
    assert Counter(made) == Counter(tuple(sorted(sides)) for sides in listed.values())
    assert len(made) == len(listed)


def test_a_tied_matrix_counts_once() -> None:
    sizes = presets()["gpt2"].sizes
    untied = sizes["P"] + sizes["V"] * sizes["C"]
    assert untied == 163_037_184
    assert round(100 * untied / sizes["P"] - 100, 1) == 31.0  # the seed says 30 %


def test_a_block_of_gpt2_and_what_is_around_it() -> None:
    sizes = presets()["gpt2"].sizes
    width = sizes["C"]
    assert sizes["P_block"] == 12 * width**2 + 13 * width == 7_087_872
    assert sizes["P_root"] == (sizes["V"] + sizes["X"] + 2) * width
    assert sizes["P"] == sizes["P_root"] + 12 * sizes["P_block"]
