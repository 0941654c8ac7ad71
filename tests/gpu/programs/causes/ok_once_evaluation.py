# SPDX-License-Identifier: Apache-2.0
"""Harmless: one evaluation in the midst of the run, many small batches whose results are fetched one by one."""

import torch
from torchside import Heavy, Stem, main

STEPS, BATCHES = 120, 60


def build(_form, ctx):
    model, stem = Heavy(ctx, ms=8), Stem(ctx, blocks=60)
    x = torch.ones(16, device=ctx.device)

    def evaluate():
        return sum(stem.run().sum().item() for _ in range(ctx.size(BATCHES, 2)))

    def step(i):
        loss = model.train(x)
        if i == STEPS // 2:
            evaluate()
        return loss

    return step


if __name__ == "__main__":
    main(build, steps=STEPS, forms=("slow",))
