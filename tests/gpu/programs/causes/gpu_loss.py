# SPDX-License-Identifier: Apache-2.0
"""The loss over a large vocabulary, written out in float32: softmax, logarithm, choice. Fixed: PyTorch's cross entropy."""

import torch
from torch import nn
from torch.nn import functional as F
from torchside import main


def loss_of(logits, targets):
    likely = torch.softmax(logits.float(), -1)  # SITE
    return -torch.log(likely.gather(1, targets[:, None]) + 1e-9).mean()  # SITE


def build(form, ctx):
    width, words, rows = ctx.size(1024, 16), ctx.size(32768, 32), ctx.size(8192, 8)
    head = nn.Linear(width, words, bias=False).to(ctx.device, torch.bfloat16)
    x = torch.randn(rows, width, device=ctx.device, dtype=torch.bfloat16)
    targets = torch.randint(words, (rows,), device=ctx.device)

    def step(_i):
        head.weight.grad = None
        logits = head(x)
        loss = F.cross_entropy(logits, targets) if form == "fixed" else loss_of(logits, targets)
        loss.backward()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=100)
