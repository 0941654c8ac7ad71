# SPDX-License-Identifier: Apache-2.0
"""Harmless: the weights are read from a file and go to the GPU before the first step. It takes as long as many steps."""

import torch
from torchside import Form, Heavy, main

LAYERS, WIDTH = 32, 5120  # of 52 MB each
FILE = "weights.pt"


def build(_form, ctx):
    model = Heavy(ctx, ms=8)
    width, count = ctx.size(WIDTH, 16), ctx.size(LAYERS, 2)
    torch.save([torch.zeros(width, width, dtype=torch.bfloat16) for _ in range(count)], FILE)
    x, loaded = torch.ones(16, device=ctx.device), []

    def begin():
        loaded[:] = [layer.to(ctx.device) for layer in torch.load(FILE)]

    return Form(lambda i: model.train(x), begin=begin)


if __name__ == "__main__":
    main(build, steps=120, forms=("slow",))
