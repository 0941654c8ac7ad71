# SPDX-License-Identifier: Apache-2.0
"""Harmless pageable copies: the next batch comes on a stream of its own while this one is at work; the host is held by the
copy, and comes back in good time."""

import torch
from torchside import Heavy, bare, main


def build(form, ctx):
    model = Heavy(ctx, ms=14)
    host = [torch.ones(ctx.size(12 << 20, 64), dtype=torch.bfloat16) for _ in range(2)]
    if form == "bare" or not ctx.on_gpu:
        return bare(ctx, model)
    slots = [h.to(ctx.device) for h in host]
    side = torch.cuda.Stream()

    def step(i):
        here = torch.cuda.current_stream()
        here.wait_stream(side)
        side.wait_stream(here)  # the slot that is filled next was used by the step before
        loss = model.train(slots[i % 2])
        with torch.cuda.stream(side):
            slots[(i + 1) % 2].copy_(host[i % 2])
        return loss

    return step


if __name__ == "__main__":
    main(build, steps=110, forms=("slow", "bare"))
