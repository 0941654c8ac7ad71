# SPDX-License-Identifier: Apache-2.0
"""Harmless: the loss is fetched and printed, every 25th step."""

import torch
from torchside import Form, Heavy, bare, main

EVERY = 25


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    if form == "bare":
        return Form(bare(ctx, model), period=EVERY)
    x = torch.ones(16, device=ctx.device)

    def step(i):
        loss = model.train(x)
        if i % EVERY == EVERY - 1:
            print(f"step {i} loss {loss.item():.4f}", flush=True)
        return loss

    return Form(step, period=EVERY)


if __name__ == "__main__":
    main(build, steps=5 * EVERY, forms=("slow", "bare"))
