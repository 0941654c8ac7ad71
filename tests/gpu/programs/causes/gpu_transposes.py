# SPDX-License-Identifier: Apache-2.0
"""Rows that are turned over, and copied so, around each layer. Fixed: the layer takes them as they lie."""

import torch
from torch.nn import functional as F
from torchside import main


def build(form, ctx):
    width, length, rows = ctx.size(2048, 16), ctx.size(1024, 8), ctx.size(16, 2)
    weights = [torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5 for _ in range(6)]
    x = torch.randn(rows, length, width, device=ctx.device, dtype=torch.bfloat16)

    def turned(x, weight):
        columns = x.transpose(1, 2).contiguous()  # SITE
        return torch.relu(weight @ columns).transpose(1, 2).contiguous()  # SITE

    @torch.no_grad()
    def step(_i):
        out = x
        for weight in weights:
            out = torch.relu(F.linear(out, weight)) if form == "fixed" else turned(out, weight)
        return out.float().mean()

    return step


if __name__ == "__main__":
    main(build, steps=120)
