# SPDX-License-Identifier: Apache-2.0
"""`torch.cuda.empty_cache()` in every step, with batches of changing size: memory is really given back and fetched
anew (cudaFree, cudaMalloc) each time. Truth: ALLOC.

The fixed form leaves the cache alone.
"""

import torch
from training import main
from wide import train_on, wide_model


def build(form, ctx):
    model, width = wide_model(ctx, 1024, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rows = ctx.size(49152, 8)
    data = torch.randn(rows + 8 * ctx.size(2048, 1), width, device=ctx.device, dtype=torch.bfloat16)

    def step(i):
        loss = train_on(model, optimizer, data[: rows + (i * 5 % 8) * ctx.size(2048, 1)])
        if form == "slow" and ctx.on_gpu:
            torch.cuda.empty_cache()
        return loss

    return step


if __name__ == "__main__":
    main("empty_cache", build, steps={"slow": 200, "fixed": 500}, warmup=16)
