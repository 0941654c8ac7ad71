# SPDX-License-Identifier: Apache-2.0
"""Training with torch.profiler over five steps, some times (--times), with all that it can tell of operators (--operators), or with one profiler that has a
schedule (--schedule): what its user gets, counted by category and name, and the GPU kernels' total times. When the training without it began and ended is told too, and whether Kineto waits for a daemon
(KINETO_USE_DAEMON)."""

import collections
import functools
import json
import os
import tempfile
import time

import torch
from mlp import training_step
from training import Context, arguments, pass_gate

NAME = "profiled_torch"
WATCHED = ("kernel", "gpu_memcpy", "gpu_memset", "cuda_runtime", "cuda_driver", "cuda_sync", "cpu_op")
STEPS_WITHOUT = 100  # before, between and after profiles


def kinds(ctx):
    return [torch.profiler.ProfilerActivity.CPU] + ([torch.profiler.ProfilerActivity.CUDA] if ctx.on_gpu else [])


def read(prof, kernel_us):
    """Counts by category and name; the kernels' times by name are added to `kernel_us`."""
    with tempfile.TemporaryDirectory() as d:
        path = os.path.join(d, "t.json")
        prof.export_chrome_trace(path)
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    watched = [e for e in events if e.get("ph") == "X" and e.get("cat") in WATCHED]
    times = collections.Counter()
    for e in watched:
        if e["cat"] == "kernel":
            times[e["name"][:80]] += e["dur"]
    kernel_us.append({k: round(v, 3) for k, v in sorted(times.items())})
    return dict(sorted(collections.Counter(f"{e['cat']} {e['name'][:80]}" for e in watched).items()))


def profile(ctx, step, kernel_us, more):
    with torch.profiler.profile(activities=kinds(ctx), **more) as prof:
        for i in range(5):
            step(i)
        ctx.sync()
    return [read(prof, kernel_us)]


def scheduled(ctx, step, kernel_us):
    """Three profiles of three steps, by one profiler. Each step ends before the next one begins: what was launched in a step that is not
    profiled would else run in one that is, now and then."""
    profiles = []
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=3, repeat=3)
    with torch.profiler.profile(activities=kinds(ctx), schedule=schedule, on_trace_ready=lambda p: profiles.append(read(p, kernel_us))) as prof:
        for i in range(20):
            step(i)
            ctx.sync()
            prof.step()
    return profiles


def waits_for_daemon():
    """Does this process have the socket by which Kineto speaks to dynolog?"""
    own = set()
    for fd in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass  # the folder's own
    with open("/proc/net/unix") as f:
        rows = [line.split() for line in f if "dynoconfigclient" in line]
    return any(f"socket:[{row[6]}]" in own for row in rows)


def train(name, profiled, times, extra=None, told=None):
    """Trains, and `times` times has `profiled(ctx, step)` give a list of profiles; prints them with what stands in `told`. Also for other profilers'
    programs, which may have `extra` arguments."""
    a = arguments(name, extra)
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, fused=True, blocks=12)
    profiles, trained_ns = [], []

    steps_without = getattr(a, "without", STEPS_WITHOUT)

    def without():
        began = time.time_ns()
        for i in range(steps_without):
            step(i)
        ctx.sync()
        trained_ns.append((began, time.time_ns()))

    without()
    for _ in range(times):
        profiles += profiled(ctx, step)
        without()
    print(json.dumps({"program": name, "profiles": profiles, "trained_ns": trained_ns, "steps_without": steps_without,
                      "waits_for_daemon": waits_for_daemon(), **(told or {})}), flush=True)


def ways(parser):
    parser.add_argument("--times", type=int, default=5, help="profiles, of five steps each")
    parser.add_argument("--without", type=int, default=STEPS_WITHOUT, help="steps before, between and after them")
    parser.add_argument("--operators", action="store_true", help="with shapes, stacks, memory and modules")
    parser.add_argument("--schedule", action="store_true", help="one profiler with a schedule instead: three profiles")


if __name__ == "__main__":
    said, told = arguments(NAME, ways), {"kernel_us": []}
    more = dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_modules"), said.operators)
    way = scheduled if said.schedule else functools.partial(profile, more=more)
    train(NAME, functools.partial(way, kernel_us=told["kernel_us"]), 1 if said.schedule else said.times, ways, told)
