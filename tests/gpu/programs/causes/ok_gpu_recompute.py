# SPDX-License-Identifier: Apache-2.0
"""Looks bad: the cheap part of each block is computed again, its products are not. Bare: nothing is."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchside import main


def cheap(x):
    return torch.relu(x)


def build(form, ctx):
    width = ctx.size(4096, 16)
    layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4)).to(ctx.device, torch.bfloat16)
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        layers.zero_grad(set_to_none=True)
        out = x
        for layer in layers:
            out = cheap(layer(out)) if form == "bare" else checkpoint(cheap, layer(out), use_reentrant=False)
        loss = out.float().square().mean()
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=100, forms=("slow", "bare"))
