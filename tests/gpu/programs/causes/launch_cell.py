# SPDX-License-Identifier: Apache-2.0
"""A recurrent cell trained over 24 steps of time. Fixed: forward and backward are one CUDA graph;
the gradients' norm is read in every step, so that clipping and the optimizer stay outside."""

import torch
import torchside
from torch import nn


def build(form, ctx):
    width = ctx.size(128, 16)
    cell = nn.GRUCell(width, width).to(ctx.device)
    optimizer = torch.optim.AdamW(cell.parameters(), lr=1e-4, foreach=True)
    inputs = torch.randn(ctx.size(24, 3), 64, width, device=ctx.device)

    def work(_i):
        optimizer.zero_grad(set_to_none=True)
        h = torch.zeros_like(inputs[0])
        for x in inputs.unbind():
            h = cell(x, h)
        loss = h.square().mean()
        loss.backward()
        return loss.detach()

    if form == "fixed":
        work = torchside.captured(ctx, work)

    def step(i):
        loss = work(i)
        norm = nn.utils.clip_grad_norm_(cell.parameters(), 1.0)
        if norm.item() < 1e6:
            optimizer.step()
        return loss

    return step


if __name__ == "__main__":
    torchside.main(build, steps={"slow": 60, "fixed": 200})
