# SPDX-License-Identifier: Apache-2.0
"""Harmless: once the last step is done the model goes to the host, a layer at a time, and is written to a file. It takes as long as all steps together."""

import torch
from torchside import Form, Heavy, main

LAYERS, WIDTH = 32, 5120  # of 52 MB each


def build(_form, ctx):
    model = Heavy(ctx, ms=8)
    width = ctx.size(WIDTH, 16)
    layers = [torch.zeros(width, width, device=ctx.device, dtype=torch.bfloat16) for _ in range(ctx.size(LAYERS, 2))]
    x = torch.ones(16, device=ctx.device)

    def end():
        torch.save([layer.cpu() for layer in layers], "model.pt")

    return Form(lambda i: model.train(x), end=end)


if __name__ == "__main__":
    main(build, steps=120, forms=("slow",))
