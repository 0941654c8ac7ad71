# SPDX-License-Identifier: Apache-2.0
"""JAX: the gradients are jitted, the optimizer's arithmetic on each of 40 weights is not; the loss
is read in every step. Fixed: the optimizer is jitted as well; the loss is read all the same."""

import jax
import jaxside
import jax.numpy as jnp

WEIGHTS = 40


def loss_of(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(jnp.square(x))


def updated(weights, slopes, moments):
    moments = [0.9 * m + 0.1 * s for m, s in zip(moments, slopes)]
    return [w - 1e-3 * m / (jnp.abs(m) + 1e-8) for w, m in zip(weights, moments)], moments


def build(form, ctx):
    width = ctx.size(1024, 16)
    weights = [jnp.eye(width) for _ in range(ctx.size(WEIGHTS, 3))]
    state = [weights, [jnp.zeros_like(w) for w in weights]]
    x = jnp.ones((width, width))
    slopes_of = jax.jit(jax.value_and_grad(loss_of))
    update = jax.jit(updated) if form == "fixed" else updated
    jax.block_until_ready(update(state[0], slopes_of(state[0], x)[1], state[1]))  # compiled before the first step

    def step(_i):
        loss, slopes = slopes_of(state[0], x)
        state[:] = update(state[0], slopes, state[1])
        float(loss)
        return loss

    return step


if __name__ == "__main__":
    jaxside.main(build, steps={"slow": 60, "fixed": 150})
