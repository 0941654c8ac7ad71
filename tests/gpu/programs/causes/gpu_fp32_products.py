# SPDX-License-Identifier: Apache-2.0
"""Matrix products in float32 on the pipes for it, while the tensor cores idle: PyTorch's default. Fixed: TF32 allowed."""

import torch
from torch import nn
from torchside import Form, main


def build(form, ctx):
    width, rows = ctx.size(4096, 16), ctx.size(2048, 8)
    model = nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(width, width), nn.GELU()))).to(ctx.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(rows, width, device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = model(x).square().mean()  # SITE
        loss.backward()
        optimizer.step()
        return loss.detach()

    return Form(step, begin=lambda: torch.set_float32_matmul_precision("high" if form == "fixed" else "highest"))


if __name__ == "__main__":
    main(build, steps=60)
