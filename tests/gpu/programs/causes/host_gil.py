# SPDX-License-Identifier: Apache-2.0
"""A background thread of pure Python that keeps the GIL: the launching thread waits for it, 5 ms after each backward pass.
(A release of a few microseconds, as in a launch, costs nothing: the hog does not wake up in time.) Two networks in turn.

Fixed: the same work in a process of its own."""

import inspect
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


class Apart:
    """The hog in a process of its own; it ends with its stdin."""

    CODE = inspect.getsource(hog) + """
import sys, threading
go = threading.Event()
go.set()
threading.Thread(target=hog, args=(go,), daemon=True).start()
sys.stdin.read()
"""

    def begin(self):
        self.child = subprocess.Popen([sys.executable, "-S", "-c", self.CODE], stdin=subprocess.PIPE)

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def build(form, ctx):
    one, other = Heavy(ctx, ms=2.5), Heavy(ctx, ms=2.5)
    x = torch.ones(16, device=ctx.device)
    step = lambda _i: other.train(one.train(x))  # noqa: E731
    if form == "fixed":
        apart = Apart()
        return Form(step, begin=apart.begin, end=apart.end)
    active = threading.Event()
    threading.Thread(target=hog, args=(active,), daemon=True).start()
    return Form(step, lead=1, begin=active.set, end=active.clear)


if __name__ == "__main__":
    main(build, steps={"slow": 60, "fixed": 120})
