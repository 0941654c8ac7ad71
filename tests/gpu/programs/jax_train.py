# SPDX-License-Identifier: Apache-2.0
"""A JAX training loop: ends with a trace too."""

import json
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402


def main():
    key = jax.random.PRNGKey(0)
    weights = [jax.random.normal(jax.random.fold_in(key, i), (1024, 1024)) * 0.03 for i in range(6)]
    x = jax.random.normal(key, (1024, 1024))

    def loss(w):
        y = x
        for one in w:
            y = jnp.tanh(y @ one)
        return jnp.mean(y * y)

    @jax.jit
    def step(w):
        value, slope = jax.value_and_grad(loss)(w)
        return [a - 0.01 * b for a, b in zip(w, slope)], value

    n = 400
    for _ in range(n):
        weights, value = step(weights)
    print(json.dumps({"program": "jax_train", "true_steps": n, "loss": float(value).hex()}), flush=True)


if __name__ == "__main__":
    main()
