# SPDX-License-Identifier: Apache-2.0
"""The same GPT with `.item()` after every block, forward and backward (a monitor of activations and gradients). Truth: SYNC.

The fixed form keeps the statistics on the GPU. The batch is smaller than gpt_bound's, so that the blocks are light and
the waits lay bare how long the host takes to launch them; head and loss still keep the GPU the bottleneck without them.
On the H200: with gpt_bound's vocabulary the step was launch-bound (23 ms to issue, 15 ms of kernels) and the `.item()`
cost next to nothing; with a head as heavy as the launches, `.item()` in the forward pass alone was worth 11.5 %.
"""

from gpt import training_step
from training import main

BATCH, LENGTH, VOCABULARY = 5, 512, 1048576


def build(form, ctx):
    seen = []

    def note(largest):
        seen.append(largest.item() if form == "slow" else largest)
        del seen[:-96]

    def watch(x):
        note(x.detach().abs().amax())
        if x.requires_grad:
            x.register_hook(lambda gradient: note(gradient.abs().amax()))

    return training_step(ctx, batch=BATCH, length=LENGTH, vocabulary=VOCABULARY, watch=watch)


if __name__ == "__main__":
    main("gpt_item", build, steps={"slow": 220, "fixed": 260})
