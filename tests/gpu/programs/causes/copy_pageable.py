# SPDX-License-Identifier: Apache-2.0
"""A large batch copied from pageable memory in every step. Fixed: pinned, and fetched while the one before is at work."""

import torch
from torchside import Heavy, Prefetch, main


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    host = [torch.ones(ctx.size(48 << 20, 64), dtype=torch.bfloat16) for _ in range(3)]
    if form == "slow":
        def step(i):
            batch = host[i % 3].to(ctx.device)  # SITE
            return model.train(batch)

        return step
    batches = Prefetch(ctx, host)
    return lambda _i: batches.work(model.train)


if __name__ == "__main__":
    main(build, steps=110)
