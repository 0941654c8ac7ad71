# SPDX-License-Identifier: Apache-2.0
"""A training loop in one process, with something switched on and off again: `--switch slots`, gapprobe's own code between
windows in one of two steps (slots.c gives the slots through which CUDA is called back to CUDA, and to gapprobe again), or `--switch cupti`, a CUPTI that is attached
and asked for nothing in one of two blocks of steps (cuptiSubscribe, cuptiFinalize: only in programs without CUDA graphs, which die of it). What it costs
is the difference between neighbours in time and in the same memory. Step times are taken on the GPU, by events; for `slots` the queue is never emptied.
`--switch recorded` is `slots` with gapprobe's callbacks and buffer handlers empty as well (bare CUPTI), while a window is open: all that a recorded step has of gapprobe's.
`--switch timed` is `slots` with a clock before gapprobe's functions and one before those behind them (timed.c): how long its code takes in each step, of all threads.

Before the first block it does steps until `gapprobe ps` says that nothing is recorded (--until-closed). `ddp` is one rank, as in turns.py: all
ranks switch at the same steps. Prints one JSON line: {"pairs": [[step times with it, ms], [without]], ...}, and of `timed` "own": the same of ms between the clocks."""

import argparse
import ctypes
import json
import os
import pathlib
import random
import subprocess
import time

import loops
import torch
from training import Marks, pass_gate
from turns import WARM_UP

BLOCK_MS, LEAST, MOST = 60, 3, 30  # of a block of several steps; steps of it
CLOSED_WITHIN_S = 40


class Slots:
    """Switches gapprobe's own code off and on again: a few stores, so that each step may have it or not."""

    lead, is_slow = 0, False

    def __init__(self, library):
        self.c, names = ctypes.CDLL(library), ctypes.create_string_buffer(4096)
        self.count = self.c.slots_find(names, ctypes.sizeof(names))
        self.names = names.value.decode().split()

    def __call__(self, on):
        self.c.slots_lead(int(on))

    def facts(self):
        return {"slots": self.count, "names": self.names}


class Recorded(Slots):
    """The same, with gapprobe's callbacks and buffer handlers."""

    def __init__(self, library):
        super().__init__(library)
        self.marks = Marks(False)

    def __call__(self, on):
        super().__call__(on)
        self.marks.bare(not on)


class Timed(Slots):
    """The same, with clocks around it."""

    def __init__(self, library):
        self.c, names = ctypes.CDLL(library), ctypes.create_string_buffer(4096)
        self.c.timed_own.restype, self.c.timed_ticks_per_ns.restype = ctypes.c_uint64, ctypes.c_double
        self.ticks_per_ms = self.c.timed_ticks_per_ns() * 1e6
        self.count = self.c.timed_find(names, ctypes.sizeof(names))
        self.names = names.value.decode().split()

    def __call__(self, on):
        self.c.timed_lead(int(on))

    def own_ms(self):
        """What lay between the clocks so far."""
        return self.c.timed_own() / self.ticks_per_ms


class Cupti:
    """Attaches CUPTI and takes it away again: some milliseconds, and the queue is empty then, so that the first steps do not count."""

    lead, is_slow = 3, True

    def __init__(self, _library):
        # (the one that PyTorch has loaded)
        path = next(line.split()[-1] for line in open("/proc/self/maps") if "libcupti.so" in line)
        self.c, self.handle = ctypes.CDLL(path), ctypes.c_void_p()
        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p)(lambda *_: None)
        self.is_on, self.codes = False, {}

    def __call__(self, on):
        if on == self.is_on:
            return
        code = self.c.cuptiSubscribe(ctypes.byref(self.handle), self.callback, None) if on else self.c.cuptiFinalize()
        key = f"{'cuptiSubscribe' if on else 'cuptiFinalize'} {code}"
        self.codes[key] = self.codes.get(key, 0) + 1
        self.is_on = on

    def facts(self):
        return {"codes": self.codes}


class Nothing:
    """For trying the script without a GPU."""

    lead, is_slow = 0, False

    def __init__(self, _library):
        pass

    def __call__(self, on):
        pass

    def own_ms(self):
        return 0.0

    def facts(self):
        return {"slots": 1, "names": []}


SWITCHES = {"slots": Slots, "recorded": Recorded, "timed": Timed, "cupti": Cupti, "nothing": Nothing}


