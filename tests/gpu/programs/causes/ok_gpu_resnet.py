# SPDX-License-Identifier: Apache-2.0
"""Looks bad: bottlenecks in bfloat16 whose images are turned over around each convolution, for a fifteenth of the time. Bare: channels_last."""

import torch
from torch import nn
from torch.nn import functional as F

from torchside import main


class Bottleneck(nn.Module):
    def __init__(self, wide, narrow):
        super().__init__()
        sizes = ((wide, narrow, 1), (narrow, narrow, 3), (narrow, wide, 1))
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, k, padding=k // 2, bias=False) for a, b, k in sizes)
        self.norms = nn.ModuleList(nn.BatchNorm2d(b) for _, b, _ in sizes)

    def forward(self, x):
        out = x
        for convolution, norm in zip(self.convolutions, self.norms):
            out = norm(convolution(torch.relu(out)))
        return x + out


def build(form, ctx):
    side, layout = ctx.size(28, 4), torch.channels_last if form == "bare" else torch.contiguous_format
    wide, narrow = ctx.size(512, 8), ctx.size(128, 4)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(wide, 1000 if wide == 512 else 10))
    model = nn.Sequential(*(Bottleneck(wide, narrow) for _ in range(6)), *head).to(ctx.device, torch.bfloat16).to(memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    x = torch.randn(ctx.size(128, 2), wide, side, side, device=ctx.device, dtype=torch.bfloat16).to(memory_format=layout)
    targets = torch.randint(10, (len(x),), device=ctx.device)

    def step(_i):
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), targets)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


if __name__ == "__main__":
    main(build, steps=60, forms=("slow", "bare"))
