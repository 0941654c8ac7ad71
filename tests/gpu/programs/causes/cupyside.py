# SPDX-License-Identifier: Apache-2.0
"""The CuPy side: one heavy product, light kernels in front of it."""

import cupy
import frame
from frame import Form  # noqa: F401  (for the programs)

ROWS_A_MS = 4600  # one product of 8192 x 8192 in half precision


class Cupy(frame.Sizes):
    def __init__(self, _device, tiny):
        super().__init__(tiny)

    def sync(self, _value=None):
        cupy.cuda.Device().synchronize()


class Heavy:
    def __init__(self, ctx, ms):
        width = ctx.size(8192, 32)
        self.weight = cupy.full((width, width), 1e-4, dtype=cupy.float16)
        self.rows = cupy.ones((ctx.size(int(ms * ROWS_A_MS), 16), width), dtype=cupy.float16)
        self.out = cupy.empty_like(self.rows)

    def run(self):
        return cupy.matmul(self.rows, self.weight, out=self.out)


def main(build, **options):
    frame.main(build, Cupy, **options)
