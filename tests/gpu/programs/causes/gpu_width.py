# SPDX-License-Identifier: Apache-2.0
"""Layers 4,093 wide, a multiple of nothing. Fixed: 4,096."""

import torch
from torch import nn
from torchside import main


def build(form, ctx):
    width = ctx.size(4096 if form == "fixed" else 4093, 13)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU()))).to(ctx.device, torch.bfloat16)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).float().square().mean()  # SITE
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=80)
