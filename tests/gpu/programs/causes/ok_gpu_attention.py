# SPDX-License-Identifier: Apache-2.0
"""Healthy: a transformer in bfloat16 with fused attention."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def build(_form, ctx):
    width, heads, length, rows = ctx.size(2048, 16), ctx.size(16, 2), ctx.size(1024, 8), ctx.size(16, 2)
    layers = [nn.Linear(width, n * width, bias=False).to(ctx.device, torch.bfloat16) for n in (3, 1)]
    x = torch.randn(rows, length, width, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        for layer in layers:
            layer.weight.grad = None
        q, k, v = layers[0](x).view(rows, length, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(rows, length, width)
        loss = layers[1](mixed).float().square().mean()
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=100, forms=("slow",))
