# SPDX-License-Identifier: Apache-2.0
"""JAX with 16 ms of plain Python between its steps. Fixed: that work is not in the loop."""

import time

import jaxside
import jax.numpy as jnp


def bookkeeping(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:  # SITE
        sum(range(100))  # SITE


def build(form, ctx):
    model = jaxside.Heavy(ctx, ms=8)
    x = jnp.zeros((16,), jnp.float32)
    seconds = ctx.seconds(0.016)

    def step(_i):
        if form == "slow":
            bookkeeping(seconds)
        return model.train(x)

    return step


if __name__ == "__main__":
    jaxside.main(build, steps=120)
