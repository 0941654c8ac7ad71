# SPDX-License-Identifier: Apache-2.0
"""Healthy: one operation over large arrays, bound by the memory and by nothing that could be fused."""

import torch
from torchside import main


def build(_form, ctx):
    a, b = (torch.randn(ctx.size(1 << 29, 1 << 8), device=ctx.device) for _ in range(2))
    out = torch.empty_like(a)

    @torch.no_grad()
    def step(_i):
        torch.add(a, b, alpha=3.0, out=out)
        return out[:1] * 2  # (a step needs more than one kernel to be told)

    return step


if __name__ == "__main__":
    main(build, steps=300, forms=("slow",))
