# SPDX-License-Identifier: Apache-2.0
"""Attention as two products with a mask and a softmax between them. Fixed: scaled_dot_product_attention."""

import torch
from torch.nn import functional as F
from torchside import main


def attention(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5  # SITE
    scores = scores.masked_fill(mask, float("-inf"))  # SITE
    return torch.softmax(scores, -1) @ v  # SITE


def build(form, ctx):
    length, head = ctx.size(2048, 8), ctx.size(64, 4)
    shape = (ctx.size(8, 1), ctx.size(16, 2), length, head)
    q, k, v = (torch.randn(shape, device=ctx.device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    mask = torch.ones(length, length, device=ctx.device, dtype=torch.bool).triu(1)

    def step(_i):
        q.grad = k.grad = v.grad = None
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True) if form == "fixed" else attention(q, k, v, mask)
        loss = out.float().square().mean()
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=80)
