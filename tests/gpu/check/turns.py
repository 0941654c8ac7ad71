# SPDX-License-Identifier: Apache-2.0
"""Several processes of one program that take turns on the GPU, a block of steps each (programs/turns.py): all of them are there at once, one
runs at a time. Blocks of one round are neighbours in time, so that their differences are the profilers' and not the machine's.

Players of one side are equal processes: their names differ by what stands behind the `#` ("plain#1", "plain#2")."""

import json
import os
import platform
import random
import select
import shutil
import subprocess
import sys
import time

from check import pairing, victim

READY_S = 90
CORES = 8  # so many of them all players share, where nobody says which
# Strings hash alike in all of them, or sets and dicts lie otherwise in each process, for as long as
# it lives.
SAME = {"PYTHONHASHSEED": "0"}


def side_of(name):
    """What a player is one of."""
    return name.partition("#")[0]


def listed(cores):
    """Cores as taskset takes them."""
    return ",".join(str(c) for c in cores)


def pinned(cores):
    """What stands before a command that is to have these cores alone ("2-9")."""
    return ("taskset", "-c", cores) if shutil.which("taskset") else ()


def alike(cores=None, count=CORES):
    """What stands before the command of every player so that equal ones are alike: the same cores ("2-9"; the first `count` that are ours), and
    addresses that are not random. Both programs call exec: the process stays the one that was started, and what is preloaded reaches it."""
    prefix = [*pinned(cores or listed(sorted(os.sched_getaffinity(0))[:count]))]
    still = ["setarch", platform.machine(), "-R"]
    # (not everywhere allowed, in containers)
    if shutil.which("setarch") and subprocess.run([*still, "true"], capture_output=True).returncode == 0:
        prefix += still
    return tuple(prefix)


class Player:
    """One of them. `command_prefix` stands before the program's own command (another profiler's). `held`: it imports what it needs and does not
    touch its GPU before wait_ready() is called. `command`: another program that answers as programs/turns.py does."""

    def __init__(self, plan, program, name, *, ours, env=None, profiler="none", command_prefix=(), held=False, command=None):
        self.name, self.side, self.ready, self.all_steps = name, side_of(name), False, 0
        self.held, self.is_at_gate, self.is_let_go = held, False, not held
        called = name.replace("/", "-").replace("#", "-")  # a side's settings may hold one
        folder = plan.scratch / f"turns-{program}-{called}"
        folder.mkdir()
        self.pipe = folder / "answers"
        os.mkfifo(self.pipe)
        # Opened for both so that neither opening waits for the other end.
        self.answers = os.open(self.pipe, os.O_RDWR)
        self.rest = b""
        command = [*command_prefix, *(command or (sys.executable, victim.PROGRAMS / "turns.py", "--program", program)), "--answers", self.pipe,
                   "--profiler", profiler] + (["--held"] if held else []) + (["--device", "cpu", "--tiny"] if plan.dry else [])
        self.victim = victim.Victim(plan, command, ours=ours, env={**SAME, **(env or {})}, gate=True, name=f"{program}-{called}")

    @property
    def victims(self):
        """Its processes: one."""
        return [self.victim]

    def answer(self, timeout_s):
        """The next line, or None where it has ended or says nothing in time."""
        until = time.monotonic() + timeout_s
        while b"\n" not in self.rest:
            left = until - time.monotonic()
            if left <= 0 or (self.is_gone() and not select.select([self.answers], [], [], 0)[0]):
                return None
            if select.select([self.answers], [], [], min(left, 0.5))[0]:
                self.rest += os.read(self.answers, 1 << 16)
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def is_gone(self):
        return self.victim.process.poll() is not None

    def tell(self, line):
        """A line for its stdin; False where it takes none."""
        try:
            self.victim.process.stdin.write(f"{line}\n".encode())
            self.victim.process.stdin.flush()
        except OSError:
            return False
        return True

    def wait_start(self, timeout_s=READY_S):
        """It needs nothing of the machine before it is told to: it is ready, or held and has imported."""
        if not self.held:
            return self.wait_ready(timeout_s)
        self.is_at_gate = self.is_at_gate or bool((self.answer(timeout_s) or {}).get("held"))
        return self.is_at_gate

    def let_go(self):
        """It may take its GPU, where it was held."""
        if not self.is_let_go:
            self.is_let_go = self.tell("go")

    def wait_ready(self, timeout_s=READY_S):
        """It has taken its GPU and done its first steps."""
        until = time.monotonic() + timeout_s
        if self.held and not self.wait_start(timeout_s):
            return False
        self.let_go()
        self.ready = self.ready or bool((self.answer(max(until - time.monotonic(), 0.1)) or {}).get("ready"))
        return self.ready

    def block(self, steps, timeout_s=60):
        """One block, or None where the program did not do it."""
        said = self.answer(timeout_s) if self.tell(steps) else None
        self.all_steps = (said or {}).get("all_steps", self.all_steps)
        return said

    def tell_end(self):
        """There is no more to do; end() waits for it."""
        self.victim.open()

    def end(self, timeout_s=20):
        """Tell it to end; what it left, one of each process."""
        os.close(self.answers)
        return [self.victim.wait(timeout_s)]

    def stop(self):
        """Give it up."""
        self.victim.stop()


