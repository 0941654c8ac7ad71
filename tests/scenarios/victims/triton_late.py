# SPDX-License-Identifier: Apache-2.0
"""A Python program that has a kernel compiled when it has used the GPU already, as torch.compile does, and trains with it.

usage: triton_late.py LIBRARY early|late STEPS [quiet]: the launcher (libtriton_launcher.c); early: loaded before the GPU is used, as PyTorch's own
Prints "launched N".
"""

import ctypes
import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "victims"))
from train import Device  # noqa: E402


def load(path):
    try:
        importlib.util.module_from_spec(importlib.util.spec_from_file_location("launcher", path))
    except ImportError:
        pass  # it has no PyInit_launcher
    return ctypes.CDLL(path)


def main():
    early, steps = sys.argv[2] == "early", int(sys.argv[3])
    launcher = load(sys.argv[1]) if early else None
    device = Device()
    kernel = device.kernel("triton_poi_fused_0", 5)
    device.launch(kernel)
    device.check(device.runtime.cudaDeviceSynchronize())
    launcher = launcher or load(sys.argv[1])
    launcher.triton_train.argtypes, launcher.triton_train.restype = [ctypes.c_void_p, ctypes.c_long], ctypes.c_long
    launched = launcher.triton_train(kernel, steps) + 1  # (how many its other thread makes is the machine's to say)
    print("done" if "quiet" in sys.argv else f"launched {launched}")


main()
