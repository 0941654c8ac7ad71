# SPDX-License-Identifier: Apache-2.0
"""Two views go through layers whose weights are kept in float32, and each view casts every weight for itself.
Fixed: each weight is cast once a step, as an optimizer in float32 asks for."""

import torch
from torchside import main


def build(form, ctx):
    # of 4096 the fixed form waits for its launches as soon as the host is slow (H200, a529ca4)
    width = ctx.size(8192, 16)
    weights = [torch.randn(width, width, device=ctx.device) / width**0.5 for _ in range(ctx.size(24, 3))]
    views = [torch.randn(ctx.size(512, 8), width, device=ctx.device, dtype=torch.bfloat16) for _ in range(2)]

    def through(view, layers):
        for w in layers:
            view = torch.relu(view @ (w.to(torch.bfloat16) if w.dtype == torch.float32 else w))
        return view

    @torch.no_grad()
    def step(_i):
        layers = weights if form == "slow" else [w.to(torch.bfloat16) for w in weights]
        return (through(views[0], layers) - through(views[1], layers)).square().mean()

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 200, "fixed": 300})
