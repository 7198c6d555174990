"""A small U-Net with group norms that gives back its picture of 128 x 128; fused AdamW."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import torch
from torch import nn
from torch.nn import functional


def block(narrow, wide):
    """Two convolutions, each with its norm."""
    parts = []
    for channels in (narrow, wide):
        parts += [nn.Conv2d(channels, wide, 3, padding=1), nn.GroupNorm(8, wide), nn.SiLU()]
    return nn.Sequential(*parts)


class UNet(nn.Module):
    """Down four levels and up again."""

    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList([block(3, 64), block(64, 128), block(128, 256), block(256, 512)])
        self.up = nn.ModuleList([block(512 + 256, 256), block(256 + 128, 128), block(128 + 64, 64)])
        self.out = nn.Conv2d(64, 3, 1)

    def forward(self, x):
        """A picture for a picture."""
        kept = []
        for number, down in enumerate(self.down):
            x = down(functional.max_pool2d(x, 2) if number else x)
            kept.append(x)
        for up, skipped in zip(self.up, reversed(kept[:-1]), strict=True):
            x = up(torch.cat([functional.interpolate(x, scale_factor=2), skipped], dim=1))
        return self.out(x)


def build(device, batch=8):
    """The model, its optimizer and one step."""
    model = UNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        picture = torch.randn(batch, 3, 128, 128, device=device)
        loss = functional.mse_loss(model(picture), picture)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, optimizer, step
