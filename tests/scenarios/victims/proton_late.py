# SPDX-License-Identifier: Apache-2.0
"""A Python program that trains, then imports a profiler as Triton's Proton and profiles at once, twice, and trains on.

usage: proton_late.py LIBRARY: an extension module that finds CUPTI by dlsym (libproton.c); as a module it fails to import, and stays loaded
Prints the profiler's lines and "launched N"; exit code 1 where a profile was wrong.
"""

import ctypes
import importlib.util
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "victims"))
from train import Device  # noqa: E402

COUNT = 200


def main():
    device, path = Device(), sys.argv[1]
    kernel = device.kernel("step", 10)

    def work():
        for _ in range(COUNT):
            device.launch(kernel)
        device.check(device.runtime.cudaDeviceSynchronize())

    work()
    time.sleep(0.4)  # the first use of the GPU is long ago
    try:
        importlib.util.module_from_spec(importlib.util.spec_from_file_location("libproton", path))
    except ImportError:
        pass  # it has no PyInit_libproton
    profiler = ctypes.CDLL(path)
    callback = ctypes.CFUNCTYPE(None)
    profiler.proton_profile.argtypes = [callback, ctypes.c_long, ctypes.c_int]
    wrong = 0
    for _ in range(2):
        wrong |= profiler.proton_profile(callback(work), COUNT, 0)
        time.sleep(0.9)
        work()
    print(f"launched {5 * COUNT}", flush=True)
    return wrong


sys.exit(main())
