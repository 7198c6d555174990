"""One small model that comes to the device in different ways, with different things kept beside it."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false

import copy

import torch
from torch import nn
from torch.nn import functional

WIDTH = 96


class Model(nn.Module):
    """Torch's modules, parameters that its own constructor fills, a buffer, and layers copied from one."""

    def __init__(self, device=None):
        super().__init__()
        self.read = nn.Linear(32, WIDTH, device=device)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH, device=device))
        self.register_buffer("scale", torch.ones(7, WIDTH, device=device))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 200, dropout=0.0, batch_first=True, device=device)
        self.layers = nn.ModuleList(copy.deepcopy(layer) for _ in range(2))
        self.write = nn.Linear(WIDTH, 1000, device=device)

    def forward(self, x):
        """Logits of 1,000 classes."""
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), self.read(x)], 1)
        for layer in self.layers:
            x = layer(x)
        return self.write(x[:, 0] * self.scale[0])


def build(device, how):
    """The model, its optimizer and one step; the step's `kept` is what is kept beside them."""
    if how == "made there":
        model = Model(device)
    elif how == "assigned":
        model = Model()
        model.load_state_dict({name: value.to(device) for name, value in model.state_dict().items()}, assign=True)
    else:
        model = Model().to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    kept = {"averaged": copy.deepcopy, "swa": torch.optim.swa_utils.AveragedModel}.get(how, lambda _: None)(model)
    velocity = [torch.zeros_like(one) for one in model.parameters()] if how == "by hand" else None

    def step():
        optimizer.zero_grad()
        x, y = torch.randn(4, 6, 32).to(device), torch.randint(1000, (4,)).to(device)
        functional.cross_entropy(model(x), y).backward()
        if velocity is None:
            optimizer.step()
            return
        with torch.no_grad():
            for one, speed in zip(model.parameters(), velocity, strict=True):
                speed.mul_(0.9).add_(one.grad)
                one.sub_(speed, alpha=0.1)

    step.kept = (velocity, kept)
    return model, optimizer, step
