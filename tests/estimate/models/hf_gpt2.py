"""GPT-2 small, written as transformers' GPT2LMHeadModel runs it: fused attention, dropout, tanh-GELU by hand, AdamW.

The order of operations is that of the recording's stacks; the classes here are the tests' own.
"""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import math

import torch
from torch import nn
from torch.nn import functional

WORDS, PLACES, WIDTH, HEADS, LAYERS = 50_257, 1_024, 768, 12, 12
RATE = 0.1


class Product(nn.Module):
    """A linear layer with its weight the other way round."""

    def __init__(self, wide, narrow):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(narrow, wide))
        self.bias = nn.Parameter(torch.zeros(wide))

    def forward(self, x):
        """x W + b."""
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    """Attention by torch's fused call."""

    def __init__(self):
        super().__init__()
        self.both = Product(3 * WIDTH, WIDTH)
        self.out = Product(WIDTH, WIDTH)
        self.drop = nn.Dropout(RATE)

    def forward(self, x):
        """Mix tokens."""
        query, key, value = self.both(x).split(WIDTH, dim=2)
        shape = (*query.shape[:-1], -1, WIDTH // HEADS)
        query, key, value = (one.view(shape).transpose(1, 2) for one in (query, key, value))
        y = functional.scaled_dot_product_attention(query, key, value, dropout_p=RATE, is_causal=True)
        y = y.transpose(1, 2).contiguous()
        y = y.reshape(*y.shape[:-2], -1).contiguous()
        y = self.out(y)
        return self.drop(y)


class Gelu(nn.Module):
    """By hand."""

    def forward(self, x):
        """About x where it is positive."""
        return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class MLP(nn.Module):
    """Four times as wide."""

    def __init__(self):
        super().__init__()
        self.up = Product(4 * WIDTH, WIDTH)
        self.down = Product(WIDTH, 4 * WIDTH)
        self.act = Gelu()
        self.drop = nn.Dropout(RATE)

    def forward(self, x):
        """Think about each token."""
        x = self.up(x)
        x = self.act(x)
        x = self.down(x)
        return self.drop(x)


class Layer(nn.Module):
    """Attention and MLP, each added to what came in."""

    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.after = nn.LayerNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x):
        """One layer."""
        rest = x
        x = self.before(x)
        mixed = self.attention(x)
        x = mixed + rest
        rest = x
        x = self.after(x)
        thought = self.mlp(x)
        return rest + thought


class Body(nn.Module):
    """Everything but the head."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(PLACES, WIDTH)
        self.drop = nn.Dropout(RATE)
        self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens):
        """What the head is given."""
        words = self.words(tokens)
        positions = (torch.arange(words.shape[1], device=words.device) + 0).unsqueeze(0)
        places = self.places(positions)
        x = words + places
        self.are_packed(positions.expand(tokens.shape[0], -1))
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x)
        return self.norm(x)

    @staticmethod
    def are_packed(positions):
        """What transformers asks the positions, the answer to which is no."""
        before = positions[:, :1] - 1
        change = torch.diff(positions, prepend=before, dim=-1)
        number = (change != 1).cumsum(-1)
        (number[:, -1] == 0).all()


class GPT2(nn.Module):
    """Tokens in, the loss out."""

    def __init__(self):
        super().__init__()
        self.body = Body()
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.body.words.weight

    def forward(self, tokens):
        """The mean loss of guessing each next token."""
        x = self.body(tokens)
        logits = self.head(x[:, 0:, :])
        return self.loss_of(logits, tokens), logits

    @staticmethod
    def loss_of(logits, labels):
        """Cross-entropy in floats against the tokens shifted by one, the last of which is padding."""
        logits = logits.float()
        labels = functional.pad(labels, (0, 1), value=-100)
        shifted = labels[..., 1:].contiguous()
        logits = logits.view(-1, WORDS)
        shifted = shifted.view(-1)
        shifted = shifted.to(logits.device)
        return functional.cross_entropy(logits, shifted, ignore_index=-100, reduction="mean")


def build(device, batch=4, sequence=512):
    """The model, its optimizer and one step."""
    model = GPT2().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        tokens = torch.randint(WORDS, (batch, sequence), device=device)
        loss = model(tokens)[0]
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step
