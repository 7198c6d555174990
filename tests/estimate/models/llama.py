"""A small Llama, written as transformers' LlamaForCausalLM runs it: all in bf16, rotary positions, grouped keys, AdamW.

The order of operations is that of the recordings' stacks; the classes here are the tests' own.
"""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Size:
    """How large a model is."""

    words: int = 32_000
    width: int = 1_024
    heads: int = 16
    key_heads: int = 4
    hidden: int = 2_816
    layers: int = 8

    @property
    def head(self):
        """Numbers that a head works with."""
        return self.width // self.heads


SIZES = {
    "small": Size(),
    "8b": Size(words=128_256, width=4_096, heads=32, key_heads=8, hidden=14_336, layers=32),
}


class Norm(nn.Module):
    """Root-mean-square norm, computed in floats."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size.width))

    def forward(self, x):
        """Scale each token."""
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(dtype)


class Rotary(nn.Module):
    """Cosines and sines of each position."""

    def __init__(self, size):
        super().__init__()
        frequencies = 1.0 / 10_000.0 ** (torch.arange(0, size.head, 2).float() / size.head)
        self.register_buffer("inverse", frequencies, persistent=False)
        self.register_buffer("original", frequencies.clone(), persistent=False)

    @torch.no_grad()
    def forward(self, x, positions):
        """(1, T, D) each."""
        inverse = self.inverse[None, :, None].float().expand(positions.shape[0], -1, 1).to(x.device)
        places = positions[:, None, :].float()
        angles = (inverse.float() @ places.float()).transpose(1, 2)
        both = torch.cat((angles, angles), dim=-1)
        cosine = both.cos() * 1.0
        sine = both.sin() * 1.0
        return cosine.to(dtype=x.dtype), sine.to(dtype=x.dtype)


def turned(x):
    """The second half, negated, before the first."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    return torch.cat((-second, first), dim=-1)


def rotated(query, key, cosine, sine):
    """Both, turned by their positions."""
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    return (query * cosine) + (turned(query) * sine), (key * cosine) + (turned(key) * sine)


class Attention(nn.Module):
    """Attention with fewer keys than queries, over a cache that holds this step's keys alone."""

    def __init__(self, size):
        super().__init__()
        self.head = size.head
        self.q = nn.Linear(size.width, size.width, bias=False)
        self.k = nn.Linear(size.width, size.key_heads * size.head, bias=False)
        self.v = nn.Linear(size.width, size.key_heads * size.head, bias=False)
        self.o = nn.Linear(size.width, size.width, bias=False)

    def forward(self, x, places, cache):
        """Mix tokens."""
        shape = (*x.shape[:-1], -1, self.head)
        query = self.q(x).view(shape).transpose(1, 2)
        key = self.k(x).view(shape).transpose(1, 2)
        value = self.v(x).view(shape).transpose(1, 2)
        query, key = rotated(query, key, *places)
        empty = key.new_empty(0)
        key, value = torch.cat([empty, key], dim=-2), torch.cat([empty, value], dim=-2)
        cache.append((key, value))
        y = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).contiguous().reshape(*x.shape[:-1], -1).contiguous())


class MLP(nn.Module):
    """Gated by SiLU."""

    def __init__(self, size):
        super().__init__()
        self.gate = nn.Linear(size.width, size.hidden, bias=False)
        self.up = nn.Linear(size.width, size.hidden, bias=False)
        self.down = nn.Linear(size.hidden, size.width, bias=False)

    def forward(self, x):
        """Think about each token."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self, size):
        super().__init__()
        self.attention = Attention(size)
        self.mlp = MLP(size)
        self.before = Norm(size)
        self.after = Norm(size)

    def forward(self, x, places, cache):
        """One layer."""
        rest = x
        x = self.before(x)
        x = self.attention(x, places, cache)
        x = rest + x
        rest = x
        x = self.after(x)
        x = self.mlp(x)
        return rest + x


class Llama(nn.Module):
    """Tokens in, the loss out."""

    def __init__(self, size):
        super().__init__()
        self.words = nn.Embedding(size.words, size.width)
        self.layers = nn.ModuleList([Layer(size) for _ in range(size.layers)])
        self.norm = Norm(size)
        self.rotary = Rotary(size)
        self.head = nn.Linear(size.width, size.words, bias=False)

    def forward(self, tokens):
        """The mean loss of guessing each next token."""
        cache = []
        x = self.body(tokens, cache)
        logits = self.head(x[:, 0:, :])
        return loss_of(logits, tokens), logits, cache

    def body(self, tokens, cache):
        """What the head is given."""
        words = self.words(tokens)  # held until the function returns
        x = words
        positions = (torch.arange(x.shape[1], device=x.device) + 0).unsqueeze(0)
        places = self.rotary(x, positions)
        for layer in self.layers:
            x = layer(x, places, cache)
        return self.norm(x)


def loss_of(logits, labels):
    """Cross-entropy in floats against the tokens shifted by one, the last of which is padding."""
    logits = logits.float()
    labels = functional.pad(labels, (0, 1), value=-100)
    shifted = labels[..., 1:].contiguous()
    logits = logits.view(-1, logits.shape[-1])
    shifted = shifted.view(-1)
    shifted = shifted.to(logits.device)
    return functional.cross_entropy(logits, shifted, ignore_index=-100, reduction="mean")


def build(device, batch=1, sequence=1_024, size="small"):
    """The model, its optimizer and one step."""
    model = Llama(SIZES[size]).to(torch.bfloat16).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    held = {}

    def step():
        held["tokens"] = torch.randint(SIZES[size].words, (batch, sequence), device=device)
        loss = model(held["tokens"])[0]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step
