# SPDX-License-Identifier: Apache-2.0
"""16 ms of plain Python between steps, twice what the GPU needs. Fixed: that work is not in the loop (done beforehand)."""

import time

import torch
from torchside import Heavy, main


def bookkeeping(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # SITE
        sum(range(100))  # SITE


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    x = torch.ones(16, device=ctx.device)
    seconds = ctx.seconds(0.016)

    def step(_i):
        if form == "slow":
            bookkeeping(seconds)
        return model.train(x)

    return step


if __name__ == "__main__":
    main(build, steps=120)
