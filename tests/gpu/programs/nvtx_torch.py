# SPDX-License-Identifier: Apache-2.0
"""NVTX from PyTorch: torch.cuda.nvtx (push and pop, start and end, marks), torch.autograd.profiler.emit_nvtx, and the
Python package `nvtx` where it is installed. Its truth: how many ranges of each name it made after the first use of the GPU,
and how many operators emit_nvtx must show at least."""

import json
import sys
import threading

import torch

STEPS = 20


def main():
    if "--gate" in sys.argv:
        sys.stdin.readline()
    device = torch.device("cuda")
    layers = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(4))).to(device)
    data = torch.randn(256, 512, device=device)
    layers(data).sum().item()
    made = {}

    def count(name, times=1):
        made[name] = made.get(name, 0) + times

    nvtx = torch.cuda.nvtx
    for step in range(STEPS):
        nvtx.range_push("train")
        count("train")
        with nvtx.range(f"numbered {step % 4}"):
            count(f"numbered {step % 4}")
            loss = layers(data).sum()
        nvtx.mark("a moment")
        handle = nvtx.range_start("backward, ended by a thread")
        count("backward, ended by a thread")
        loss.backward()
        thread = threading.Thread(target=nvtx.range_end, args=(handle,))
        thread.start()
        thread.join()
        nvtx.range_pop()
    with torch.autograd.profiler.emit_nvtx():
        for _ in range(STEPS):
            layers(data)
    operators = {"aten::linear": 4 * STEPS, "aten::addmm": 4 * STEPS}
    try:
        import nvtx as package
    except ImportError:
        package = None
    if package:
        for step in range(STEPS):
            with package.annotate("phase", domain="training", payload=step):
                layers(data)
        count("training:phase", STEPS)
    torch.cuda.synchronize()
    print(json.dumps({"ranges": made, "operators": operators, "moments": {"a moment": STEPS}, "package": bool(package)}))


main()
