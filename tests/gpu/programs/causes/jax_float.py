# SPDX-License-Identifier: Apache-2.0
"""JAX: `float(loss)` in every step. The next step's light calls are then dispatched while the GPU has nothing to do.

Fixed: the loss is fetched every 100 steps. A step makes no more calls than XLA takes in flight (32): without the wait
the host is a step ahead of the GPU."""

import jax
import jaxside
import jax.numpy as jnp

LIGHT = 24


@jax.jit
def layer(x, weight):
    return jnp.tanh(x @ weight)


@jax.jit
def scores(x):
    return x[0, :16]


def build(form, ctx):
    model = jaxside.Heavy(ctx, ms=2)
    width = ctx.size(256, 16)
    x, weight = jnp.ones((width, width)), jnp.full((width, width), 1 / width)
    scores(layer(x, weight)).block_until_ready()  # compiled before the first step
    seen = []

    def step(i):
        h = x
        for _ in range(ctx.size(LIGHT, 3)):
            h = layer(h, weight)
        loss = model.train(scores(h))
        if form == "slow":
            seen.append(float(loss))  # SITE
            del seen[:-100]
        elif i % 100 == 99:
            print(float(loss))
        return loss

    return step


if __name__ == "__main__":
    jaxside.main(build, steps=200)
