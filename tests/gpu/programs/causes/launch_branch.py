# SPDX-License-Identifier: Apache-2.0
"""Two stacks of light blocks, and between them a branch on a value that the GPU has: all launched
one by one. Fixed: each stack is a CUDA graph. The branch cannot be captured, and its wait stays."""

import torchside
from torchside import Stem


def build(form, ctx):
    below, above = Stem(ctx, 24), Stem(ctx, 24)

    def largest(_i):
        return below.run().abs().amax()

    def rest(_i):
        return above.run().abs().mean()

    if form == "fixed":
        largest, rest = torchside.captured(ctx, largest), torchside.captured(ctx, rest)

    def step(i):
        if largest(i).item() < 0:
            return None
        return rest(i)

    return step


if __name__ == "__main__":
    torchside.main(build, steps={"slow": 80, "fixed": 300})
