# SPDX-License-Identifier: Apache-2.0
"""Steps of JAX or CuPy for some seconds, not marked: asked_steps.py jax|cupy [--steps N]. Their launches are bound to nothing: they are asked of the driver.
Prints the steps and what was computed."""

import argparse
import json
import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")


def jax_steps(steps):
    import jax
    import jax.numpy as jnp

    weights = [jnp.full((256, 256), 0.01 + 0.001 * n) for n in range(4)]
    x = jnp.linspace(-1.0, 1.0, 256 * 256).reshape(256, 256)

    def loss(w):
        y = x
        for one in w:
            y = jnp.tanh(y @ one)
        return jnp.mean(y * y)

    @jax.jit
    def step(w):
        value, slope = jax.value_and_grad(loss)(w)
        return [a - 0.001 * b for a, b in zip(w, slope)], value

    for n in range(steps):
        weights, value = step(weights)
        if n % 8 == 7:
            value.block_until_ready()
    return float(value).hex()


def cupy_steps(steps):
    import cupy

    tick = cupy.RawKernel('extern "C" __global__ void cupy_tick(float* x) { x[threadIdx.x] = x[threadIdx.x] * 0.999f + 1.0f; }', "cupy_tick")
    x, y = cupy.zeros(32, dtype=cupy.float32), cupy.ones(32, dtype=cupy.float32)
    for n in range(steps):
        tick((1,), (32,), (x,))
        for _ in range(3):
            y += x
        y *= cupy.float32(0.001)
        if n % 8 == 7:
            cupy.cuda.Device().synchronize()
    return float(y[0]).hex()


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("who", choices=["jax", "cupy"])
    arguments.add_argument("--steps", type=int, default=40000)
    words = arguments.parse_args()
    result = (jax_steps if words.who == "jax" else cupy_steps)(words.steps)
    print(json.dumps({"program": f"{words.who}_steps", "true_steps": words.steps, "result": result}), flush=True)


if __name__ == "__main__":
    main()
