# SPDX-License-Identifier: Apache-2.0
"""JAX: a step is three jitted calls with Python work before each, and its loss is read. Fixed: that
work is not in the loop; the loss is read all the same."""

import time

import jaxside
import jax.numpy as jnp

PIECES = 3


def bookkeeping(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # SITE
        sum(range(100))  # SITE


def build(form, ctx):
    models = [jaxside.Heavy(ctx, ms=3) for _ in range(PIECES)]
    x = jnp.zeros((16,), jnp.float32)
    seconds = ctx.seconds(0.005)

    def step(_i):
        for model in models:
            if form == "slow":
                bookkeeping(seconds)
            loss = model.train(x)
        float(loss)
        return loss

    return step


if __name__ == "__main__":
    jaxside.main(build, steps=120)
