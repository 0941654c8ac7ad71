# SPDX-License-Identifier: Apache-2.0
"""A large pageable batch, and scores as large back, each step. Fixed: both pinned: the batch comes
while the one before is at work; the scores go on their own stream, and are used a step later."""

import torch
from torchside import Heavy, Prefetch, main


def build(form, ctx):
    model = Heavy(ctx, ms=10)
    host = [torch.ones(ctx.size(32 << 20, 64), dtype=torch.bfloat16) for _ in range(3)]
    if form == "slow":
        def step(i):
            batch = host[i % 3].to(ctx.device)  # SITE
            loss = model.train(batch)
            (batch + loss).cpu()  # SITE
            return loss

        return step
    batches = Prefetch(ctx, host)
    back = [torch.empty_like(host[0], pin_memory=ctx.on_gpu) for _ in range(2)]
    side = torch.cuda.Stream() if ctx.on_gpu else None
    there = [torch.cuda.Event() for _ in back] if ctx.on_gpu else []

    def work(batch):
        loss = model.train(batch)
        scores = batch + loss
        i = batches.at
        if side is None:
            back[i % 2].copy_(scores)
            return loss
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            back[i % 2].copy_(scores, non_blocking=True)
            scores.record_stream(side)
            there[i % 2].record()
        there[(i + 1) % 2].synchronize()  # the ones before, which are used now
        return loss

    return lambda _i: batches.work(work)


if __name__ == "__main__":
    main(build, steps={"slow": 60, "fixed": 110})
