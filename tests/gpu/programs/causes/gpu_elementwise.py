# SPDX-License-Identifier: Apache-2.0
"""An activation that is written out as eight operations, each of which reads and writes all of it. Fixed: the same as one."""

import torch
from torch.nn import functional as F
from torchside import main


def activation(x):
    cubed = x * x * x  # SITE
    inner = 0.7978845608 * (x + 0.044715 * cubed)  # SITE
    return 0.5 * x * (1 + torch.tanh(inner))  # SITE


def build(form, ctx):
    width = ctx.size(8192, 16)
    weight = torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(_i):
        out = F.linear(x, weight)
        return (F.gelu(out, approximate="tanh") if form == "fixed" else activation(out)).mean()

    return step


if __name__ == "__main__":
    main(build, steps=150)
