# SPDX-License-Identifier: Apache-2.0
"""Keeps one unit of the GPU at work for some seconds: used.py KIND SECONDS. Truth: what it did a second, by the clock, and the peaks that
it is held against: for matrix products FLOP/s, FLOPs a clock and the mean clock (sm_clock.py), for the others bytes a second."""

import json
import pathlib
import sys
import time

import torch
from sm_clock import SmClock

SETTLED_S = 4
N = 8192
BYTES = 2 << 30
# FLOPs of a multiprocessor a clock, by compute capability: of tensor cores in bf16 (dense), of the
# pipe for FP32. H100's data sheet: 989.4 and 66.9 TFLOP/s on 132 of them at 1,830 and 1,980 MHz.
TENSOR, FP32 = {(9, 0): 4096, (10, 0): 8192}, {(9, 0): 256, (10, 0): 256}


def work(kind):
    """What one round does, and its amount: FLOPs or bytes."""
    if kind in ("bf16", "fp32", "half"):
        dtype = torch.float32 if kind == "fp32" else torch.bfloat16
        a, b = (torch.randn(N, N, device="cuda", dtype=dtype) for _ in range(2))
        out = torch.empty_like(a)
        return lambda: torch.mm(a, b, out=out), 2 * N**3
    if kind == "memory":
        # a kernel, not copy_: ncu sees no cudaMemcpyAsync
        a = torch.zeros(BYTES // 4, device="cuda")
        b = torch.empty_like(a)
        return lambda: torch.add(a, 1, out=b), 2 * BYTES
    a = torch.empty(BYTES, device="cuda:1", dtype=torch.uint8) if kind == "nvlink" else torch.empty(BYTES, dtype=torch.uint8).pin_memory()
    b = torch.empty(BYTES, device="cuda:0", dtype=torch.uint8)
    return lambda: b.copy_(a, non_blocking=True), BYTES


def cpu_of(name):
    """CPU time of the threads with this name, ns."""
    used = 0
    for task in pathlib.Path("/proc/self/task").iterdir():
        if (task / "comm").read_text().strip() == name:
            used += int((task / "schedstat").read_text().split()[0])
    return used


def peaks(properties):
    """What the work is held against: with FLOPs a clock, the clock is told beside."""
    capability = (properties.major, properties.minor)
    return {"multiprocessors": properties.multi_processor_count, "tensor_a_clock": TENSOR.get(capability), "fp32_a_clock": FP32.get(capability),
            "bandwidth": properties.memory_clock_rate * 1e3 * 2 * properties.memory_bus_width / 8}


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    torch.backends.cuda.matmul.allow_tf32 = False
    properties = torch.cuda.get_device_properties(0)
    clock = SmClock(properties.multi_processor_count)
    once, amount = work(kind)
    for _ in range(3):
        once()
    torch.cuda.synchronize()
    clock.begin()
    begin, rounds, took, settled = time.perf_counter(), 0, 0.0, None
    while took < seconds:
        for _ in range(4):
            once()
        torch.cuda.synchronize()
        rounds += 4
        if kind == "half":  # idle for as long again
            time.sleep(max(0.0, (time.perf_counter() - begin) / rounds * 2))
        took = time.perf_counter() - begin
        if settled is None and took >= SETTLED_S:  # (opening NVML costs some 7 to 22 ms, once)
            settled = took, cpu_of("gapprobe-nvml")
    clock.end()
    since, cpu_before = settled or (0.0, 0)
    cpu = cpu_of("gapprobe-nvml") - cpu_before
    print(json.dumps({
        "program": f"used {kind}", "seconds": took, "a_second": amount * rounds / took, **peaks(properties), "nvml_cpu_ns": cpu,
        "nvml_cpu_s": took - since, "nvml_cpu_before_ns": cpu_before, "sm_mhz": clock.mhz, "sm_mhz_missing": clock.missing,
        "multiprocessors_read": len(clock.before),
    }), flush=True)


if __name__ == "__main__":
    main()
