# SPDX-License-Identifier: Apache-2.0
"""A batch of 256 samples of 96 KB, each copied to the GPU by itself from pageable memory. Fixed:
they are put together in pinned memory, and copied once."""

import torch
from torchside import Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    samples = [torch.ones(ctx.size(24 << 10, 16)) for _ in range(ctx.size(256, 4))]
    whole = [torch.empty(len(samples), len(samples[0]), pin_memory=ctx.on_gpu) for _ in range(2)]
    gone = [torch.cuda.Event() for _ in whole] if ctx.on_gpu else []

    def step(i):
        if form == "slow":
            return model.train(torch.stack([s.to(ctx.device) for s in samples]))  # SITE
        if gone:
            gone[i % 2].synchronize()
        batch = torch.stack(samples, out=whole[i % 2]).to(ctx.device, non_blocking=True)
        if gone:
            gone[i % 2].record()
        return model.train(batch)

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 60, "fixed": 120})
