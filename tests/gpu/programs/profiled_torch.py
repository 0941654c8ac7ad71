# SPDX-License-Identifier: Apache-2.0
"""Training with torch.profiler over five steps, five times: what its user gets, counted by category and name."""

import collections
import json
import os
import tempfile

import torch
from mlp import training_step
from training import Context, arguments

WATCHED = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync")


def profile(ctx, step):
    kinds = [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if ctx.on_gpu else [])
    with torch.profiler.profile(activities=kinds) as prof:
        for i in range(5):
            step(i)
        ctx.sync()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "t.json")
        prof.export_chrome_trace(path)
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    found = collections.Counter(f"{e['cat']} {e['name'][:80]}" for e in events if e.get("ph") == "X" and e.get("cat") in WATCHED)
    return dict(sorted(found.items()))


def train(name, profile, times, extra=None):
    """Trains, `times` times five steps under `profile(ctx, step)`, and prints what it gave each time; also for other profilers' programs, which may have
    `extra` arguments."""
    a = arguments(name, extra)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, fused=True, blocks=12)
    for i in range(100):
        step(i)
    ctx.sync()
    profiles = []
    for _ in range(times):
        profiles.append(profile(ctx, step))
        for i in range(100):
            step(i)
        ctx.sync()
    print(json.dumps({"program": name, "profiles": profiles}), flush=True)


if __name__ == "__main__":
    train("profiled_torch", profile, 5)
