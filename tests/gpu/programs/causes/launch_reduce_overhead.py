# SPDX-License-Identifier: Apache-2.0
"""Training 16 light blocks, one kernel after another. Fixed: the model is compiled to CUDA graphs
(`reduce-overhead`); the optimizer is not, and is launched as before."""

import torch
import torchside
from mlp import Block
from torch import nn


def build(form, ctx):
    width = ctx.size(256, 16)
    model = nn.Sequential(*(Block(width) for _ in range(ctx.size(16, 3)))).to(ctx.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    compiles = form == "fixed" and ctx.on_gpu
    called = torch.compile(model, mode="reduce-overhead") if compiles else model
    x = torch.randn(ctx.size(512, 16), width, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = called(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    if compiles:
        for _ in range(4):
            step(0)  # compiles, and records the CUDA graphs
    return step


if __name__ == "__main__":
    torchside.main(build, steps={"slow": 100, "fixed": 200})
