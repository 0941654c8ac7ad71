# SPDX-License-Identifier: Apache-2.0
"""AdamW over 100 small adapters with `foreach=False`: a dozen launches for each. Fixed: `foreach=True`."""

import torch
from torchside import Heavy, main


def build(form, ctx):
    model = Heavy(ctx, ms=5)
    adapters = [torch.nn.Parameter(torch.randn(64, 64, device=ctx.device)) for _ in range(ctx.size(100, 4))]
    for p in adapters:
        p.grad = torch.ones_like(p)
    optimizer = torch.optim.AdamW(adapters, lr=1e-4, foreach=form == "fixed", fused=False)

    def step(_i):
        loss = model.train(adapters[0].detach())
        optimizer.step()  # SITE
        return loss

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 30, "fixed": 90})
