# SPDX-License-Identifier: Apache-2.0
"""What gapprobe's own code costs a GPU-bound training step: blocks of GPT steps, gapprobe's callbacks and buffer
handlers swapped for empty ones (bare CUPTI) in every other block. Step times are taken on the GPU, by events, so that
the measuring does not empty the queue. Blocks of six: with two a p99 was four or five steps of 440, whatever those had met (results of 2026-11-23).
Prints all of them; the statistics are the runner's."""

import json
import time

import torch
from gpt import training_step
from training import Context, Marks, arguments, pass_gate


def block(ctx, step, n):
    """Times of `n` steps, ms."""
    if not ctx.on_gpu:
        times = []
        for i in range(n):
            t = time.perf_counter()
            step(i)
            times.append((time.perf_counter() - t) * 1e3)
        return times
    ctx.sync()
    step(0)  # fills the queue again; not counted
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for i in range(n):
        step(i)
        marks[i + 1].record()
    ctx.sync()
    return [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def main():
    a = arguments("cost_step", lambda p: p.add_argument("--block", type=int, default=6))
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, batch=16, length=512)
    switch = Marks(False)
    for i in range(10):
        step(i)
    pairs = []
    for k in range(a.pairs):
        one = {}
        for bare in (False, True) if k % 2 == 0 else (True, False):
            switched = switch.bare(bare)
            one[bare] = block(ctx, step, a.block)
        pairs.append([one[False], one[True]])
    switch.bare(False)
    print(json.dumps({"program": "cost_step", "switch": switched, "pairs_ms": pairs}), flush=True)


if __name__ == "__main__":
    main()
