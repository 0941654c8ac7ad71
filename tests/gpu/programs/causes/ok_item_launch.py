# SPDX-License-Identifier: Apache-2.0
"""Harmless `.item()`: in a step that waits for its launches anyway, fetching the loss costs nothing. The cause is LAUNCH.

Without: no `.item()`. Fixed: a CUDA graph."""

import torchside
from mlp import training_step


def build(form, ctx):
    train = training_step(ctx, fused=True, blocks=10)
    if form == "fixed":
        return torchside.captured(ctx, train)
    if form == "without":
        return train
    return lambda i: train(i).item()


if __name__ == "__main__":
    torchside.main(build, steps=60, forms=("slow", "without", "fixed"))
