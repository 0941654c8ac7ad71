# SPDX-License-Identifier: Apache-2.0
"""Statistics of 400 layers, each fetched by itself in every step. Fixed: they are put together on
the GPU, and fetched once; that one is waited for as before."""

import torch
from torchside import Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    layers = torch.randn(ctx.size(400, 4), 256, device=ctx.device)
    seen = []

    def step(_i):
        loss = model.train(layers[0])
        statistics = (layers + loss).unbind()
        if form == "slow":
            seen.append([s.cpu() for s in statistics])  # SITE
        else:
            seen.append(torch.stack(statistics).cpu().unbind())
        del seen[:-2]
        return loss

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 80, "fixed": 120})
