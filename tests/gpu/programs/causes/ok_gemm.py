# SPDX-License-Identifier: Apache-2.0
"""Healthy: large matrix products. Bare: the step as a CUDA graph wins next to nothing."""

import torch
from torchside import Heavy, bare, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    if form == "bare":
        return bare(ctx, model)
    x = torch.ones(16, device=ctx.device)
    return lambda _i: model.train(x)


if __name__ == "__main__":
    main(build, steps=120, forms=("slow", "bare"))
