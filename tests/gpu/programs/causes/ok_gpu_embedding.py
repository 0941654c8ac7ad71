# SPDX-License-Identifier: Apache-2.0
"""Healthy: rows picked from a large table, bound by the memory."""

import torch
from torch.nn import functional as F
from torchside import main


def build(_form, ctx):
    table = torch.randn(ctx.size(4_000_000, 64), ctx.size(256, 8), device=ctx.device, dtype=torch.bfloat16)
    which = torch.randint(len(table), (ctx.size(4_000_000, 64),), device=ctx.device)

    @torch.no_grad()
    def step(_i):
        return F.embedding(which, table)[0, :1] * 2  # (a step needs more than one kernel to be told)

    return step


if __name__ == "__main__":
    main(build, steps=200, forms=("slow",))
