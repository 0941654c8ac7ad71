# SPDX-License-Identifier: Apache-2.0
"""Two causes: a large pageable copy, and Python work beside it, both in every step. Each fix wins alone."""

import time

import torch
from torchside import Heavy, Prefetch, main


def bookkeeping(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # SITE
        sum(range(100))  # SITE


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    seconds = ctx.seconds(0.016)
    host = [torch.ones(ctx.size(40 << 20, 64), dtype=torch.bfloat16) for _ in range(3)]
    batches = Prefetch(ctx, host) if form in ("pinned", "fixed") else None

    def step(i):
        if batches is not None:
            loss = batches.work(model.train)
        else:
            batch = host[i % 3].to(ctx.device)  # SITE
            loss = model.train(batch)
        if form in ("slow", "pinned"):
            bookkeeping(seconds)
        return loss

    return step


if __name__ == "__main__":
    main(build, steps=90, forms=("slow", "pinned", "no_python", "fixed"))