def says_off(gapprobe):
    """Whether `gapprobe ps` says that this process records nothing now."""
    said = subprocess.run([gapprobe, "ps", "--json"], env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}, capture_output=True, text=True)
    return [one["standing"] for one in json.loads(said.stdout or '{"processes": []}')["processes"] if one["pid"] == os.getpid()] == ["off"]


class Blocks:
    """Stands between the steps of a loop: `before()` each one says whether there is to be one more."""

    def __init__(self, ctx, a):
        self.ctx, self.a = ctx, a
        self.pairs, self.facts, self.laps, self.owned = [], {}, [], []
        self.own_ms = None
        self.plan = self.steps()

    def before(self):
        return next(self.plan, False)

    def lap(self):
        """Remember when the GPU comes by here."""
        self.laps.append(self.ctx.event() if self.ctx.on_gpu else time.perf_counter())
        if self.own_ms:
            self.owned.append(self.own_ms())

    def agreed(self, value):
        """The same on all ranks: true where it is so on each."""
        if self.a.program != "ddp":
            return value
        told = torch.tensor([int(value)], device=self.ctx.device)
        torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MIN)
        return bool(told.item())

    def goes_on(self, until, pairs):
        """Whether there is time for one more pair; ranks ask each other now and then, which takes a launch."""
        return (self.a.program == "ddp" and pairs % 16 != 0) or self.agreed(time.monotonic() < until)

    def many(self, steps):
        for _ in range(steps):
            yield True

    def wait_closed(self):
        began, off = time.monotonic(), 0
        while off < 2 and self.agreed(time.monotonic() - began < CLOSED_WITHIN_S):
            yield from self.many(20)
            off = off + 1 if self.agreed(says_off(self.a.until_closed)) else 0
        self.facts |= {"closed": off == 2, "closing_s": time.monotonic() - began}

    def block(self, lead, steps):
        """A block's laps, one more than it has steps."""
        yield from self.many(lead)
        begin = len(self.laps)
        self.lap()
        for _ in range(steps):
            yield True
            self.lap()
        return begin

    def steps(self):
        yield from self.many(WARM_UP)
        if self.a.until_closed:
            yield from self.wait_closed()
        switch = SWITCHES[self.a.switch](self.a.library)
        self.own_ms = getattr(switch, "own_ms", None)
        self.ctx.sync()
        began = time.perf_counter()
        yield from self.many(10)
        self.ctx.sync()
        each = (time.perf_counter() - began) * 1e2
        size = max(LEAST, min(MOST, round(BLOCK_MS / each))) if switch.is_slow else 1
        draw, until, found = random.Random(0), time.monotonic() + self.a.seconds, []
        while len(found) < self.a.least or self.goes_on(until, len(found)):
            first, begins = draw.random() < 0.5, {}
            for on in (first, not first):
                if switch.is_slow:
                    self.ctx.sync()
                switch(on)
                begins[on] = yield from self.block(switch.lead, size)
            found.append((begins[True], begins[False]))
        self.ctx.sync()
        switch(False)
        times = [a.elapsed_time(b) if self.ctx.on_gpu else (b - a) * 1e3 for a, b in zip(self.laps, self.laps[1:])]
        self.pairs = [[times[b:b + size] for b in pair] for pair in found]
        owned = [round(b - a, 6) for a, b in zip(self.owned, self.owned[1:])]
        if owned:
            self.facts["own"] = [[owned[b:b + size] for b in pair] for pair in found]
        self.facts |= {"block_steps": size, **switch.facts()}


def main():
    p = argparse.ArgumentParser(prog="switched")
    p.add_argument("--program", choices=loops.WITH_TORCH, required=True)
    p.add_argument("--switch", choices=tuple(SWITCHES), required=True)
    p.add_argument("--library", help="slots.so, which has timed.c in it")
    p.add_argument("--until-closed", metavar="GAPPROBE", help="first do steps until this gapprobe says that nothing is recorded")
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--least", type=int, default=3, help="pairs of blocks, however long they take")
    p.add_argument("--gate", action="store_true", help="wait for a line on stdin before the first use of the GPU")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true")
    a = p.parse_args()
    loops.import_for(a.program)
    pass_gate(a)
    ctx = loops.context(a.program, a.device, a.tiny)
    blocks = Blocks(ctx, a)
    loops.play(a.program, ctx, blocks)
    print(json.dumps({"program": a.program, "switch": a.switch, "pairs": blocks.pairs, **blocks.facts}), flush=True)
    if a.program == "ddp":
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
