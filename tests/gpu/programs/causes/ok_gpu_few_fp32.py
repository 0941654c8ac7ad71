# SPDX-License-Identifier: Apache-2.0
"""Looks bad: one small product in float32 without tensor cores among large ones in bfloat16. Bare: TF32 allowed."""

import torch
from torch.nn import functional as F
from torchside import Form, main


def build(form, ctx):
    width, small = ctx.size(8192, 16), ctx.size(1024, 8)
    weight = torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5
    x = torch.randn(ctx.size(8192, 8), width, device=ctx.device, dtype=torch.bfloat16)
    router = torch.randn(small, small, device=ctx.device)

    @torch.no_grad()
    def step(_i):
        out = F.linear(F.linear(x, weight), weight)
        return out.float().mean() + torch.mm(router, router).mean()

    return Form(step, begin=lambda: torch.set_float32_matmul_precision("high" if form == "bare" else "highest"))


if __name__ == "__main__":
    main(build, steps=120, forms=("slow", "bare"))
