# SPDX-License-Identifier: Apache-2.0
"""A training loop that goes on only when it is told to: several processes of it, with profilers and without, take turns on one GPU, a block
of steps each. What a profiler costs is the difference between neighbours in time, and the one without has none of its code in it.

The runner writes `N` to stdin, the program does N steps and writes one JSON line to --answers: how long all of them took on the host from an
empty queue to an empty queue, and each step's time on the GPU, by events. An empty stdin, or anything that is no number, ends it.
`--answers` is a named pipe; its first line says that the program is ready: it has taken its GPU and done its warm-up steps. With --held it says
before that that it has imported what it needs, and waits for a line on stdin before it touches its GPU.

`ddp` is one rank of two or more: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT are told as torchrun tells them, and all ranks are told
the same steps.
"""

import argparse
import json
import os
import sys
import time

import loops

LEAD = 2  # steps of a block that do not count: behind a pause everything is cold
WARM_UP = 6
# Its logits and what is computed of them are some 26 GB (four processes did not fit into an H200's
# 141): who does not play gives its memory back, and takes it again in one more step that does not
# count.
GIVE_BACK = ("gpt_large",)


class Turns:
    """Stands between the steps of a loop: `before()` each one says whether there is to be one more."""

    def __init__(self, ctx, answers, gives_back=False):
        self.ctx, self.answers, self.gives_back = ctx, answers, gives_back
        self.lead = LEAD + gives_back
        self.left, self.done, self.all_steps = WARM_UP, None, 0
        self.events, self.began = [], None

    def mark(self):
        """Remember when the GPU comes by here."""
        self.events.append(self.ctx.event() if self.ctx.on_gpu else time.perf_counter())

    def times(self):
        """Step times of the block, ms."""
        if self.ctx.on_gpu:
            return [a.elapsed_time(b) for a, b in zip(self.events, self.events[1:])]
        return [(b - a) * 1e3 for a, b in zip(self.events, self.events[1:])]

    def say(self, **what):
        self.answers.write(json.dumps(what) + "\n")
        self.answers.flush()

    def before(self):
        """Call it before each step. False: there is no more to do."""
        if self.done is not None:
            if self.done == self.lead:
                self.ctx.sync()
                self.events, self.began = [], time.perf_counter()
            if self.done >= self.lead:
                self.mark()
            self.done += 1
        if self.left == 0:
            self.ctx.sync()
            took = self.done is not None and (time.perf_counter() - self.began) * 1e3
            if self.gives_back and self.ctx.on_gpu:
                import torch
                torch.cuda.empty_cache()
            if self.done is None:
                self.say(ready=True)
            else:
                self.say(steps=self.done - 1 - self.lead, took_ms=took, steps_ms=self.times(), all_steps=self.all_steps)
            told = sys.stdin.readline().strip()
            if not told.isdigit():
                return False
            self.left, self.done = int(told) + self.lead, 0
            return self.before()
        self.left -= 1
        self.all_steps += 1
        return True


def profiled(kind):
    """torch.profiler over the whole run, as a user would leave it on; of `none`: nothing."""
    if kind == "none":
        return None
    import torch

    kinds = {"cuda": [torch.profiler.ProfilerActivity.CUDA],
             "cpu+cuda": [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]}
    return torch.profiler.profile(activities=kinds[kind])


def main():
    p = argparse.ArgumentParser(prog="turns")
    p.add_argument("--program", choices=loops.PROGRAMS, required=True)
    p.add_argument("--answers", required=True)
    p.add_argument("--profiler", choices=("none", "cuda", "cpu+cuda"), default="none")
    p.add_argument("--gate", action="store_true", help="taken and not looked at: stdin is the gate")
    p.add_argument("--held", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    loops.import_for(a.program)
    with open(a.answers, "w") as answers:
        if a.held:
            answers.write(json.dumps({"held": True}) + "\n")
            answers.flush()
            if not sys.stdin.readline():
                return
        ctx = loops.context(a.program, a.device, a.tiny)
        profiler = profiled(a.profiler)
        loops.play(a.program, ctx, Turns(ctx, answers, a.program in GIVE_BACK), profiler and profiler.start)
    if profiler is not None:
        os._exit(0)  # what it has collected is nobody's, and takes it a minute to sort
    if a.program == "ddp":
        import torch.distributed
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
