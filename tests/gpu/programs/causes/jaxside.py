# SPDX-License-Identifier: Apache-2.0
"""The JAX side: one heavy step, compiled while the program is made ready."""

import os

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# XLA times its kernels in each process and takes other ones in the next: both forms of a program
# must do the same work (without Triton's: untimed it takes 300 ms for what cuBLAS does in 8)
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + " --xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"

import frame  # noqa: E402
import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from frame import Form  # noqa: E402, F401  (for the programs)

ROWS_A_MS = 2300  # as in torchside.py


class Jax(frame.Sizes):
    def __init__(self, _device, tiny):
        super().__init__(tiny)

    def sync(self, value=None):
        jax.block_until_ready(value if value is not None else jnp.zeros(()))


class Heavy:
    """`train(x)` is one step of about `ms` milliseconds; the loss, still on its way. `like`: what is given to it."""

    def __init__(self, ctx, ms, like=None):
        width = ctx.size(8192, 32)
        rows = jnp.ones((ctx.size(int(ms * ROWS_A_MS), 16), width), jnp.bfloat16)
        self.weight = jnp.full((width, width), 1e-4, jnp.bfloat16)
        self.rows = rows

        def loss(w, rows, x):
            return jnp.mean(jnp.square((rows * (1 + jnp.mean(x) * 1e-3).astype(rows.dtype)) @ w).astype(jnp.float32))

        def step(w, rows, x):
            value, slope = jax.value_and_grad(loss)(w, rows, x)
            return w - (1e-5 * slope).astype(w.dtype), value

        like = jnp.zeros((16,), jnp.float32) if like is None else like
        self.step = jax.jit(step, donate_argnums=0).lower(self.weight, rows, like).compile()

    def train(self, x):
        self.weight, value = self.step(self.weight, self.rows, x)
        return value


def main(build, **options):
    frame.main(build, Jax, **options)
