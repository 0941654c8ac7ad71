# SPDX-License-Identifier: Apache-2.0
"""16 ms of sorting on the CPU between steps, in PyTorch's own code and without Python's lock. Fixed: the rows lie on the GPU."""

import time

import torch
from torchside import Heavy, main


def quantiles(rows, seconds):
    until = time.perf_counter() + seconds
    value = rows[0, 0]
    while time.perf_counter() < until:
        value = rows.sort(dim=1).values[:, 8].mean()  # SITE
    return value


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    torch.set_num_threads(1)
    x = torch.ones(16, device=ctx.device)
    rows = torch.randn(64, ctx.size(16384, 16))  # a few ms a sort on one core
    resident = rows.to(ctx.device)
    seconds = ctx.seconds(0.016)

    def step(_i):
        if form == "slow":
            quantiles(rows, seconds)
            return model.train(x)
        return model.train(x + resident.sort(dim=1).values[:, 8].mean() * 0)

    return step


if __name__ == "__main__":
    main(build, steps=120)
