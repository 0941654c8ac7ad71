# SPDX-License-Identifier: Apache-2.0
"""1,000 small tensors, each copied to the GPU alone. Fixed: put together, pinned, copied once."""

import torch
from torchside import Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    parts = [torch.ones(2048) for _ in range(ctx.size(1000, 4))]
    whole = [torch.empty(len(parts), 2048) for _ in range(2)]
    whole = [w.pin_memory() for w in whole] if ctx.on_gpu else whole
    # (what is copied from must stay until it is there)
    gone = [torch.cuda.Event() for _ in whole] if ctx.on_gpu else []

    def step(i):
        if form == "slow":
            return model.train(torch.stack([p.to(ctx.device) for p in parts]))  # SITE
        if gone:
            gone[i % 2].synchronize()
        batch = torch.stack(parts, out=whole[i % 2]).to(ctx.device, non_blocking=True)
        if gone:
            gone[i % 2].record()
        return model.train(batch)

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 60, "fixed": 120})
