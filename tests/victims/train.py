#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training loop on the simulated CUDA driver: real Python, a real host loop, a simulated GPU.

    LD_LIBRARY_PATH=OUT/13.0 python3 train.py --mode sync --steps 50

Prints one loss a step, so that a test can compare stdout with and without a profiler. What the modes show:

    gpu-bound  the device is always busy; the host runs ahead
    sync       the loss is read back and looked at after every block: the queue drains, and the device waits for the host
    launch     many tiny kernels: the host cannot launch as fast as the device runs
    host       the host sleeps between steps (an input pipeline that is late)
    copy       a large pageable copy before every step
    alloc      memory is allocated and freed after every block; freeing waits for the device
    graph      the step as one CUDA graph
    small      many tiny kernels, launched ahead: busy, but with little in each
"""

import argparse
import ctypes
import math
import os
import signal
import sys
import time

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2
BLOCK_NAMES = ("gemm_qkv", "flash_attention", "gemm_mlp", "layer_norm")


class Dim3(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class Device:
    """The few runtime calls a training step makes."""

    def __init__(self):
        # The unversioned names are links that scripts/sim-build makes, whatever release they stand
        # for.
        self.runtime = ctypes.CDLL("libcudart.so")
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.runtime.cudaLaunchKernel.argtypes = [
            ctypes.c_void_p, Dim3, Dim3, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
        for name in ("cudaStreamSynchronize", "cudaFree"):
            getattr(self.runtime, name).argtypes = [ctypes.c_void_p]
        self.runtime.cudaMalloc.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.runtime.cudaMallocHost.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.runtime.cudaMemcpyAsync.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p]
        self.runtime.cudaGraphLaunch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.runtime.cudaStreamBeginCapture.argtypes = [ctypes.c_void_p, ctypes.c_int]
        self.runtime.cudaStreamEndCapture.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.runtime.cudaGraphInstantiateWithFlags.argtypes = [
            ctypes.c_void_p, ctypes.c_void_p, ctypes.c_ulonglong]
        self.driver.simRegisterKernel.argtypes = [ctypes.c_char_p, ctypes.c_uint64]
        self.grid, self.block = Dim3(264, 1, 1), Dim3(256, 1, 1)
        self.stream = ctypes.c_void_p(0)

    def check(self, result):
        if result != 0:
            raise RuntimeError(f"CUDA error {result}")

    def kernel(self, name, microseconds):
        return self.driver.simRegisterKernel(name.encode(), int(microseconds * 1000))

    def launch(self, kernel):
        self.check(self.runtime.cudaLaunchKernel(kernel, self.grid, self.block, None, 0, self.stream))

    def malloc(self, size, host=False):
        at = ctypes.c_void_p()
        allocate = self.runtime.cudaMallocHost if host else self.runtime.cudaMalloc
        self.check(allocate(ctypes.byref(at), size))
        return at

    def copy(self, to, source, size, kind):
        self.check(self.runtime.cudaMemcpyAsync(to, source, size, kind, self.stream))

    def synchronize(self):
        self.check(self.runtime.cudaStreamSynchronize(self.stream))

    def own_stream(self):
        stream = ctypes.c_void_p()
        self.check(self.runtime.cudaStreamCreateWithFlags(ctypes.byref(stream), 1))
        self.stream = stream

    def capture(self, work):
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.runtime.cudaStreamBeginCapture(self.stream, 0))
        work()
        self.check(self.runtime.cudaStreamEndCapture(self.stream, ctypes.byref(graph)))
        self.check(self.runtime.cudaGraphInstantiateWithFlags(ctypes.byref(executable), graph, 0))
        return lambda: self.check(self.runtime.cudaGraphLaunch(executable, self.stream))


class Model:
    """Blocks of four kernels, forward and backward, and an optimizer kernel."""

    def __init__(self, device, blocks, microseconds):
        self.device, self.blocks = device, blocks
        self.kernels = [device.kernel(name, microseconds) for name in BLOCK_NAMES]
        self.backward = [device.kernel(name + "_backward", 2 * microseconds) for name in BLOCK_NAMES]
        self.optimizer = device.kernel("adamw_step", 4 * microseconds)
        # The loss lives on the device; the "kernels" do not compute, so the host puts it there once
        # a step.
        self.loss_on_device = device.malloc(8)
        self.pinned = device.malloc(16, host=True)
        self.source = ctypes.c_double.from_address(self.pinned.value)
        self.result = ctypes.c_double.from_address(self.pinned.value + 8)

    def set_loss(self, step):
        self.source.value = 2.0 + 8.0 * math.exp(-step / 40.0) + 0.01 * math.sin(step)
        self.device.copy(self.loss_on_device, self.pinned, 8, HOST_TO_DEVICE)

    def look_at(self, microseconds=100):
        """Reads the loss and spends time on it, the same on every host: what the device waits, it waits everywhere."""
        value, until = self.item(), time.perf_counter() + microseconds / 1e6
        while time.perf_counter() < until:
            pass
        return value

    def item(self):
        """As tensor.item(): copy back, wait."""
        self.device.copy(self.pinned.value + 8, self.loss_on_device, 8, DEVICE_TO_HOST)
        self.device.synchronize()
        return self.result.value

    def step(self, after_block=None):
        for kernels in (self.kernels, self.backward):
            for _ in range(self.blocks):
                for kernel in kernels:
                    self.device.launch(kernel)
                if after_block:
                    after_block()
        self.device.launch(self.optimizer)


# mode: (blocks, kernel microseconds)
SHAPES = {
    "gpu-bound": (12, 100), "sync": (12, 30), "launch": (40, 1.5), "host": (12, 40),
    "copy": (12, 40), "alloc": (12, 20), "graph": (40, 1.5), "small": (40, 4.5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=sorted(SHAPES), default="gpu-bound")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--blocks", type=int, help="layers (default: by mode)")
    parser.add_argument("--kernel-us", type=float, help="device time of a forward kernel (default: by mode)")
    parser.add_argument("--host-ms", type=float, default=10.0, help="mode host: sleep between steps")
    parser.add_argument("--copy-mb", type=int, default=32, help="mode copy: pageable bytes a step")
    parser.add_argument("--every", type=int, default=10, help="read the loss back every n steps (mode sync: every block)")
    parser.add_argument("--leave", choices=("return", "exception", "exit3", "_exit4", "sigterm"), default="return")
    arguments = parser.parse_args()

    blocks, microseconds = SHAPES[arguments.mode]
    device = Device()
    if arguments.mode == "graph":
        device.own_stream()
    model = Model(device, arguments.blocks or blocks, arguments.kernel_us or microseconds)
    run = model.step
    if arguments.mode == "graph":
        run = device.capture(model.step)
    batch = batch_on_device = None
    if arguments.mode == "copy":
        batch = ctypes.create_string_buffer(arguments.copy_mb << 20)
        batch_on_device = device.malloc(arguments.copy_mb << 20)

    for step in range(arguments.steps):
        if arguments.mode == "host":
            time.sleep(arguments.host_ms / 1000.0)
        if arguments.mode == "copy":
            device.copy(batch_on_device, ctypes.addressof(batch), arguments.copy_mb << 20, HOST_TO_DEVICE)
        model.set_loss(step)
        if arguments.mode == "sync":
            model.step(after_block=model.look_at)
        elif arguments.mode == "alloc":
            model.step(after_block=lambda: device.check(device.runtime.cudaFree(device.malloc(64 << 20))))
        else:
            run()
        if (step + 1) % arguments.every == 0 or step + 1 == arguments.steps:
            print(f"step {step + 1:4d}  loss {model.item():.4f}", flush=True)
    device.check(device.runtime.cudaDeviceSynchronize())
    leave(arguments.leave)


def leave(way):
    if way == "exception":
        raise ValueError("training failed")
    if way == "exit3":
        sys.exit(3)
    if way == "_exit4":
        sys.stdout.flush()
        os._exit(4)
    if way == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
