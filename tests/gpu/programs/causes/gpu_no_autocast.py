# SPDX-License-Identifier: Apache-2.0
"""A transformer that trains in float32. Fixed: under autocast in bfloat16."""

import torch
from torch import nn
from torchside import main


def build(form, ctx):
    width, length = ctx.size(2048, 16), ctx.size(512, 8)
    layers = [nn.TransformerEncoderLayer(width, ctx.size(16, 2), 4 * width, dropout=0.0, batch_first=True) for _ in range(2)]
    model = nn.Sequential(*layers).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(16, 2), length, width, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(ctx.device.type, torch.bfloat16, enabled=form == "fixed"):
            out = model(x)  # SITE
        loss = out.float().square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=60)
