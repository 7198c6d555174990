"""A config.json of the Hugging Face shape becomes a model, or is refused with a reason."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tracekit.errors import TracekitError
from tracekit.estimate.answer import answer, assumptions
from tracekit.estimate.config import find_shape
from tracekit.estimate.rows import presets
from tracekit.estimate.run import Run

GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
    "activation_function": "gelu_new",
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
    "max_position_embeddings": 131072,
    "vocab_size": 128256,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
}
QWEN2 = LLAMA | {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "num_hidden_layers": 24,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
}
QWEN3 = LLAMA | {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_attention_heads": 16,
    "head_dim": 128,
    "num_hidden_layers": 28,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": True,
}


def written(folder: Path, config: object) -> str:
    path = folder / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("config", "preset"),
    [(GPT2, "gpt2"), (LLAMA, "llama-3.1-8b"), (QWEN2, "qwen2.5-0.5b"), (QWEN3, "qwen3-0.6b")],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_a_config_is_the_preset_of_the_same_model(tmp_path: Path, config: dict[str, Any], preset: str) -> None:
    read, known = find_shape(written(tmp_path, config)), presets()[preset]
    assert read.sizes == known.sizes
    assert read.weights == known.weights
    assert find_shape(str(tmp_path)) == read  # a folder that holds one will do
    assert read.name == tmp_path.name


def test_what_a_config_leaves_out_is_what_transformers_takes(tmp_path: Path) -> None:
    read = find_shape(written(tmp_path, {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}))
    assert read.kv_heads == read.heads == 32
    assert find_shape(written(tmp_path, GPT2 | {"n_inner": None})).mlp_width == 4 * 768


NEOX = {
    "model_type": "gpt_neox",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "vocab_size": 50304,
    "hidden_act": "gelu",
}
OPT = {
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "word_embed_proj_dim": 768,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "max_position_embeddings": 2048,
    "vocab_size": 50272,
    "activation_function": "relu",
}
PHI3 = LLAMA | {
    "model_type": "phi3",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_key_value_heads": 32,
    "vocab_size": 32064,
}


@pytest.mark.parametrize(
    ("config", "published"),
    [(NEOX, 162_322_944), (OPT, 125_239_296), (PHI3, 3_821_079_552)],
    ids=["gpt_neox", "opt", "phi3"],
)
def test_further_families_have_the_published_number_of_parameters(
    tmp_path: Path, config: dict[str, Any], published: int
) -> None:
    shape = find_shape(written(tmp_path, config))
    assert shape.sizes["P"] == published
    assert not shape.note
    assert shape.positions == config.get("max_position_embeddings", 2048)


def test_an_unknown_causal_model_is_read_as_llama_and_says_so(tmp_path: Path) -> None:
    unknown = LLAMA | {"model_type": "newest", "architectures": ["NewestForCausalLM"]}
    shape = find_shape(written(tmp_path, unknown))
    assert shape.sizes == presets()["llama-3.1-8b"].sizes
    assert "'newest' is not known and was read as Llama's" in shape.note
    assert shape.note in assumptions(answer(shape, Run()))
    within = {"model_type": "seeing", "architectures": ["SeeingForCausalLM"], "text_config": LLAMA}
    assert find_shape(written(tmp_path, within)) == replace(shape, note="")


def test_biases_and_dropout_are_read(tmp_path: Path) -> None:
    plain = find_shape(written(tmp_path, LLAMA))
    biased = find_shape(written(tmp_path, LLAMA | {"attention_bias": True, "mlp_bias": True}))
    more = 32 * (4096 + 2 * 1024 + 4096 + 2 * 14336 + 4096)
    assert biased.sizes["P"] - plain.sizes["P"] == more
    assert find_shape(written(tmp_path, GPT2 | {"resid_pdrop": 0.1})).dropout


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ([], "holds no JSON object"),
        ({}, "whose weights are not known"),
        (LLAMA | {"model_type": "bert", "architectures": ["BertForMaskedLM"]}, "'bert', whose weights"),
        (OPT | {"word_embed_proj_dim": 512}, "projects its embeddings"),
        ({"model_type": "bert\x1b[31m"}, "'bert?[31m', whose weights"),
        (LLAMA | {"num_local_experts": 8}, "has experts"),
        (LLAMA | {"hidden_act": "swiglu2"}, "'swiglu2' saves"),
        ({key: value for key, value in LLAMA.items() if key != "vocab_size"}, "has no vocab_size"),
        (LLAMA | {"hidden_size": "big"}, "hidden_size is 'big', not a size"),
        (LLAMA | {"vocab_size": 10**40}, "vocab_size is 10000"),
        (LLAMA | {"hidden_size": -1}, "hidden_size is -1"),
        (LLAMA | {"hidden_size": 4097}, "does not divide among 32 heads"),
        (LLAMA | {"num_key_value_heads": 5}, "32 heads cannot share 5"),
    ],
)
def test_what_cannot_be_used_is_refused(tmp_path: Path, config: object, problem: str) -> None:
    with pytest.raises(TracekitError) as refused:
        find_shape(written(tmp_path, config))
    assert problem in refused.value.problem
    assert refused.value.remedy


@pytest.mark.parametrize("name", ["gpt5", "nowhere/config.json", ""])
def test_an_unknown_model_is_refused_with_a_way_out(name: str) -> None:
    with pytest.raises(TracekitError) as refused:
        find_shape(name)
    assert refused.value.remedy
