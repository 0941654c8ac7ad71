# SPDX-License-Identifier: Apache-2.0
"""Every block is computed a second time in the backward pass, though there is memory for all of them. Fixed: none is."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchside import main


def build(form, ctx):
    width, length = ctx.size(2048, 16), ctx.size(1024, 8)
    blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.GELU()) for _ in range(6))
    blocks = blocks.to(ctx.device, torch.bfloat16)
    optimizer = torch.optim.SGD(blocks.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(8, 2) * length, width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        out = x
        for block in blocks:
            out = out + (block(out) if form == "fixed" else checkpoint(block, out, use_reentrant=False))  # SITE
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=60)
