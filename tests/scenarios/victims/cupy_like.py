# SPDX-License-Identifier: Apache-2.0
"""A Python program that launches as CuPy does: cuLaunchKernel by ctypes, which asks dlsym, and no runtime.

usage: cupy_like.py STEPS. Prints "launched N".
"""

import ctypes
import sys
import time

DRIVER = ctypes.CDLL("libcuda.so.1")
KERNELS = 5


def check(result):
    if result != 0:
        sys.exit(f"result {result}")


def main():
    steps, context = int(sys.argv[1]), ctypes.c_void_p()
    check(DRIVER.cuInit(0))
    check(DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(DRIVER.cuCtxSetCurrent(context))
    register = DRIVER.simRegisterKernel
    register.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
    kernels = [ctypes.c_void_p(register(b"cupy_%d" % n, 20_000)) for n in range(KERNELS)]
    launch = DRIVER.cuLaunchKernel  # asked for here
    launch.argtypes = [ctypes.c_void_p] + [ctypes.c_uint] * 7 + [ctypes.c_void_p] * 3
    for step in range(steps):
        for kernel in kernels:
            check(launch(kernel, 1, 1, 1, 32, 1, 1, 0, None, None, None))
        time.sleep(0.0003)
        if step % 8 == 7:
            check(DRIVER.cuCtxSynchronize())
    check(DRIVER.cuCtxSynchronize())
    print(f"launched {steps * KERNELS}")


main()
