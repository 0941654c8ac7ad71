# SPDX-License-Identifier: Apache-2.0
"""Eight batches of 32 rows, each of which reads all weights. Fixed: the same rows at once."""

import torch
from torch.nn import functional as F
from torchside import main


def build(form, ctx):
    width, rows = ctx.size(16384, 16), ctx.size(256, 16)
    weights = [torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5 for _ in range(4)]
    x = torch.randn(rows, width, device=ctx.device, dtype=torch.bfloat16)
    batches = [x] if form == "fixed" else list(x.split(rows // 8))

    @torch.no_grad()
    def step(_i):
        total = 0.0
        for batch in batches:
            for weight in weights:
                batch = F.linear(batch, weight)  # SITE
            total = total + batch.float().mean()
        return total

    return step


if __name__ == "__main__":
    main(build, steps=500)  # (long enough for the counters)
