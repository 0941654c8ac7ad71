# SPDX-License-Identifier: Apache-2.0
"""A large batch copied from pageable memory in every step. Truth: COPY.

The fixed form has its batches in pinned memory and copies the next one on a stream of its own while this one trains.
"""

import torch
from training import main
from wide import train_on, wide_model


def build(form, ctx):
    model, width = wide_model(ctx, 4096, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    rows = ctx.size(16384, 8)
    host = [torch.rand(rows, width).to(torch.bfloat16) for _ in range(3)]
    if form == "slow" or not ctx.on_gpu:
        return lambda i: train_on(model, optimizer, host[i % 3].to(ctx.device))

    host = [h.pin_memory() for h in host]
    side = torch.cuda.Stream()
    slots = [torch.empty_like(host[0], device=ctx.device) for _ in range(2)]
    ready = [torch.cuda.Event() for _ in range(2)]
    used = [torch.cuda.Event() for _ in range(2)]

    def prefetch(i):
        with torch.cuda.stream(side):
            side.wait_event(used[i % 2])
            slots[i % 2].copy_(host[i % 3], non_blocking=True)
            ready[i % 2].record(side)

    def step(i):
        if step.fetched != i:
            prefetch(i)
        prefetch(i + 1)
        step.fetched = i + 1
        here = torch.cuda.current_stream()
        here.wait_event(ready[i % 2])
        loss = train_on(model, optimizer, slots[i % 2])
        used[i % 2].record(here)
        return loss

    step.fetched = -1
    return step


if __name__ == "__main__":
    main("pageable_copies", build, steps={"slow": 150, "fixed": 400})
