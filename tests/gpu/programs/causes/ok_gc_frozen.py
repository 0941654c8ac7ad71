# SPDX-License-Identifier: Apache-2.0
"""Harmless: `gc.collect()` in every step, but `gc.freeze()` has put everything old out of its sight."""

import gc

import torch
from torchside import Heavy, bare, main


def build(form, ctx):
    model = Heavy(ctx, ms=10)
    if form == "bare":
        return bare(ctx, model)
    x = torch.ones(16, device=ctx.device)
    gc.freeze()

    def step(_i):
        gc.collect()
        return model.train(x)

    return step


if __name__ == "__main__":
    main(build, steps=110, forms=("slow", "bare"))
