"""A model as a closed form sees it: its sizes, its weights, and how its code is written.

What a weight costs, and what is saved around it, is for other modules; no file is read here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tracekit.estimate.tensors import Sizes

LINEARS = ("qkv", "output", "up", "down")
"""The four places of a block where a matrix is multiplied by: into attention, out of it, into the MLP, out of it."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One kind of parameter.

    Attributes:
        name: what it is called.
        dims: symbols of its shape.
        linear: the place of a matrix that is multiplied by, one of `LINEARS` or "head"; None for the others.
        in_block: whether each block has one.
    """

    name: str
    dims: tuple[str, ...]
    linear: str | None = None
    in_block: bool = True


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder-only transformer, and what distinguishes one family from another.

    Attributes:
        name: what it is called.
        layers: blocks (L).
        width: of the residual stream (C).
        heads: query heads (H).
        kv_heads: key and value heads (K): H is multi-head, less is grouped-query, 1 is multi-query attention.
        head_width: of one head (D); H·D need not be C.
        mlp_width: inside of the MLP (F).
        vocabulary: words (V).
        positions: the longest sequence (X).
        is_tied: the output matrix is the token embedding: one piece of memory, counted once.
        is_gated: the MLP has a gate beside the up-projection, as in SwiGLU.
        has_learned_positions: positions are a table; rotary otherwise.
        norm: layer_norm (weight and bias, mean and deviation) or rms_norm (weight, deviation).
        activation: gelu, gelu_new, silu or relu.
        position_offset: rows of that table that no token has.
        has_qkv_bias: of the projections into attention.
        has_output_bias: of the projection out of it.
        has_mlp_bias: of the MLP's.
        has_qk_norm: queries and keys are normalised by head.
        has_fused_qkv: one projection makes query, key and value.
        dropout: the code drops elements in training.
        note: what was assumed when the sizes were read, in a sentence.
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_width: int
    mlp_width: int
    vocabulary: int
    positions: int
    is_tied: bool
    is_gated: bool
    has_learned_positions: bool
    norm: str
    activation: str
    has_qkv_bias: bool
    has_output_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool = False
    has_fused_qkv: bool = False
    position_offset: int = 0
    dropout: bool = False
    note: str = ""

    @cached_property
    def sizes(self) -> dict[str, int]:
        """What the symbols of a formula stand for in this model: numbers of elements."""
        own = {
            "C": self.width,
            "F": self.mlp_width,
            "V": self.vocabulary,
            "H": self.heads,
            "K": self.kv_heads,
            "D": self.head_width,
            "Q": self.heads * self.head_width,
            "G": self.kv_heads * self.head_width,
            "Q+2G": (self.heads + 2 * self.kv_heads) * self.head_width,
            "X": self.positions + self.position_offset,
            "L": self.layers,
        }
        block = [weight for weight in self.weights if weight.in_block]
        hidden = [elements(weight, own) for weight in block if weight.linear]
        counted = [(elements(weight, own), weight) for weight in self.weights]
        parameters = sum(size * (self.layers if weight.in_block else 1) for size, weight in counted)
        in_block = sum(elements(weight, own) for weight in block)
        late = [weight.name for weight in block].index("attention output")
        return own | {
            "P": parameters,
            "P_block": in_block,
            "P_root": parameters - self.layers * in_block,
            "P_head": sum(size for size, weight in counted if weight.name.startswith(("final norm", "output"))),
            "P_late": sum(elements(weight, own) for weight in block[late:]),
            "P_matrix": sum(hidden),
            "P_hidden": self.layers * sum(hidden),
            "P_largest_hidden": max(hidden),
        }

    @cached_property
    def weights(self) -> tuple[Weight, ...]:
        """Every kind of parameter, in the order of the forward.

        GPT-2: V·C + X·C + L·(12C² + 13C) + 2C. Llama: (1 or 2)·V·C + L·(C·D·(2H + 2K) + 3C·F + 2C) + C.
        Source: Vaswani 2017, Radford 2019, Touvron 2023; checked against published counts and recorded models.
        """
        return tuple(self._weights())

    def _weights(self) -> Iterator[Weight]:
        yield Weight("token embedding", ("V", "C"), in_block=False)
        if self.has_learned_positions:
            yield Weight("position embedding", ("X", "C"), in_block=False)
        yield from self._norm("norm 1", "C")
        yield from self._attention()
        yield from self._norm("norm 2", "C")
        for name in ("gate", "up") if self.is_gated else ("up",):
            yield from self._linear(name, ("C", "F"), "up", has_bias=self.has_mlp_bias)
        yield from self._linear("down", ("F", "C"), "down", has_bias=self.has_mlp_bias)
        yield from self._norm("final norm", "C", in_block=False)
        if not self.is_tied:
            yield Weight("output", ("V", "C"), "head", in_block=False)

    def _attention(self) -> Iterator[Weight]:
        parts = (("query", "Q"), ("key", "G"), ("value", "G"))
        for name, wide in (("query, key and value", "Q+2G"),) if self.has_fused_qkv else parts:
            yield from self._linear(name, ("C", wide), "qkv", has_bias=self.has_qkv_bias)
        if self.has_qk_norm:
            yield Weight("query norm", ("D",))
            yield Weight("key norm", ("D",))
        yield from self._linear("attention output", ("Q", "C"), "output", has_bias=self.has_output_bias)

    @staticmethod
    def _linear(name: str, sides: tuple[str, str], place: str, *, has_bias: bool) -> Iterator[Weight]:
        yield Weight(name, sides, place)
        if has_bias:
            yield Weight(f"{name} bias", sides[1:])

    def _norm(self, name: str, wide: str, *, in_block: bool = True) -> Iterator[Weight]:
        yield Weight(name, (wide,), in_block=in_block)
        if self.norm == "layer_norm":
            yield Weight(f"{name} bias", (wide,), in_block=in_block)

    def linears(self, place: str) -> list[Weight]:
        """The matrices at one of the four places of a block."""
        return [weight for weight in self.weights if weight.linear == place]


def dims(weight: Weight, sizes: Sizes) -> tuple[int, ...]:
    """The shape of a weight."""
    return tuple(sizes[symbol] for symbol in weight.dims)


def elements(weight: Weight, sizes: Sizes) -> int:
    """How many numbers a weight is."""
    return prod(dims(weight, sizes))
