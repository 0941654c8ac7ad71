# SPDX-License-Identifier: Apache-2.0
"""Healthy: batches come on a stream of their own, and the compute stream waits for an event that has long been there."""

import torch
from torchside import Heavy, Prefetch, bare, main


def build(form, ctx):
    model = Heavy(ctx, ms=10)
    if form == "bare":
        return bare(ctx, model)
    batches = Prefetch(ctx, [torch.ones(ctx.size(16 << 20, 64), dtype=torch.bfloat16) for _ in range(3)])
    return lambda _i: batches.work(model.train)


if __name__ == "__main__":
    main(build, steps=110, forms=("slow", "bare"))
