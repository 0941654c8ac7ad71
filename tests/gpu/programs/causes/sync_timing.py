# SPDX-License-Identifier: Apache-2.0
"""`torch.cuda.synchronize()` around the parts of a step to time them. Fixed: CUDA events, read once at the end."""

import time

import torch
from torchside import Heavy, Stem, main


def build(form, ctx):
    stem, head = Stem(ctx, 80), Heavy(ctx, ms=16)
    times, events = [], []

    def timed(_i):
        torch.cuda.synchronize()  # SITE
        began = time.perf_counter()
        x = stem.run()
        torch.cuda.synchronize()  # SITE
        middle = time.perf_counter()
        loss = head.train(x)
        torch.cuda.synchronize()  # SITE
        times.append((middle - began, time.perf_counter() - middle))
        return loss

    def with_events(_i):
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(3)]
        marks[0].record()
        x = stem.run()
        marks[1].record()
        loss = head.train(x)
        marks[2].record()
        events.append(marks)
        del events[:-100]
        return loss

    if not ctx.on_gpu:
        return lambda _i: head.train(stem.run())
    return timed if form == "slow" else with_events


if __name__ == "__main__":
    main(build, steps=45)
