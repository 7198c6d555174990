"""A model's config.json, as Hugging Face's transformers writes it, read into a shape; a local file, nothing is fetched.

Only the sizes are read here. A family that is not known is read as Llama's where it is a causal language model with all
of Llama's sizes, and the shape says so; everything else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from tracekit.errors import TracekitError
from tracekit.estimate.rows import named, presets
from tracekit.estimate.shape import Shape
from tracekit.snapshot.words import shown

Config = Mapping[str, Any]

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_intermediate_size")


def find_shape(model: str) -> Shape:
    """The model that a person names: a preset, a config.json, or a folder that holds one.

    Raises:
        TracekitError: where there is no such preset, or the file cannot be used.
    """
    path = Path(model)
    if path.is_dir():
        return read_config(path / "config.json")
    if path.suffix == ".json" or path.is_file():
        return read_config(path)
    return named(presets(), model, "model")


def read_config(path: Path) -> Shape:
    """The shape that a config.json describes.

    Args:
        path: a local file.

    Raises:
        TracekitError: where it is not there, not JSON, of an unknown family, or lacks a size.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TracekitError(f"{path} cannot be read: {error.strerror}", "give a config.json, or a preset") from error
    except (ValueError, RecursionError) as error:
        raise TracekitError(f"{path} is not JSON", "give the config.json of a model, or a preset") from error
    if not isinstance(config, dict):
        raise TracekitError(f"{path} holds no JSON object", "give the config.json of a model, or a preset")
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return shape_of(cast(Config, config), name)


def shape_of(config: Config, name: str) -> Shape:
    """The shape that a configuration describes.

    Args:
        config: the object of a config.json.
        name: what to call the model.

    Raises:
        TracekitError: where the family is unknown, a size is missing, or sizes do not go together.
    """
    inner = config.get("text_config")
    if isinstance(inner, dict):  # a model of pictures and text: its language model
        config = cast(Config, {"architectures": config.get("architectures"), **cast(Config, inner)})
    family = str(config.get("model_type", ""))
    if any(config.get(key) for key in _EXPERTS):
        raise TracekitError(f"{shown(name)} has experts, which the closed form does not know", "trace it instead")
    read = FAMILIES.get(family)
    if read is None and not _is_causal(config):
        raise TracekitError(
            f"{shown(name)} is of the family {shown(family)!r}, whose weights are not known here",
            f"known families: {', '.join(FAMILIES)}; or trace it: tracekit estimate script.py:build",
        )
    shape = (read or _llama)(config, shown(name))
    if read is None:
        note = f"the family {shown(family)!r} is not known and was read as Llama's: norms and biases may differ"
        shape = replace(shape, note=note)
    if shape.heads % shape.kv_heads:
        raise TracekitError(
            f"{shape.heads} heads cannot share {shape.kv_heads} key and value heads", "correct the config.json"
        )
    return shape


def _is_causal(config: Config) -> bool:
    """Whether the config says that it is a causal language model, as `XForCausalLM` among its architectures does."""
    named = config.get("architectures")
    return isinstance(named, list) and any(str(one).endswith("ForCausalLM") for one in cast("list[object]", named))


LARGEST = 1 << 40
"""No model has a size like this."""


def _number(config: Config, *keys: str, default: int | None = None) -> int:
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST:
            return value
        if value is not None:
            raise TracekitError(f"{key} is {shown(repr(value))}, not a size", "correct the config.json")
    if default is None:
        raise TracekitError(f"the config has no {keys[0]}", "give the whole config.json of the model")
    return default


def _flag(config: Config, key: str, *, default: bool) -> bool:
    value = config.get(key, default)
    return bool(value) if value is not None else default


