# SPDX-License-Identifier: Apache-2.0
"""Generating: light blocks, their scores to the host, and a token drawn there with Python. Fixed:
the blocks are one CUDA graph; the copy, its wait and the drawing stay."""

import random

import torchside
from torchside import Stem


def draw(scores):
    total = 0.0
    for score in scores:
        total += abs(score)
    return random.random() * total


def build(form, ctx):
    layers = Stem(ctx, 20)

    def scores(_i):
        return layers.run()[0]

    if form == "fixed":
        scores = torchside.captured(ctx, scores)

    def step(i):
        layers.input[0, :1].fill_(draw(scores(i).tolist()) % 1)

    return step


if __name__ == "__main__":
    torchside.main(build, steps={"slow": 120, "fixed": 400})
