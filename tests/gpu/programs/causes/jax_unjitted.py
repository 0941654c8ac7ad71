# SPDX-License-Identifier: Apache-2.0
"""JAX: a moving average of 60 arrays, one by one and outside of `jit`. Fixed: one jitted call."""

import jax
import jaxside
import jax.numpy as jnp

ARRAYS = 60


def averaged(averages, x):
    return [0.99 * a + 0.01 * jnp.tanh(a * x[:1]) for a in averages]


def build(form, ctx):
    model = jaxside.Heavy(ctx, ms=4)
    x = jnp.zeros((16,), jnp.float32)
    update = jax.jit(averaged) if form == "fixed" else averaged
    held = [[jnp.ones((ctx.size(256, 16), 64)) for _ in range(ctx.size(ARRAYS, 3))]]
    jax.block_until_ready(update(held[0], x))  # compiled before the first step

    def step(_i):
        held[0] = update(held[0], x)
        return model.train(held[0][0][0, :16])

    return step


if __name__ == "__main__":
    jaxside.main(build, steps={"slow": 60, "fixed": 150})
