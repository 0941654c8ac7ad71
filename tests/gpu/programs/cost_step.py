# SPDX-License-Identifier: Apache-2.0
"""What gapprobe's own code costs a GPU-bound training step: blocks of GPT steps, gapprobe's callbacks and buffer
handlers swapped for empty ones, its sampler stopped (bare CUPTI) in every other block. Step times are taken on the GPU, by events, and the queue is never
emptied between blocks: a GPU-bound program's is not either, and behind an empty queue the host's own hiccups, of milliseconds on a shared
machine and seconds long, decide the slowest steps (results of 2026-11-23: they filled one side's tail or the other's, by chance). The batch
is large, so that the GPU needs a step's time also where that host takes 36 ms to launch one (f2e333c, with half the batch: not GPU-bound then).
Prints all of them; the statistics are the runner's."""

import json
import time

import torch
from gpt import training_step
from training import Context, Marks, arguments, pass_gate


class Clock:
    """Times of what was put into the queue between two calls of `lap`, ms."""

    def __init__(self, ctx):
        self.on_gpu, self.laps = ctx.on_gpu, []
        self.lap()

    def lap(self):
        if self.on_gpu:
            self.laps.append(torch.cuda.Event(enable_timing=True))
            self.laps[-1].record()
        else:
            self.laps.append(time.perf_counter())

    def times(self):
        if self.on_gpu:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) for a, b in zip(self.laps, self.laps[1:])]
        return [(b - a) * 1e3 for a, b in zip(self.laps, self.laps[1:])]


def main():
    a = arguments("cost_step", lambda p: p.add_argument("--block", type=int, default=3))
    pass_gate(a)
    torch.manual_seed(20261120)
    ctx = Context(a.device, a.tiny)
    step = training_step(ctx, batch=32, length=512)
    switch = Marks(False)
    for i in range(10):
        step(i)
    clock, blocks, switched = Clock(ctx), [], False
    for k in range(a.pairs):
        for bare in (False, True) if k % 2 == 0 else (True, False):
            switched = switch.bare(bare)
            blocks.append(bare)
            for i in range(a.block):
                step(i)
                clock.lap()
    switch.bare(False)
    times = clock.times()
    of_block = [times[n * a.block : (n + 1) * a.block] for n in range(len(blocks))]
    pairs = [[of_block[n + blocks[n]], of_block[n + 1 - blocks[n]]] for n in range(0, len(blocks), 2)]
    print(json.dumps({"program": "cost_step", "switch": switched, "pairs_ms": pairs}), flush=True)


if __name__ == "__main__":
    main()
