# SPDX-License-Identifier: Apache-2.0
"""A `torch.compile` model of small blocks. Truth: what its own fixed form proves.

The fixed form replays the same compiled code as one CUDA graph. Where that wins, the time was the host's (LAUNCH);
where it does not, the compiled program was bound by the GPU.
"""

import torch
from mlp import Block
from torch import nn
from training import main


def build(form, ctx):
    width = ctx.size(256, 32)
    model = nn.Sequential(*(Block(width) for _ in range(ctx.size(24, 2)))).to(ctx.device)
    for block in model:
        block.compile(backend="inductor" if ctx.on_gpu else "eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=ctx.on_gpu)
    x = torch.randn(256, width, device=ctx.device)
    y = torch.randn(256, width, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return ctx.captured(step) if form == "fixed" else step


if __name__ == "__main__":
    main("compiled", build, steps={"slow": 400, "fixed": 2500})
