# SPDX-License-Identifier: Apache-2.0
"""Harmless: `torch.cuda.synchronize()` after each step, where a step is 25 ms of work from a dozen launches."""

import torch
from torchside import Heavy, bare, main


def build(form, ctx):
    model = Heavy(ctx, ms=25)
    if form == "bare":
        return bare(ctx, model)
    x = torch.ones(16, device=ctx.device)

    def step(_i):
        loss = model.train(x)
        if ctx.on_gpu:
            torch.cuda.synchronize()
        return loss

    return step


if __name__ == "__main__":
    main(build, steps=60, forms=("slow", "bare"), block_s=0.25)
