# SPDX-License-Identifier: Apache-2.0
"""Healthy: products in float32 that go through the tensor cores as TF32."""

import torch
from torch.nn import functional as F
from torchside import Form, main


def build(_form, ctx):
    width = ctx.size(4096, 16)
    weights = [torch.randn(width, width, device=ctx.device) / width**0.5 for _ in range(6)]
    x = torch.randn(ctx.size(4096, 8), width, device=ctx.device)

    @torch.no_grad()
    def step(_i):
        out = x
        for weight in weights:
            out = F.linear(out, weight)
        return out.mean()

    return Form(step, begin=lambda: torch.set_float32_matmul_precision("high"))


if __name__ == "__main__":
    main(build, steps=150, forms=("slow",))
