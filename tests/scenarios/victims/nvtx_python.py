# SPDX-License-Identifier: Apache-2.0
"""The Python package `nvtx` around launches on the simulated driver.

usage: nvtx_python.py cuda | no_cuda      Prints "launched N"
"""

import ctypes
import sys
import threading

import nvtx


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Device:
    """Launches of one kernel."""

    def __init__(self):
        self.runtime = ctypes.CDLL("libcudart.so", mode=ctypes.RTLD_GLOBAL)
        register = ctypes.CDLL("libcuda.so.1").simRegisterKernel
        register.restype, register.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_uint64]
        self.kernel = register(b"python_kernel", 20_000)
        self.runtime.cudaLaunchKernel.argtypes = [ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        self.launched = 0

    def launch(self):
        one = Dim3(64, 1, 1)
        assert self.runtime.cudaLaunchKernel(self.kernel, one, one, None, 0, None) == 0
        self.launched += 1

    def wait(self):
        assert self.runtime.cudaDeviceSynchronize() == 0


class Nothing:
    """The same without a GPU."""

    launched = 0

    def launch(self):
        pass

    def wait(self):
        pass


@nvtx.annotate("worker")
def worker(device):
    device.launch() if isinstance(device, Nothing) else None


def main(how):
    with nvtx.annotate("before the first use of the device", domain="training"):
        device = Device() if how == "cuda" else Nothing()
    device.launch()
    with nvtx.annotate("epoch", color="green"):
        for step in range(12):
            nvtx.mark("moment")
            with nvtx.annotate("step", domain="training", category="loop", payload=100 + step):
                with nvtx.annotate("forward", domain="training"):
                    for _ in range(20):
                        nvtx.push_range("layer", domain="training")
                        device.launch()
                        nvtx.pop_range(domain="training")
                device.wait()
    handle = nvtx.start_range("across threads", payload=0.25)
    thread = threading.Thread(target=lambda: (worker(device), nvtx.end_range(handle)))
    thread.start()
    thread.join()
    device.wait()
    print(f"launched {device.launched}")


if __name__ == "__main__":
    main(sys.argv[1])
