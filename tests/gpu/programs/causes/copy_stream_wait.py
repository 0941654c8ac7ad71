# SPDX-License-Identifier: Apache-2.0
"""A copy stream that helps nobody: each step copies its own batch there and makes the compute stream wait for it at once.
Fixed: the next step's batch is copied meanwhile."""

import torch
from torchside import Heavy, Prefetch, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    host = [torch.ones(ctx.size(88 << 20, 64), dtype=torch.bfloat16) for _ in range(2)]
    if form == "fixed" or not ctx.on_gpu:
        batches = Prefetch(ctx, host)
        return lambda _i: batches.work(model.train)
    host = [h.pin_memory() for h in host]
    slot = torch.empty_like(host[0], device=ctx.device)
    side = torch.cuda.Stream()

    def step(i):
        here = torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            slot.copy_(host[i % 2], non_blocking=True)  # SITE
        here.wait_stream(side)  # SITE
        return model.train(slot)

    return step


if __name__ == "__main__":
    main(build, steps=110)
