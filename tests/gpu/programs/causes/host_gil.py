# SPDX-License-Identifier: Apache-2.0
"""A background thread of pure Python that keeps the GIL: the launching thread waits for it, 5 ms at a time.

Fixed: the same work in a process of its own."""

import pathlib
import subprocess
import sys
import threading

import torch
from torchside import Form, Heavy, main


def hog(active, text="the quick brown fox"):
    counts = {}
    while True:
        active.wait()
        for n in range(2000):  # SITE
            counts[text[n % 19]] = counts.get(text[n % 19], 0) + n  # SITE


def apart():
    """The hog in a process of its own, for as long as this one lives: it ends when its stdin does."""
    code = ("import sys, threading\nfrom host_gil import hog\n"
            "e = threading.Event()\ne.set()\nthreading.Thread(target=hog, args=(e,), daemon=True).start()\nsys.stdin.read()")
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, cwd=pathlib.Path(__file__).parent)


def build(form, ctx):
    model = Heavy(ctx, ms=8)
    x = torch.ones(16, device=ctx.device)
    step = lambda _i: model.train(x)  # noqa: E731
    if form == "fixed":
        child = apart()
        return Form(step, end=lambda: child.poll())
    active = threading.Event()
    threading.Thread(target=hog, args=(active,), daemon=True).start()
    return Form(step, lead=1, begin=active.set, end=active.clear)


if __name__ == "__main__":
    main(build, steps={"slow": 20, "fixed": 120}, warmup=3)
