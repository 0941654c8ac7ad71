# SPDX-License-Identifier: Apache-2.0
"""48 pageable tensors of a megabyte, and as many results back, each step. Fixed: all pinned, copied
without waiting; the results are waited for once, at the end of the step."""

import torch
from torchside import Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    parts = [torch.ones(ctx.size(512 << 10, 16), dtype=torch.bfloat16) for _ in range(ctx.size(48, 3))]
    back = [torch.empty_like(p, pin_memory=ctx.on_gpu) for p in parts]
    if form == "fixed" and ctx.on_gpu:
        parts = [p.pin_memory() for p in parts]

    def step(_i):
        batch = [p.to(ctx.device, non_blocking=form == "fixed") for p in parts]  # SITE
        loss = model.train(batch[0])
        results = [b + loss for b in batch]
        if form == "slow":
            for r in results:
                r.cpu()  # SITE
        else:
            for kept, r in zip(back, results):
                kept.copy_(r, non_blocking=True)
            ctx.sync()
        return loss

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 80, "fixed": 120})
