# SPDX-License-Identifier: Apache-2.0
"""Several processes of one program that take turns on the GPU, a block of steps each (programs/turns.py): all of them are there at once, one
runs at a time. Blocks of one round are neighbours in time, so that their differences are the profilers' and not the machine's."""

import json
import os
import random
import select
import sys
import time

from check import pairing, victim

READY_S = 90


class Player:
    """One of them. `command_prefix` stands before the program's own command (another profiler's)."""

    def __init__(self, plan, program, name, *, ours, env=None, profiler="none", command_prefix=()):
        self.name, self.ready, self.blocks = name, False, []
        called = name.replace("/", "-")  # a side's settings may hold one
        folder = plan.scratch / f"turns-{program}-{called}"
        folder.mkdir()
        self.pipe = folder / "answers"
        os.mkfifo(self.pipe)
        # Opened for both so that neither opening waits for the other end.
        self.answers = os.open(self.pipe, os.O_RDWR)
        self.rest = b""
        command = [*command_prefix, sys.executable, victim.PROGRAMS / "turns.py", "--program", program, "--answers", self.pipe,
                   "--profiler", profiler] + (["--device", "cpu", "--tiny"] if plan.dry else [])
        self.victim = victim.Victim(plan, command, ours=ours, env=env, gate=True, name=f"{program}-{called}")

    def answer(self, timeout_s):
        """The next line, or None where it has ended or says nothing in time."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or (self.victim.process.poll() is not None and not select.select([self.answers], [], [], 0)[0]):
                return None
            if select.select([self.answers], [], [], min(left, 0.5))[0]:
                self.rest += os.read(self.answers, 1 << 16)
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def wait_ready(self, timeout_s=READY_S):
        self.ready = self.ready or bool((self.answer(timeout_s) or {}).get("ready"))
        return self.ready

    def block(self, steps, timeout_s=60):
        """One block, or None where the program did not do it."""
        try:
            self.victim.process.stdin.write(f"{steps}\n".encode())
            self.victim.process.stdin.flush()
        except OSError:
            return None
        return self.answer(timeout_s)

    def end(self, timeout_s=20):
        """Tell it to end; what it left."""
        os.close(self.answers)
        return self.victim.wait(timeout_s)


def play(players, steps, rounds, until, seed=1):
    """`rounds` rounds of a block each, in a new order each time; ends before `until` (time.monotonic) at the end of a round.
    ([{name: block}], whole rounds only; who ended or said nothing, or None)."""
    draw, found = random.Random(seed), []
    while len(found) < rounds and time.monotonic() < until:
        order = list(players)
        draw.shuffle(order)
        round_ = {p.name: p.block(steps) for p in order}
        gone = next((name for name, block in round_.items() if block is None), None)
        if gone:
            return found, gone
        found.append(round_)
    return found, None


def step_ms(block):
    """Mean step time of a block on the host's clock, ms."""
    return block["took_ms"] / block["steps"]


def added(rounds, name, base):
    """What `name` adds to a step of `base`: {"percent": (middle, low, high), "us": ..., "p99_percent": ...}, 95 % intervals of the rounds."""
    percent = [(step_ms(r[name]) / step_ms(r[base]) - 1) * 100 for r in rounds]
    us = [(step_ms(r[name]) - step_ms(r[base])) * 1e3 for r in rounds]

    def p99(chosen):
        mine, theirs = ([t for r in chosen for t in r[n]["steps_ms"]] for n in (name, base))
        return (pairing.quantile(mine, 0.99) / pairing.quantile(theirs, 0.99) - 1) * 100

    return {"percent": pairing.interval(percent), "us": pairing.interval(us), "p99_percent": pairing.interval(rounds, statistic=p99, rounds=300)}
