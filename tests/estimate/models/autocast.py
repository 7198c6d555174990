"""GPT-2 small under bf16 autocast with fused attention, and so without masks; the model is capture/gpt2.py."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import torch
from gpt2 import GPT2, Config


def build(device, batch=8, sequence=1_024):
    """The model, its optimizer and one step."""
    warm = torch.randn(64, 64, device=device)
    warm = warm @ warm
    del warm
    model = GPT2(Config(attention="sdpa"))
    for block in model.transformer["h"]:
        del block.attn.mask
    model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    held = {}

    def step():
        held["buffer"] = torch.randint(50_257, (batch, sequence + 1), device=device)
        tokens, targets = held["buffer"][:, :-1], held["buffer"][:, 1:]
        with torch.autocast("cuda", dtype=torch.bfloat16):
            held["logits"], held["loss"] = model(tokens, targets)
        (held["loss"] / 1).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, optimizer, step
