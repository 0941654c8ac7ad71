# SPDX-License-Identifier: Apache-2.0
"""Convolutions in bfloat16 whose images lie channel by channel: each is turned over and back. Fixed: channels_last."""

import torch
from torch import nn
from torchside import main


def build(form, ctx):
    channels, side = ctx.size(256, 4), ctx.size(56, 8)
    layout = torch.channels_last if form == "fixed" else torch.contiguous_format
    blocks = [(nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU()) for _ in range(4)]
    model = nn.Sequential(*(layer for block in blocks for layer in block)).to(ctx.device, torch.bfloat16).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(64, 2), channels, side, side, device=ctx.device, dtype=torch.bfloat16).to(memory_format=layout)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).float().square().mean()  # SITE
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=80)
