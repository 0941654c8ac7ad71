# SPDX-License-Identifier: Apache-2.0
"""A norm that is written out, in front of each layer. Fixed: PyTorch's own, as one kernel."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def norm(x, weight):
    wide = x.float()  # SITE
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)  # SITE
    return (wide * scale).to(x.dtype) * weight  # SITE


def build(form, ctx):
    width = ctx.size(4096, 16)
    layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4)).to(ctx.device, torch.bfloat16)
    scale = torch.ones(width, device=ctx.device, dtype=torch.bfloat16)
    x = torch.randn(ctx.size(16384, 8), width, device=ctx.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(_i):
        out = x
        for layer in layers:
            out = out + layer(F.layer_norm(out, (width,), scale) if form == "fixed" else norm(out, scale))
        return out.mean()

    return step


if __name__ == "__main__":
    main(build, steps=100)
