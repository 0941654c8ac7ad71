# SPDX-License-Identifier: Apache-2.0
"""Two ranks, each with half of every layer's weights, which are gathered when the layer is due; its
product is shorter than that. Looks bad, and gathering the next layer's meanwhile (form `fixed`)
wins nothing: the gather begins when the product ends."""

import rankside
import torch
import torch.distributed as dist
from rankside import rows

WIDTH, LAYERS, ROWS = 8192, 16, 768


def build(form, ctx):
    x = rows(ctx, ROWS, WIDTH)
    width = x.shape[1]
    halves = [torch.randn(width // 2, width, device=ctx.device, dtype=x.dtype) * 1e-2 for _ in range(ctx.size(LAYERS, 2))]
    wholes = [torch.empty(width, width, device=ctx.device, dtype=x.dtype) for _ in range(2)]

    def gather(n):
        return dist.all_gather_into_tensor(wholes[n % 2], halves[n], async_op=True)

    @torch.no_grad()
    def step(_i):
        h, coming = x, gather(0)
        for n in range(len(halves)):
            coming.wait()
            if form == "fixed" and n + 1 < len(halves):
                coming = gather(n + 1)
            h = torch.tanh(h @ wholes[n % 2])
            if form == "slow" and n + 1 < len(halves):
                coming = gather(n + 1)
        return h.mean()

    return step


if __name__ == "__main__":
    rankside.main(build, steps=150)
