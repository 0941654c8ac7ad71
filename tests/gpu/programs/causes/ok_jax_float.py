# SPDX-License-Identifier: Apache-2.0
"""Harmless: `float(loss)` after each JAX step, where a step is 16 ms of work from one call. Without: not fetched."""

import jaxside
import jax.numpy as jnp


def build(form, ctx):
    model = jaxside.Heavy(ctx, ms=16)
    x = jnp.zeros((16,), jnp.float32)

    def step(_i):
        loss = model.train(x)
        if form == "slow":
            float(loss)
        return loss

    return step


if __name__ == "__main__":
    jaxside.main(build, steps=80, forms=("slow", "bare"))
