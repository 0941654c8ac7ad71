# SPDX-License-Identifier: Apache-2.0
"""Blocks of a language model as papers write them: norm, rotation and gate in single operations. Fixed: torch.compile on those three functions."""

import torch
from torch import nn
from torch.nn import functional as F

from torchside import main


def norm(x, weight):
    wide = x.float()  # SITE
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * weight  # SITE


def rotated(x, cosine, sine):
    first, second = x.chunk(2, -1)  # SITE
    return x * cosine + torch.cat((-second, first), -1) * sine  # SITE


def gated(gate, up):
    return F.silu(gate) * up  # SITE


class Block(nn.Module):
    def __init__(self, width, heads, functions):
        super().__init__()
        self.heads, self.functions = heads, functions
        self.scales = nn.ParameterList(nn.Parameter(torch.ones(width)) for _ in range(2))
        self.qkv, self.out = (nn.Linear(width, n * width, bias=False) for n in (3, 1))
        self.gate, self.up = (nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cosine, sine):
        norm, rotated, gated = self.functions
        rows, length, width = x.shape
        q, k, v = self.qkv(norm(x, self.scales[0])).view(rows, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotated(q, cosine, sine), rotated(k, cosine, sine), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, length, width))
        y = norm(x, self.scales[1])
        return x + self.down(gated(self.gate(y), self.up(y)))


def build(form, ctx):
    width, heads, length = ctx.size(2048, 16), ctx.size(16, 2), ctx.size(2048, 8)
    functions = (norm, rotated, gated)
    if form == "fixed":
        functions = tuple(torch.compile(f, dynamic=False) for f in functions)
    blocks = nn.ModuleList(Block(width, heads, functions) for _ in range(3)).to(ctx.device, torch.bfloat16)
    x = torch.randn(ctx.size(4, 1), length, width, device=ctx.device, dtype=torch.bfloat16)
    angles = torch.rand(length, width // heads, device=ctx.device, dtype=torch.bfloat16)

    def step(_i):
        blocks.zero_grad(set_to_none=True)
        out = x
        for block in blocks:
            out = block(out, angles.cos(), angles.sin())
        loss = out.mean()
        loss.backward()
        return loss.detach()

    step(0)
    return step


if __name__ == "__main__":
    main(build, steps=60)
