# SPDX-License-Identifier: Apache-2.0
"""Indexing with a boolean mask: how many elements there are must be known on the host. Fixed: `torch.where`."""

import torch
from torchside import Heavy, Stem, main


def build(form, ctx):
    stem, head = Stem(ctx, 80), Heavy(ctx, ms=30)

    def step(_i):
        scores = head.infer(stem.run()).float()
        good = scores > 0
        if form == "slow":
            return scores[good].sum()  # SITE
        return torch.where(good, scores, 0.0).sum()

    return step


if __name__ == "__main__":
    main(build, steps=45)
