# SPDX-License-Identifier: Apache-2.0
"""CuPy: `float()` of a small result in every step, many light kernels and a heavy product after it.

Fixed: the results stay on the GPU."""

import cupy
from cupyside import Heavy, main

LIGHT = 300


def build(form, ctx):
    heavy = Heavy(ctx, ms=8)
    x = cupy.ones((128, 128), dtype=cupy.float32)
    norms = []

    def step(_i):
        for _ in range(ctx.size(LIGHT, 4)):
            cupy.multiply(x, 0.999, out=x)
        out = heavy.run()
        norms.append(float(out[0, 0]) if form == "slow" else out[0, 0].copy())  # SITE
        del norms[:-100]

    return step


if __name__ == "__main__":
    main(build, steps=60)
