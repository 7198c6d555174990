"""A tensor as a product of sizes, which is all an estimate is made of: bytes, formula and count come from the one row.

Only arithmetic lives here; which tensors there are is said by the modules beside this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod

Sizes = Mapping[str, int]
"""What each symbol of a formula stands for, in numbers of elements."""

SYMBOLS = {
    "B": "sequences in a batch",
    "T": "tokens in a sequence",
    "C": "width of the model",
    "F": "width of the MLP",
    "V": "words in the vocabulary",
    "H": "attention heads",
    "K": "key and value heads",
    "D": "width of a head",
    "Q": "width of all heads, H·D",
    "G": "width of all key and value heads, K·D",
    "Q+2G": "width of query, key and value together",
    "X": "positions that are learned, or that a mask is registered for",
    "L": "blocks",
    "R": "rank of the adapters",
    "M": "rows of a chunk of the loss",
    "W": "bytes of a library's workspace",
    "P": "parameters, tied ones once",
    "P_block": "parameters of a block",
    "P_late": "parameters of a block from the projection out of attention on",
    "P_root": "parameters outside of the blocks",
    "P_head": "parameters of the final norm and of an output matrix that is not tied",
    "P_trained": "parameters that are trained",
    "P_matrix": "parameters of a block that are multiplied by",
    "P_largest": "parameters of the largest trained tensor",
    "P_factored": "sums of the rows and columns of every trained matrix, and the vectors",
    "P_quantised": "trained parameters in tensors of 4,096 elements and more",
    "P_small": "trained parameters in smaller tensors",
    "P_scale": "blocks of 256 trained parameters in tensors of 4,096 elements and more",
    "P_hidden": "parameters of the matrices inside of the blocks",
    "P_other": "all other trained parameters",
    "P_largest_hidden": "parameters of the largest matrix inside of a block",
    "N_trained": "trained tensors",
    "before": "blocks before the one that runs",
    "after": "blocks after the one that runs",
}
"""Every symbol that a formula may hold, with its meaning."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One kind of tensor: so many bytes an element, so large, so often.

    Attributes:
        name: what it is, for the person.
        bucket: its line of the ledger.
        element_bytes: bytes of an element.
        dims: symbols whose product is the number of elements.
        each: symbols whose product says how often there is one, such as ("L",).
        tensors: how many allocations one of it is, where several are counted in one row.
        is_shared: whether the ranks divide it among them; each then holds its part, rounded up to a byte.
    """

    name: str
    bucket: str
    element_bytes: int
    dims: tuple[str, ...] = ()
    each: tuple[str, ...] = ()
    tensors: int = 1
    is_shared: bool = False

    def size_bytes(self, sizes: Sizes, ranks: int = 1) -> int:
        """Bytes on one device: element_bytes x the product of all symbols, divided by the ranks where shared."""
        whole = self.element_bytes * prod(sizes[symbol] for symbol in (*self.dims, *self.each))
        return -(-whole // ranks) if self.is_shared else whole

    def allocation_count(self, sizes: Sizes) -> int:
        """How many allocations it is: none where it has no bytes."""
        return self.tensors * prod(sizes[symbol] for symbol in self.each) if self.size_bytes(sizes) else 0

    def formula(self) -> str:
        """Its size in words of the trade, such as `4 · B·H·T² · L`."""
        text = " · ".join([str(self.element_bytes), *filter(None, (_product(self.dims), _product(self.each)))])
        return f"{text} / ranks" if self.is_shared else text

    def times(self, *symbols: str) -> Tensor:
        """The same, as often as the symbols say."""
        return replace(self, each=(*self.each, *symbols))


def total_bytes(tensors: Iterable[Tensor], sizes: Sizes, ranks: int = 1) -> int:
    """Bytes of all of them together."""
    return sum(tensor.size_bytes(sizes, ranks) for tensor in tensors)


def _product(symbols: tuple[str, ...]) -> str:
    powers = {symbol: symbols.count(symbol) for symbol in symbols}
    return "·".join(symbol + {1: "", 2: "²", 3: "³"}[power] for symbol, power in powers.items())