class Job:
    """The ranks of one job, a process and a GPU each: one player. They run in lockstep, so that a block's time is the mean of what the ranks say
    it took, and the times of its single steps are rank 0's."""

    def __init__(self, plan, program, name, *, world, env=None, **how):
        self.name, self.side = name, side_of(name)
        self.ranks = [Player(plan, program, f"{name}.{r}", env={**(env or {}), "RANK": str(r), "LOCAL_RANK": str(r)}, **how) for r in range(world)]

    @property
    def victims(self):
        return [r.victim for r in self.ranks]

    @property
    def held(self):
        return self.ranks[0].held

    @property
    def ready(self):
        return all(r.ready for r in self.ranks)

    @property
    def all_steps(self):
        """Of each rank."""
        return self.ranks[0].all_steps

    def is_gone(self):
        return any(r.is_gone() for r in self.ranks)

    def wait_start(self, timeout_s=READY_S):
        if not self.held:
            return self.wait_ready(timeout_s)
        until = time.monotonic() + timeout_s
        return all([r.wait_start(max(until - time.monotonic(), 0.1)) for r in self.ranks])

    def wait_ready(self, timeout_s=READY_S):
        until = time.monotonic() + timeout_s
        if self.held and not self.wait_start(timeout_s):
            return False
        for r in self.ranks:  # all of them first: each waits for the others
            r.let_go()
        return all([r.wait_ready(max(until - time.monotonic(), 0.1)) for r in self.ranks])

    def block(self, steps, timeout_s=60):
        """As a player's; None, too, where one rank is gone, for which the others would wait."""
        if not all([r.tell(steps) for r in self.ranks]):
            return None
        said, until = {}, time.monotonic() + timeout_s
        while len(said) < len(self.ranks):
            for at, r in enumerate(self.ranks):
                if at not in said:
                    answer = r.answer(0.05)
                    if answer:
                        said[at], r.all_steps = answer, answer.get("all_steps", 0)
                    elif r.is_gone() or time.monotonic() > until:
                        return None
        return {**said[0], "took_ms": sum(b["took_ms"] for b in said.values()) / len(said)}

    def tell_end(self):
        for r in self.ranks:
            r.tell_end()

    def end(self, timeout_s=20):
        self.tell_end()
        return [ended for r in self.ranks for ended in r.end(timeout_s)]

    def stop(self):
        for r in self.ranks:
            r.stop()


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


def processes(rounds, side):
    """Names of the players of this side."""
    return sorted(n for n in rounds[0] if side_of(n) == side)


def times(rounds, side):
    """Step times of each process of a side, ms, round by round."""
    return [[step_ms(r[n]) for r in rounds] for n in processes(rounds, side)]


def added(rounds, side, base):
    """What a process of `side` adds to a step of one of `base`: {"percent": (middle, low, high), "us": ..., "quiet_percent", "quiet_us": of
    the quietest blocks of each process, "p99_percent": ...}, 95 % intervals over the processes and the rounds (check/pairing.py), and
    "percent_of_processes", over the processes alone."""
    mine, theirs = times(rounds, side), times(rounds, base)
    percent, alone = pairing.two_level(mine, theirs, pairing.SHARE)
    us, _ = pairing.two_level(mine, theirs, pairing.DIFFERENCE)
    quiet, _ = pairing.two_level(mine, theirs, pairing.SHARE, pick=pairing.quiet)
    quiet_us, _ = pairing.two_level(mine, theirs, pairing.DIFFERENCE, pick=pairing.quiet)
    steps = [[[r[n]["steps_ms"] for r in rounds] for n in processes(rounds, s)] for s in (side, base)]
    p99 = pairing.two_level_quantile(*steps, 0.99)
    return {"percent": tuple(100 * v for v in percent), "us": tuple(1e3 * v for v in us), "quiet_percent": tuple(100 * v for v in quiet),
            "quiet_us": tuple(1e3 * v for v in quiet_us), "p99_percent": tuple(100 * v for v in p99),
            "percent_of_processes": alone and tuple(100 * v for v in alone)}
