# SPDX-License-Identifier: Apache-2.0
"""Training that keeps 2 GB of the device in each step; nobody catches the error that ends it, as with PyTorch's OutOfMemoryError.

    LD_LIBRARY_PATH=OUT/13.0 python3 runs_out.py

The line that allocates ends with `# allocates`.
"""

import ctypes
import time


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


cuda, driver = ctypes.CDLL("libcudart.so"), ctypes.CDLL("libcuda.so.1")
driver.simRegisterKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
cuda.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
gemm = driver.simRegisterKernel(b"gemm", 50_000)


class OutOfMemoryError(RuntimeError):
    pass


def allocate(size):
    at = ctypes.c_void_p()
    if cuda.cudaMalloc(ctypes.byref(at), size) != 0:  # allocates
        raise OutOfMemoryError(f"tried to allocate {size >> 30} GiB")
    return at


def train():
    kept = []
    while True:
        for _ in range(8):
            cuda.cudaLaunchKernel(gemm, Dim3(264, 1, 1), Dim3(256, 1, 1), None, 0, None)
        cuda.cudaStreamSynchronize(None)
        time.sleep(0.001)
        kept.append(allocate(2 << 30))


train()
