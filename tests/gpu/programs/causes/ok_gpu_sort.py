# SPDX-License-Identifier: Apache-2.0
"""Healthy: sorts and running sums, of which a framework has one kernel each."""

import torch
from torchside import main


def build(_form, ctx):
    values = torch.randn(ctx.size(1 << 26, 1 << 8), device=ctx.device)

    @torch.no_grad()
    def step(_i):
        ordered, _ = torch.sort(values)
        return torch.cumsum(ordered, 0)[-1]

    return step


if __name__ == "__main__":
    main(build, steps=60, forms=("slow",))
