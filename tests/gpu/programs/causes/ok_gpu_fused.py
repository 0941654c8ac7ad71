# SPDX-License-Identifier: Apache-2.0
"""Healthy: an activation and a norm as one kernel each, among large products."""

import torch
from torch.nn import functional as F
from torchside import main


def build(_form, ctx):
    width = ctx.size(8192, 16)
    weight = torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(_i):
        out = F.gelu(F.linear(F.layer_norm(x, (width,)), weight))
        return F.linear(out, weight).float().mean()

    return step


if __name__ == "__main__":
    main(build, steps=100, forms=("slow",))
