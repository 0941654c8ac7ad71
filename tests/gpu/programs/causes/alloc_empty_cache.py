# SPDX-License-Identifier: Apache-2.0
"""`torch.cuda.empty_cache()` in every step of a feature extractor: its memory is given back and fetched anew each time.
Fixed: the cache is left alone."""

import torch
from torchside import main


def build(form, ctx):
    width = ctx.size(1024, 16)
    layers = [torch.randn(width, width, device=ctx.device, dtype=torch.bfloat16) / width**0.5 for _ in range(16)]
    rows = torch.randn(ctx.size(32768, 16), width, device=ctx.device, dtype=torch.bfloat16)

    def features():
        x, kept = rows, []
        for w in layers:
            x = torch.relu(x @ w)
            kept.append(x)
        return torch.stack([k[0, 0] for k in kept]).sum()

    def step(_i):
        total = features()
        if form == "slow" and ctx.on_gpu:
            torch.cuda.empty_cache()  # SITE
        return total

    return step


if __name__ == "__main__":
    main(build, steps={"slow": 80, "fixed": 150})
