"""A small GPT whose sequences have another length at every step, as one recording has them; capture/gpt2.py."""
# pyright: basic, reportCallIssue=false, reportMissingImports=false, reportIndexIssue=false

import torch
from gpt2 import GPT2, Config


def build(device, lengths):
    """The model, its optimizer and a step that takes the next of the `lengths`."""
    model = GPT2(Config(vocabulary=20_011, context=1_024, width=512, heads=8, layers=6)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    held, left = {}, iter(lengths)

    def step():
        held["buffer"] = torch.randint(20_011, (3, next(left) + 1), device=device)
        tokens, targets = held["buffer"][:, :-1], held["buffer"][:, 1:]
        loss = model(tokens, targets)[1]
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return model, optimizer, step
