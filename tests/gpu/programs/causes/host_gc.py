# SPDX-License-Identifier: Apache-2.0
"""`gc.collect()` in every step over a huge graph of Python objects. Fixed: collected never (nothing here is garbage)."""

import gc

import torch
from torchside import Form, Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    x = torch.ones(16, device=ctx.device)
    gc.freeze()  # what the imports left is not the story
    graph = [{"id": n, "next": [n]} for n in range(ctx.size(150_000, 1000))]

    def step(_i):
        if form == "slow":
            gc.collect()  # SITE
        return model.train(x)

    return Form(step, end=lambda: len(graph))


if __name__ == "__main__":
    main(build, steps={"slow": 40, "fixed": 120})
