# SPDX-License-Identifier: Apache-2.0
"""A training loop that ends in a given way, if asked with seconds of GPU work still queued, or with a kernel that hangs.

Its stdout is its losses and nothing else. The moment it begins to die goes to the file `death` (CLOCK_MONOTONIC, ns);
what the GPU really did is in the file `ticks`, written by the kernels themselves (ticker.cu)."""

import argparse
import ctypes
import os
import signal
import sys
import time

import torch
from mlp import training_step
from training import Context

QUEUED_TICK_NS = 20_000_000


def ways(name):
    if name == "normal":
        return
    if name == "exception":
        raise RuntimeError("on purpose")
    if name == "exit3":
        sys.exit(3)
    if name == "os_exit4":
        os._exit(4)
    if name == "abort":
        os.abort()
    os.kill(os.getpid(), {"sigterm": signal.SIGTERM, "sigkill": signal.SIGKILL}[name])
    time.sleep(60)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--way", choices=("normal", "exception", "exit3", "os_exit4", "sigterm", "sigkill", "abort"), required=True)
    p.add_argument("--ticker", help="libticker.so")
    p.add_argument("--queue", type=int, default=0, help="ticks of 20 ms left in the queue")
    p.add_argument("--hang", type=float, default=0, help="seconds that a last kernel spins")
    p.add_argument("--seconds", type=float, default=3.0, help="train at least that long")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, fused=True, blocks=12)
    tick, stream = None, None
    if a.ticker:
        ticker = ctypes.CDLL(a.ticker)
        error = ticker.tick_start(b"ticks", ctypes.c_long(200_000))
        if error:
            sys.exit(f"ticker: error {error}")
        stream = torch.cuda.current_stream().cuda_stream

        def tick(ns):
            if ticker.tick_launch(ctypes.c_void_p(stream), ctypes.c_longlong(ns)) != 0:
                sys.exit("tick failed")

    until, i = time.monotonic() + a.seconds, 0
    while i < 60 or time.monotonic() < until:
        loss = step(i)
        if tick is not None:
            tick(20_000)
        if i < 60:
            print(f"step {i} loss {loss.item():.9g}", flush=True)
        elif i % 20 == 0:
            ctx.sync()
        i += 1
    if tick is not None and (a.queue or a.hang):
        for _ in range(a.queue):
            tick(QUEUED_TICK_NS)
        if a.hang:
            tick(int(a.hang * 1e9))
        time.sleep(1.5)
    with open("death", "w") as f:
        f.write(str(time.clock_gettime_ns(time.CLOCK_MONOTONIC)))
    ways(a.way)


if __name__ == "__main__":
    main()
