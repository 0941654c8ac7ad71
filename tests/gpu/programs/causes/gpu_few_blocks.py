# SPDX-License-Identifier: Apache-2.0
"""Running sums of eight long rows, of which PyTorch's kernel gives each to one block. Fixed: row by row, which is spread over the GPU."""

import torch

from torchside import main


def build(form, ctx):
    values = torch.randn(8, ctx.size(1 << 23, 1 << 6), device=ctx.device)

    @torch.no_grad()
    def step(_i):
        if form == "fixed":
            sums = torch.stack([torch.cumsum(row, 0) for row in values])
        else:
            sums = torch.cumsum(values, -1)  # SITE
        return sums[:, -1].mean()

    return step


if __name__ == "__main__":
    main(build, steps=100)
