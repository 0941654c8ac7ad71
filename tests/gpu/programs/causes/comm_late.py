# SPDX-License-Identifier: Apache-2.0
"""Two ranks, of which the other has twice as many rows as this one, which waits for it in the first
all-reduce of each step. Fixed: both have as many, one and a half times what this one had."""

import rankside
import torch.distributed as dist
from rankside import descend, rows, stack

WIDTH, LAYERS, ROWS = 8192, 4, 2048


def build(form, ctx):
    share = 3 if form == "fixed" else (2, 4)[ctx.rank]
    model, x = stack(ctx, LAYERS, WIDTH), rows(ctx, share * ROWS // 2, WIDTH)

    def step(_i):
        loss = model(x).square().mean()
        loss.backward()
        for p in reversed(list(model.parameters())):
            dist.all_reduce(p.grad)
        descend(model)
        return loss.detach()

    return step


if __name__ == "__main__":
    rankside.main(build, steps=100)
