# SPDX-License-Identifier: Apache-2.0
"""A program of causes/ as torch.profiler sees it: profiled.py PROGRAM FORM STEPS. It is made as the program makes itself; after some steps to
warm up the others are profiled at once. The last line on stdout is one JSON object: for each kernel [how many a step, ns a step]. Needs no
PyTorch until it runs."""

import argparse
import importlib
import json
import os
import pathlib
import statistics
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def by_name(events, steps):
    """{name: [kernels a step, ns a step]} of a Chrome trace's events."""
    found = {}
    for e in events:
        if e.get("ph") == "X" and e.get("cat") == "kernel":
            count, ns = found.get(e["name"], (0, 0.0))
            found[e["name"]] = (count + 1, ns + 1e3 * e["dur"])
    return {name: [count / steps, ns / steps] for name, (count, ns) in found.items()}


def spread(events, steps):
    """Kernel time of the step with least, of the middle one, of that with most, ns; None: the kernels are not so many a step."""
    kernels = sorted((e["ts"], 1e3 * e["dur"]) for e in events if e.get("ph") == "X" and e.get("cat") == "kernel")
    each, left = divmod(len(kernels), steps)
    if left or not each:
        return None
    times = [sum(ns for _, ns in kernels[i * each:(i + 1) * each]) for i in range(steps)]
    return [min(times), statistics.median(times), max(times)]


def profile(torch, ctx, form, first, steps):
    """Events of the trace of these steps."""
    kind = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kind.CUDA if ctx.on_gpu else kind.CPU]) as profiler:
        for i in range(first, first + steps):
            form.step(i)
        ctx.sync(None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as f:
            found = json.load(f)
    return found["traceEvents"] if isinstance(found, dict) else found  # (a list: PyTorch without Kineto)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("form")
    p.add_argument("steps", type=int, help="steps to profile")
    p.add_argument("--warmup", type=int, default=10, help="steps before them (default 10)")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="tiny sizes: try it without a GPU")
    a = p.parse_args()

    sys.path.insert(0, str(HERE / "causes"))
    import torch
    import torchside

    ctx = torchside.Torch(a.device, a.tiny)
    made = importlib.import_module(a.program).build(a.form, ctx)
    form = made if isinstance(made, torchside.Form) else torchside.Form(made)
    if form.begin is not None:
        form.begin()
    for i in range(a.warmup):
        form.step(i)
    ctx.sync(None)
    events = profile(torch, ctx, form, a.warmup, a.steps)
    if form.end is not None:
        form.end()
    print(json.dumps({"program": a.program, "form": a.form, "steps": a.steps, "kernels": by_name(events, a.steps), "spread": spread(events, a.steps)}),
          flush=True)


if __name__ == "__main__":
    main()
