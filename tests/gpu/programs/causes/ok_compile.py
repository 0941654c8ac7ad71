# SPDX-License-Identifier: Apache-2.0
"""Healthy after a long warm-up: the first step compiles for seconds, the others are large matrix products."""

import torch
from torchside import Heavy, main


def build(_form, ctx):
    model = Heavy(ctx, ms=16)

    def activation(x):
        return torch.nn.functional.gelu(x) * torch.sigmoid(x)

    compiled = torch.compile(activation, backend="inductor" if ctx.on_gpu else "eager")
    x = torch.ones(16, device=ctx.device)

    def step(_i):
        with torch.no_grad():
            scores = torch.nn.functional.linear(model.scaled(x), model.layer.weight)
            return compiled(scores).mean()

    return step


if __name__ == "__main__":
    main(build, steps=150, forms=("slow",))
