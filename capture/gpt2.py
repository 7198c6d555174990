"""GPT-2 from scratch, the model of the story: every tensor that training has to keep is made by a line you can see.

Nothing but the model is here; torch is all it knows.
Sizes: B sequences, T tokens, C width, H heads, D = C / H, V words.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Config:
    """GPT-2 small, unless told otherwise: 124,439,808 parameters.

    Attributes:
        attention: eager writes out score, mask and softmax; sdpa calls scaled_dot_product_attention.
        checkpoint: keep only each block's input for backward, and compute the block a second time there.
    """

    vocabulary: int = 50_257
    context: int = 1_024
    width: int = 768
    heads: int = 12
    layers: int = 12
    attention: str = "eager"
    checkpoint: bool = False


class Attention(nn.Module):
    """Each token looks at those before it."""

    mask: Tensor

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention = config.attention
        self.c_attn = nn.Linear(config.width, 3 * config.width)  # query, key and value in one: (C, 3C)
        self.c_proj = nn.Linear(config.width, config.width)
        # 4 MiB a block that learn nothing; a buffer, so that they move to the GPU with the model
        self.register_buffer("mask", torch.tril(torch.ones(config.context, config.context)))  # (T, T)

    def forward(self, x: Tensor) -> Tensor:
        """Mix tokens: (B, T, C) in and out."""
        b, t, c = x.shape
        c_x = self.c_attn(x)  # (B, T, 3C)
        q, k, v = c_x.split(c, dim=2)  # three views of c_x, (B, T, C) each
        q = q.view(b, t, self.heads, -1).transpose(1, 2)  # (B, H, T, D)
        k = k.view(b, t, self.heads, -1).transpose(1, 2)  # (B, H, T, D)
        v = v.view(b, t, self.heads, -1).transpose(1, 2)  # (B, H, T, D)
        if self.attention == "sdpa":
            y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)  # (B, H, T, D), and no (T, T) at all
        else:
            score = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))  # (B, H, T, T)
            score_before = score.masked_fill(self.mask[:t, :t] == 0, float("-inf"))  # (B, H, T, T), and (T, T) of bool
            y = functional.softmax(score_before, dim=-1) @ v  # (B, H, T, T), saved for backward; then (B, H, T, D)
        return self.c_proj(y.transpose(1, 2).contiguous().view(b, t, c))  # (B, T, C)


class MLP(nn.Module):
    """Each token on its own, four times as wide."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.c_fc = nn.Linear(config.width, 4 * config.width)
        self.gelu = nn.GELU()
        self.c_proj = nn.Linear(4 * config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Think about each token: (B, T, C) in and out."""
        return self.c_proj(self.gelu(self.c_fc(x)))  # (B, T, 4C) before and after GELU, then (B, T, C)


class Block(nn.Module):
    """One layer: attention, then the MLP, each added to what came in."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.width)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(config.width)
        self.mlp = MLP(config)

    def forward(self, x: Tensor) -> Tensor:
        """One layer: (B, T, C) in and out."""
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """Tokens in, a score for every word of the vocabulary out, and the loss where the right words are given."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        wte = nn.Embedding(config.vocabulary, config.width)
        self.transformer = nn.ModuleDict(
            {
                "wte": wte,
                "wpe": nn.Embedding(config.context, config.width),
                "h": nn.ModuleList([Block(config) for _ in range(config.layers)]),
                "ln_f": nn.LayerNorm(config.width),
            }
        )
        self.lm_head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.lm_head.weight = wte.weight  # tied: one piece of memory, counted once
        # only now are there layers to initialise
        self.apply(self._initialise)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):  # what is added to the stream, 2 x layers times, must not blow it up
                nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * config.layers))

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Scores (B, T, V) for tokens (B, T), and the mean loss () against targets (B, T)."""
        t = tokens.size(1)
        word = self.transformer["wte"](tokens)  # (B, T) -> (B, T, C)
        place = self.transformer["wpe"](torch.arange(t, device=tokens.device))  # (T, C)
        x = word + place  # (B, T, C)
        for block in self.transformer["h"]:  # pyright: ignore[reportGeneralTypeIssues]
            x = checkpoint(block, x, use_reentrant=False) if self.config.checkpoint else block(x)  # (B, T, C)
        logits = self.lm_head(self.transformer["ln_f"](x))  # (B, T, V): the largest tensor of all
        if targets is None:
            return logits, None
        return logits, functional.cross_entropy(logits.view(-1, logits.size(-1)), targets.reshape(-1))  # ()

    def parameter_count(self) -> int:
        """How many numbers are learned; tied ones count once."""
        return sum(parameter.numel() for parameter in self.parameters())

    @staticmethod
    def _initialise(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)


if __name__ == "__main__":
    model = GPT2(Config())
    print(f"{model.parameter_count():,} parameters, {model.parameter_count() * 4 / 2**20:,.1f} MiB in fp32")
    print(f"tied: {model.lm_head.weight.data_ptr() == model.get_parameter('transformer.wte.weight').data_ptr()}")
