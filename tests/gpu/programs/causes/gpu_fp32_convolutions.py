# SPDX-License-Identifier: Apache-2.0
"""Convolutions in float32 on the pipes for it, while the tensor cores idle. Fixed: TF32 allowed, as it is by default."""

import torch
from torch import nn
from torchside import Form, main


def build(form, ctx):
    channels, side = ctx.size(256, 4), ctx.size(56, 8)
    model = nn.Sequential(*(layer for _ in range(3) for layer in (nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU()))).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(32, 2), channels, side, side, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()  # SITE
        loss.backward()
        optimizer.step()
        return loss.detach()

    def begin():
        torch.backends.cudnn.allow_tf32 = form == "fixed"

    return Form(step, begin=begin)


if __name__ == "__main__":
    main(build, steps=60)
