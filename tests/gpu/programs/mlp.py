# SPDX-License-Identifier: Apache-2.0
"""The 40 tiny MLP blocks of mlp_eager.py and mlp_graph.py: about 1,800 kernels of a few microseconds a step."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def training_step(ctx, *, fused, blocks=40, width=64, batch=64):
    """One training step; `fused`: the optimizer that a graph can hold, else one kernel after another (foreach=False)."""
    blocks = ctx.size(blocks, 3)
    model = nn.Sequential(*(Block(width) for _ in range(blocks))).to(ctx.device)
    if fused:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=ctx.on_gpu)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False, fused=False)
    x = torch.randn(batch, width, device=ctx.device)
    y = torch.randn(batch, width, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
