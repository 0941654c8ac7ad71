# SPDX-License-Identifier: Apache-2.0
"""The frame around every PyTorch program of scripts/gpu-check: arguments, the loop, and the program's own truth.

A program gives `build(form, ctx)`, which returns `step(i) -> loss tensor or None`. The frame runs it as
  --form slow | fixed   a plain training loop, as a user would write it (this is what gapprobe watches), or
  --form win            slow and fixed in alternating blocks in one process: what the fix really wins. Host speed on
                        the test machine varies by tens of percent between runs; one process each would show nothing.
The last line on stdout is one JSON object. Nothing here depends on gapprobe; --marks calls its C ABI when it is loaded.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time

import torch


class Marks:
    """gapprobe's C ABI, found in the process; every call does nothing where the library is not loaded."""

    def __init__(self, wanted):
        process = ctypes.CDLL(None)
        self._step = getattr(process, "gapprobe_step", None) if wanted else None
        self._bare = getattr(process, "gapprobe_test_bare", None)
        self._capture = getattr(process, "gapprobe_capture", None)

    def step(self):
        if self._step is not None:
            self._step()

    def bare(self, on):
        """Swap gapprobe's callbacks and buffer handlers for empty ones; False where gapprobe is not loaded."""
        if self._bare is None:
            return False
        self._bare(ctypes.c_int(1 if on else 0))
        return True

    def capture(self, on):
        if self._capture is not None:
            self._capture(ctypes.c_int(1 if on else 0))


class Context:
    """Where a program runs: the device, and whether sizes are cut down to try the script without a GPU."""

    def __init__(self, device, tiny):
        self.device = torch.device(device)
        self.tiny = tiny

    @property
    def on_gpu(self):
        return self.device.type == "cuda"

    def size(self, real, tiny):
        return tiny if self.tiny else real

    def sync(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def event(self):
        """An event that remembers when the GPU comes by here."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def captured(self, step):
        """`step` recorded as one CUDA graph; without a GPU the step itself."""
        if not self.on_gpu:
            return step
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for i in range(3):
                step(i)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = step(0)

        def replay(_i):
            graph.replay()
            return loss

        replay.graph = graph
        return replay


def arguments(name, extra=None):
    p = argparse.ArgumentParser(prog=name)
    p.add_argument("--form", choices=("slow", "fixed", "win"), default="slow")
    p.add_argument("--steps", type=int, default=None, help="steps after warm-up (default: the program's own)")
    p.add_argument("--pairs", type=int, default=12, help="with --form win: pairs of blocks")
    p.add_argument("--marks", action="store_true", help="tell gapprobe where each step begins")
    p.add_argument("--hide", action="store_true", help="tell it nothing (the default; here to say so in a command line)")
    p.add_argument("--gate", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="tiny sizes: try the script without a GPU")
    if extra is not None:
        extra(p)
    a = p.parse_args()
    if a.marks and a.hide:
        p.error("--marks and --hide exclude each other")
    return a


def pass_gate(a):
    """Everything slow that is not the GPU's is done; the runner opens the gate when the machine is quiet."""
    if a.gate:
        sys.stdin.readline()


def kernels_of(ctx, step, n):
    """(kernels, kernel milliseconds) a step, as torch.profiler counts them over `n` steps."""
    if not ctx.on_gpu:
        return None, None
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as prof:
        for i in range(n):
            step(i)
        ctx.sync()
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "t.json")
        prof.export_chrome_trace(path)
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    durations = [e["dur"] for e in events if e.get("cat") == "kernel" and "dur" in e]
    return len(durations) / n, sum(durations) / n / 1e3


def issue_ms(ctx, step, n=5):
    """Median host time to issue one step into an empty queue, ms."""
    times = []
    for i in range(n):
        ctx.sync()
        t = time.perf_counter()
        step(i)
        times.append((time.perf_counter() - t) * 1e3)
    ctx.sync()
    return sorted(times)[n // 2]


def block_ms(ctx, step, n, first):
    """Mean step time of a block of `n` steps, ms, from an empty queue to an empty queue."""
    ctx.sync()
    t = time.perf_counter()
    for i in range(n):
        step(first + i)
    ctx.sync()
    return (time.perf_counter() - t) * 1e3 / n


def alternate(ctx, a, slow, fixed, block_s):
    """Blocks of slow and fixed steps in turn; returns the raw pairs and what explains them."""
    for step in (slow, fixed):
        for i in range(4):
            step(i)
        ctx.sync()
    length = {}
    for key, step in (("slow", slow), ("fixed", fixed)):
        length[key] = max(2, min(400, int(block_s * 1e3 / max(block_ms(ctx, step, 4, 4), 0.01))))
    pairs = []
    for k in range(a.pairs):
        one = {}
        for key, step in (("slow", slow), ("fixed", fixed))[:: 1 if k % 2 == 0 else -1]:
            one[key] = block_ms(ctx, step, length[key], k * length[key])
        pairs.append([one["slow"], one["fixed"]])
    truth = {"pairs_ms": pairs, "block_steps": length}
    for key, step in (("slow", slow), ("fixed", fixed)):
        count, busy = kernels_of(ctx, step, 2)
        truth[key] = {"issue_ms": issue_ms(ctx, step), "kernels": count, "kernel_ms": busy}
    return truth


def loop(ctx, a, step, warmup, steps):
    """The training loop that gapprobe watches. Warm-up steps are steps like the others; only their time is left out."""
    marks = Marks(a.marks)
    begins = []
    total = torch.zeros((), dtype=torch.float64, device=ctx.device)
    started = None
    for i in range(warmup + steps):
        if i == warmup:
            ctx.sync()
            started = time.perf_counter()
        begins.append(time.perf_counter())
        marks.step()
        loss = step(i)
        if loss is not None:
            total.add_(loss)
    ctx.sync()
    ended = time.perf_counter()
    intervals = sorted(b - c for c, b in zip(begins[warmup:], begins[warmup + 1:]))
    return {
        "true_steps": warmup + steps,
        "steps_after_warmup": steps,
        "step_ms": (ended - started) * 1e3 / steps,
        "median_interval_ms": intervals[len(intervals) // 2] * 1e3 if intervals else None,
        "loss": total.item().hex(),
    }


def main(name, build, *, steps, warmup=10, block_s=0.2):
    """Run one program. `steps`: {"slow": n, "fixed": n}, chosen so that a run takes a few seconds on the GPU."""
    a = arguments(name)
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    began = time.time()
    if a.form == "win":
        if "fixed" not in steps:
            sys.exit(f"{name} has no fixed form")
        truth = alternate(ctx, a, build("slow", ctx), build("fixed", ctx), block_s)
    else:
        truth = loop(ctx, a, build(a.form, ctx), warmup, a.steps if a.steps is not None else steps.get(a.form, steps["slow"]))
    truth.update(program=name, form=a.form, marks=a.marks, ran_s=time.time() - began)
    print(json.dumps(truth), flush=True)
