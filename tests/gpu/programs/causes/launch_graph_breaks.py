# SPDX-License-Identifier: Apache-2.0
"""A compiled model of 30 light blocks, each of which breaks the graph (a call that TorchDynamo cannot trace): 60 pieces, launched one by one.
Fixed: nothing breaks it, and it is one CUDA graph."""

import torch
from torch import nn
from torchside import main


class Block(nn.Module):
    def __init__(self, width, breaks):
        super().__init__()
        self.up, self.down, self.breaks = nn.Linear(width, 2 * width), nn.Linear(2 * width, width), breaks

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        if self.breaks:
            torch._dynamo.graph_break()  # SITE
        return x + self.down(hidden)


def build(form, ctx):
    width = ctx.size(256, 16)
    breaks = form == "slow"
    model = nn.Sequential(*(Block(width, breaks) for _ in range(ctx.size(30, 3)))).to(ctx.device).requires_grad_(False)
    options = {} if breaks else {"mode": "reduce-overhead"}
    compiled = torch.compile(model, **options) if ctx.on_gpu else model
    # (of 128 rows the graph took less than a slow host needed to launch it, recorded)
    x = torch.randn(ctx.size(512, 16), width, device=ctx.device)

    @torch.no_grad()
    def step(_i):
        return compiled(x).square().mean()

    for _ in range(3):
        step(0)  # compiles, and records the CUDA graph
    return step


if __name__ == "__main__":
    main(build, steps={"slow": 400, "fixed": 600})
