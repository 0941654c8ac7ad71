# SPDX-License-Identifier: Apache-2.0
"""`.item()` after each of 45 light layers, a heavy one behind them. Fixed: the statistics stay on the GPU."""

import torch
from torchside import Heavy, Stem, main


def build(form, ctx):
    stem, head = Stem(ctx, 45), Heavy(ctx, ms=16)

    def step(_i):
        x, seen = stem.input, []
        with torch.no_grad():
            for block in stem.blocks:
                x = block(x)
                largest = x.abs().amax()
                seen.append(largest.item() if form == "slow" else largest)  # SITE
        return head.train(x)

    return step


if __name__ == "__main__":
    main(build, steps=100)
