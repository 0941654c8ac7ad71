# SPDX-License-Identifier: Apache-2.0
"""A CuPy loop with a kernel of its own, counted: libcupti is not in such a process until gapprobe brings it."""

import json

import cupy

TICK = cupy.RawKernel('extern "C" __global__ void cupy_tick(float* x) { x[threadIdx.x] += 1.0f; }', "cupy_tick")


def main():
    n = 2000
    x = cupy.zeros(32, dtype=cupy.float32)
    m = cupy.random.rand(512, 512, dtype=cupy.float32)
    for i in range(n):
        TICK((1,), (32,), (x,))
        if i % 10 == 0:
            m = m @ m
            m /= m.max()
    cupy.cuda.Device().synchronize()
    print(json.dumps({"program": "cupy_loop", "kernel": "cupy_tick", "kernels_of_that_name": n, "ran": float(x[0])}), flush=True)


if __name__ == "__main__":
    main()