def _gpt2(config: Config, name: str) -> Shape:
    width, heads = _number(config, "n_embd"), _number(config, "n_head")
    return Shape(
        name=name,
        layers=_number(config, "n_layer"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_width=_part(width, heads),
        mlp_width=_number(config, "n_inner", default=4 * width),
        vocabulary=_number(config, "vocab_size"),
        positions=_number(config, "n_positions", "n_ctx", default=1024),
        is_tied=_flag(config, "tie_word_embeddings", default=True),
        is_gated=False,
        has_learned_positions=True,
        norm="layer_norm",
        activation=_activation(config, "activation_function", "gelu_new"),
        has_qkv_bias=True,
        has_output_bias=True,
        has_mlp_bias=True,
        has_fused_qkv=True,
        dropout=any(config.get(key) for key in ("resid_pdrop", "embd_pdrop", "attn_pdrop")),
    )


def _llama(config: Config, name: str, *, qkv_bias: bool = False, qk_norm: bool = False) -> Shape:
    width, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    has_bias = _flag(config, "attention_bias", default=False)
    return Shape(
        name=name,
        layers=_number(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=_number(config, "num_key_value_heads", default=heads),
        head_width=_number(config, "head_dim", default=_part(width, heads, is_used=config.get("head_dim") is None)),
        mlp_width=_number(config, "intermediate_size"),
        vocabulary=_number(config, "vocab_size"),
        positions=_number(config, "max_position_embeddings", default=2048),
        is_tied=_flag(config, "tie_word_embeddings", default=False),
        is_gated=True,
        has_learned_positions=False,
        norm="rms_norm",
        activation=_activation(config, "hidden_activation" if "hidden_activation" in config else "hidden_act", "silu"),
        has_qkv_bias=qkv_bias or has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=_flag(config, "mlp_bias", default=False),
        has_qk_norm=qk_norm,
        dropout=bool(config.get("attention_dropout")),
    )


def _phi3(config: Config, name: str) -> Shape:
    return replace(_llama(config, name), has_fused_qkv=True)


def _neox(config: Config, name: str) -> Shape:
    width, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    has_bias = _flag(config, "attention_bias", default=True)
    return Shape(
        name=name,
        layers=_number(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_width=_part(width, heads),
        mlp_width=_number(config, "intermediate_size"),
        vocabulary=_number(config, "vocab_size"),
        positions=_number(config, "max_position_embeddings", default=2048),
        is_tied=_flag(config, "tie_word_embeddings", default=False),
        is_gated=False,
        has_learned_positions=False,
        norm="layer_norm",
        activation=_activation(config, "hidden_act", "gelu"),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=True,
        has_fused_qkv=True,
        dropout=any(config.get(key) for key in ("hidden_dropout", "attention_dropout")),
    )


def _opt(config: Config, name: str) -> Shape:
    width, heads = _number(config, "hidden_size"), _number(config, "num_attention_heads")
    if config.get("word_embed_proj_dim") not in (None, width) or not _flag(
        config, "do_layer_norm_before", default=True
    ):
        raise TracekitError(f"{name} projects its embeddings, which the closed form does not know", "trace it instead")
    has_bias = _flag(config, "enable_bias", default=True)
    return Shape(
        name=name,
        layers=_number(config, "num_hidden_layers"),
        width=width,
        heads=heads,
        kv_heads=heads,
        head_width=_part(width, heads),
        mlp_width=_number(config, "ffn_dim", default=4 * width),
        vocabulary=_number(config, "vocab_size"),
        positions=_number(config, "max_position_embeddings", default=2048),
        position_offset=2,
        is_tied=_flag(config, "tie_word_embeddings", default=True),
        is_gated=False,
        has_learned_positions=True,
        norm="layer_norm",
        activation=_activation(config, "activation_function", "relu"),
        has_qkv_bias=has_bias,
        has_output_bias=has_bias,
        has_mlp_bias=has_bias,
        dropout=any(config.get(key) for key in ("dropout", "attention_dropout")),
    )


def _part(width: int, heads: int, *, is_used: bool = True) -> int:
    if width % heads and is_used:
        raise TracekitError(f"a width of {width} does not divide among {heads} heads", "correct the config.json")
    return width // heads


def _activation(config: Config, key: str, default: str) -> str:
    name = str(config.get(key) or default)
    known = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu_new", "gelu": "gelu", "silu": "silu", "swish": "silu"}
    known |= {"relu": "relu"}
    if name not in known:
        raise TracekitError(
            f"what the activation {shown(name)!r} saves is not known here", f"known: {', '.join(known)}; or trace it"
        )
    return known[name]


FAMILIES: Mapping[str, Callable[[Config, str], Shape]] = {
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "phi3": _phi3,
    "gpt_neox": _neox,
    "opt": _opt,
    "qwen2": lambda config, name: _llama(config, name, qkv_bias=True),
    "qwen3": lambda config, name: _llama(config, name, qk_norm=True),
}
"""The families whose config.json can be read, with what reads each."""
