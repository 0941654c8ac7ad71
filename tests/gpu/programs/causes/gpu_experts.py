# SPDX-License-Identifier: Apache-2.0
"""Experts one after the other, each too small to fill the GPU. Fixed: all in one batched product."""

import torch
from torchside import main


def build(form, ctx):
    experts, width, rows = ctx.size(32, 4), ctx.size(32768, 16), ctx.size(256, 8)
    weights = torch.randn(experts, width, ctx.size(256, 8), device=ctx.device, dtype=torch.bfloat16)
    x = torch.randn(experts, rows, width, device=ctx.device, dtype=torch.bfloat16)

    @torch.no_grad()
    def step(_i):
        if form == "fixed":
            return torch.bmm(x, weights).float().mean()
        parts = [torch.mm(one, weight) for one, weight in zip(x, weights)]  # SITE
        return torch.stack(parts).float().mean()

    return step


if __name__ == "__main__":
    main(build, steps=200)
