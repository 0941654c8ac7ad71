# SPDX-License-Identifier: Apache-2.0
"""A vocabulary of 50,257 words, which no tensor core takes in whole pieces. Fixed: padded to 50,304."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def build(form, ctx):
    words, width, rows = ctx.size(50304 if form == "fixed" else 50257, 31), ctx.size(1024, 16), ctx.size(8192, 8)
    head = nn.Linear(width, words, bias=False).to(ctx.device, torch.bfloat16)
    x = torch.randn(rows, width, device=ctx.device, dtype=torch.bfloat16, requires_grad=True)
    targets = torch.randint(ctx.size(50257, 31), (rows,), device=ctx.device)

    def step(_i):
        head.weight.grad = x.grad = None
        loss = F.cross_entropy(head(x), targets)  # SITE
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=80)
