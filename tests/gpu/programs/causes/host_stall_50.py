# SPDX-License-Identifier: Apache-2.0
"""Healthy steps, and every 50th has 0.35 s of Python in front of the next. Fixed: no such report."""

import time

import torch
from torchside import Form, Heavy, main

EVERY = 50


def report(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # SITE
        sum(range(100))  # SITE


def build(form, ctx):
    model = Heavy(ctx, ms=4)
    x = torch.ones(16, device=ctx.device)
    seconds = ctx.seconds(0.35)

    def step(i):
        loss = model.train(x)
        if form == "slow" and i % EVERY == EVERY - 1:
            report(seconds)
        return loss

    return Form(step, period=EVERY)


if __name__ == "__main__":
    main(build, steps=5 * EVERY, warmup=0)
