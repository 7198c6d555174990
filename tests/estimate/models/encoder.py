"""nn.TransformerEncoder over 10,000 words, six layers of width 512, with dropout; Adam, or SGD with momentum."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import torch
from torch import nn
from torch.nn import functional


def build(device, optimizer="adam", batch=16, sequence=256, words=10_000):
    """The model, its optimizer and one step."""
    layer = nn.TransformerEncoderLayer(512, 8, 2_048, batch_first=True)
    model = nn.Sequential(nn.Embedding(words, 512), nn.TransformerEncoder(layer, 6), nn.Linear(512, words)).to(device)
    if optimizer == "adam":
        chosen = torch.optim.Adam(model.parameters(), lr=1e-3)
    else:
        chosen = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step():
        tokens = torch.randint(words, (batch, sequence), device=device)
        loss = functional.cross_entropy(model(tokens).view(-1, words), tokens.view(-1))
        loss.backward()
        chosen.step()
        chosen.zero_grad()

    return model, chosen, step
