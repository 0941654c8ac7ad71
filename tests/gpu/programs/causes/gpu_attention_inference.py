# SPDX-License-Identifier: Apache-2.0
"""The same in a model that answers only, among its other layers, in bfloat16. Fixed: scaled_dot_product_attention."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def attention(q, k, v, bias):
    likely = torch.softmax(q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + bias, dim=-1)  # SITE
    return likely @ v  # SITE


def build(form, ctx):
    width, heads, length, rows = ctx.size(1024, 16), ctx.size(16, 2), ctx.size(2048, 8), ctx.size(8, 1)
    project, out = (nn.Linear(width, n * width).to(ctx.device, torch.bfloat16) for n in (3, 1))
    bias = torch.zeros(length, length, device=ctx.device, dtype=torch.bfloat16)
    x = torch.randn(rows, length, width, device=ctx.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(_i):
        q, k, v = project(x).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias) if form == "fixed" else attention(q, k, v, bias)
        return out(mixed.transpose(1, 2).reshape(rows, length, width)).float().mean()

    return step


if __name__ == "__main__":
    main(build, steps=100)
