# SPDX-License-Identifier: Apache-2.0
"""Looks bad: ten classes, a multiple of nothing, behind large layers. Bare: sixteen."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def build(form, ctx):
    width, rows = ctx.size(4096, 16), ctx.size(8192, 8)
    body = nn.Linear(width, width).to(ctx.device, torch.bfloat16)
    head = nn.Linear(width, 16 if form == "bare" else 10).to(ctx.device, torch.bfloat16)
    x = torch.randn(rows, width, device=ctx.device, dtype=torch.bfloat16)
    targets = torch.randint(10, (rows,), device=ctx.device)

    def step(_i):
        body.zero_grad(set_to_none=True)
        head.zero_grad(set_to_none=True)
        out = torch.relu(body(torch.relu(body(x))))
        loss = F.cross_entropy(head(out).float(), targets)
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=100, forms=("slow", "bare"))
