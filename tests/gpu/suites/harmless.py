# SPDX-License-Identifier: Apache-2.0
"""The program ends as it would have ended without us, in every way there is; what was killed can be recovered."""

import array
import pathlib

from check import native, victim
from check.plan import FAIL, NOT_RUN, PASS
from check.tracefile import Trace

NAME = "harmless"
ABOUT = "ten ways to end, with and without queued GPU work; recover held against the program's own counter (about 90 s); part hang: four of them while a kernel spins 20 s (about 60 s); part jax: 30 runs of a program that makes CUDA graphs anew, 30 without us (about 120 s)"

KILLED = ("os_exit4", "sigterm", "sigkill", "abort")
LATE_S = 2.0
# What the GPU has to do when the program dies: how the program is asked for it.
WORK = {"": (), "work queued": ("--queue", 200),  # 20 ms each: 4 s, of which 2.5 s are left
        "a kernel hangs": ("--hang", 20)}
RUNS = [(way, "work queued") for way in ("normal", "exception", "exit3", "os_exit4", "sigterm", "sigkill", "abort")]
RUNS += [(way, "") for way in ("normal", "exception", "exit3")]
# As a watchdog ends a job that hangs, or its user.
HANGS = [(way, "a kernel hangs") for way in ("exit3", "os_exit4", "sigterm", "abort")]
HANG = "hang"
# A program of JAX's that makes its CUDA graphs anew. Without records of kernels it died under us
# in 43 of 55 runs, with them in 1 of 163 (results, "jax-flush").
JAX, JAX_RUNS = "jax", 30
SECONDS_EACH, SECONDS_HUNG = 20, 45  # the driver may wait for a kernel that runs


def ticks(directory, before_ns):
    """(ticks launched, ticks whose end lies before `before_ns` on CLOCK_MONOTONIC) as the program itself wrote them."""
    words = array.array("q")
    words.frombytes((pathlib.Path(directory) / "ticks").read_bytes())
    launched, offset = words[0], words[1]
    ended = sum(1 for w in words[4:4 + launched] if w and w + offset <= before_ns)
    return launched, ended


def died_at(ended):
    """When the program began to die, ns of CLOCK_MONOTONIC; None if it never came so far."""
    try:
        return int((ended.directory / "death").read_text())
    except (OSError, ValueError):
        return None


def judge_same(plan, title, plain, ours):
    died = [died_at(e) for e in (plain, ours)]
    if None in died:
        plan.row(NAME, f"{title}: as without us", FAIL, f"did not get to its end: exit {plain.code}/{ours.code}, "
                 f"{plain.err[-100:]!r} {ours.err[-100:]!r}")
        return False
    took = [e.ended_at - d / 1e9 for e, d in zip((plain, ours), died)]
    same = plain.out == ours.out and plain.code == ours.code
    what = "stdout and exit code equal" if same else \
        f"exit {plain.code} -> {ours.code}, stdout {'equal' if plain.out == ours.out else 'differs'}"
    talk = [x for x in ours.our_lines]
    return plan.row(NAME, f"{title}: as without us",
                    same and not ours.late and took[1] <= took[0] + LATE_S and len(talk) <= 1,
                    f"{what}; end takes {took[0]:.2f} -> {took[1]:.2f} s, {len(talk)} line(s) of ours", f"+{LATE_S} s, 1 line")


def judge_recording(plan, title, ours, killed):
    """Trace and line are there (after `recover`, where the program was killed), and hold every tick that must be in."""
    died = died_at(ours)
    line = ours.line
    if killed:
        code, out, err = ours.recover(plan)
        line = out.strip()
        if code != 0 or " [GP" not in line:
            return plan.row(NAME, f"{title}: recover", FAIL, f"exit {code}: {out[-100:]!r} {err[-160:]!r}")
    path = ours.trace()
    if path is None or not line:
        return plan.row(NAME, f"{title}: trace and line", FAIL, f"trace {path}, line {line!r}, {ours.err[-160:]!r}")
    trace = Trace(path)
    launched, must = ticks(ours.directory, died - 1_000_000_000)
    seen = sum("spin_tick" in (k.name or "") for k in trace.kernels)
    plan.row(NAME, f"{title}: kernels of the last seconds", must <= seen <= launched,
             f"{seen} in the trace; {must} ended more than 1 s before, {launched} launched")
    last = max((k.end for k in trace.kernels), default=0)
    tail = [s for s in trace.idle if s[0] >= last]
    plan.row(NAME, f"{title}: tail not called idle", not tail, f"{len(tail)} idle slices after the last kernel", "0")
    left = ours.recordings()
    return plan.row(NAME, f"{title}: recording tidied away", not left, f"{len(left)} left: {line[:90]}", "0")


def chosen(only, quick):
    """The runs of these parts: (way, work). Those that hang take long, and are to be named."""
    if only is not None:
        return [r for r in RUNS if r[0] in only] + (HANGS if HANG in only else [])
    if quick:
        return [r for r in RUNS if r in (("normal", ""), ("exit3", "work queued"), ("sigkill", "work queued"))]
    return RUNS


def judge_deaths(plan, plain, ours):
    """Of as many runs of one program without us and with us: how many did not get to their end."""
    dead = [[e for e in side if e is not None and e.code != 0] for side in (plain, ours)]
    ran = [sum(e is not None for e in side) for side in (plain, ours)]
    said = f"{len(dead[1])} of {ran[1]} died, without us {len(dead[0])} of {ran[0]}"
    enough = min(ran) >= JAX_RUNS and not dead[0]
    first = f": {dead[1][0].err[-120:]!r}" if dead[1] else ""
    result = FAIL if dead[1] and not dead[0] else PASS if enough else NOT_RUN
    return plan.row(NAME, "jax_optimizer, fixed: gets to its end", result, said + first, f"0 of {JAX_RUNS}")


def run_jax(plan):
    """One program many times, with us and without in turn."""
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "GAPPROBE_TEST_WITHOUT": "10"}
    starts = [((number, ours), lambda u=ours: victim.python(plan, "causes/jax_optimizer", "--form", "fixed", ours=u, env=env))
              for number in range(JAX_RUNS) for ours in (False, True)]
    ended = victim.several_at_once(plan, starts, seconds_each=SECONDS_EACH, jobs=plan.jobs)
    judge_deaths(plan, *([e for (_, u), e in ended.items() if u is ours] for ours in (False, True)))


def run(plan, only=None):
    if only is not None and JAX in only:
        run_jax(plan)
        if set(only) == {JAX}:
            return
    made = native.built(plan, "ticker")
    if "ticker" not in made:
        plan.row(NAME, "whole suite", NOT_RUN, "no ticker")
        return
    runs = chosen(only, plan.quick)
    starts = []
    for way, work in runs:
        for ours in (False, True):
            options = ("--way", way, *WORK[work], "--ticker", made["ticker"])
            starts.append(((way, work, ours), lambda o=options, u=ours: victim.python(plan, "exits", *map(str, o), ours=u)))
    hangs = any(r in HANGS for r in runs)
    ended = victim.several_at_once(plan, starts, seconds_each=SECONDS_HUNG if hangs else SECONDS_EACH, jobs=plan.jobs + 1)
    for way, work in runs:
        title = f"{way}{', ' if work else ''}{work}"
        plain, ours = ended.get((way, work, False)), ended.get((way, work, True))
        if plain is None or ours is None:
            plan.row(NAME, title, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, title, {"plain": plain.as_detail(), "ours": ours.as_detail()})
        if judge_same(plan, title, plain, ours) or died_at(ours) is not None:
            judge_recording(plan, title, ours, way in KILLED)
