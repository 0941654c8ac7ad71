# SPDX-License-Identifier: Apache-2.0
"""What a recorded call costs on the program's thread, ns and tail, on this machine's quiet host: the victim of
`cargo bench -p gapprobe-scenarios` over the simulated driver (the host's side is what is measured; the driver adds none).
And the walk: what the Python line of a call adds, 20 frames deep, by the victim of its own benchmark (`--bench call_site`).
Needs build/sim/13.0 (`scripts/sim-build build/sim --release`), and hot_path and libfrom_python.so in it (tests/gpu/README.md)."""

import contextlib
import math
import os
import signal
import subprocess
import sys

from check import victim
from check.plan import NOT_RUN

NAME = "event_cost"
ABOUT = "ns a recorded call, its p99.99 with an idle and a saturated disk, and a walk of 20 frames, simulated driver (about 90 s)"

EVENT_LIMIT_NS = 60.0
TAIL_LIMIT_NS = 5_000.0
WALK_LIMIT_NS = 100.0


def number(text, key):
    """The number after the word `key` in the last line that has it."""
    for line in reversed(text.splitlines()):
        words = line.split()
        if key in words:
            return float(words[words.index(key) + 1])
    return None


def judge_cost(plan, texts):
    costs = [n for n in (number(t, "event") for t in texts) if n is not None]
    best = min(costs) if costs else None
    plan.row(NAME, "ns an event", best is not None and best <= EVENT_LIMIT_NS, f"{costs} ns", f"best of three <= {EVENT_LIMIT_NS:.0f} ns")


def judge_tail(plan, title, texts):
    """The callbacks of single calls, every call counted; bare CUPTI (empty callbacks) and loops that do nothing for as long stand beside; the best
    of three counts. Where the machine alone takes half of the limit from a loop, ours may be late no more often than the loops (three standard
    deviations of a count)."""

    def figures(who, what):
        found = (number("\n".join(line for line in t.splitlines() if line.startswith(who)), what) for t in texts)
        return [n for n in found if n is not None]

    ours, loops = figures("ours", "p99.99"), figures("loop", "p99.99")
    late, machine = sum(figures("ours", "late")), sum(figures("loop", "late"))
    seen = " | ".join(line for t in texts for line in t.splitlines()[-3:])
    right = bool(ours) and min(ours) < TAIL_LIMIT_NS
    if not right and ours and loops and min(loops) > TAIL_LIMIT_NS / 2:
        right = late <= machine + 3 * math.sqrt(late + machine)
        seen = f"by the machine's own: {late:.0f} calls late, {machine:.0f} loops; {seen}"
    plan.row(NAME, f"p99.99, {title}", right, seen, f"best of three < {TAIL_LIMIT_NS:.0f} ns, or late as seldom as loops")


def judge_walk(plan, texts):
    costs = [n for n in (number(t, "walk") for t in texts) if n is not None]
    best = min(costs) if costs else None
    plan.row(NAME, "ns a walk of 20 frames", best is not None and best <= WALK_LIMIT_NS, f"{costs} ns", f"best of three <= {WALK_LIMIT_NS:.0f} ns")


def started(plan, sim, command, what):
    env = {"LD_LIBRARY_PATH": str(sim), "SIM_TRUTH": "", "SIM_LAUNCH_NS": "0", "GAPPROBE_QUIET": "1", **victim.WHOLE}
    ended = victim.Victim(plan, command, ours=True, env=env, name=what).wait(min(60, plan.left() - 2))
    plan.detail(NAME, f"{what} {plan.left():.0f} s left", ended.as_detail())
    return ended.out


def measure(plan, sim, what, *more):
    return started(plan, sim, [sim / "hot_path", what, *more], what)


def run_walk(plan, sim):
    library = sim / "libfrom_python.so"
    if not library.is_file():
        return plan.row(NAME, "walk", NOT_RUN, f"{library} is not there")
    command = [sys.executable, victim.PROGRAMS.parent.parent / "victims" / "depth.py", library, "cost", "20"]
    return judge_walk(plan, [started(plan, sim, command, "walk") for _ in range(3)])


def run(plan, only=None):
    sim = plan.build / "sim" / "13.0"
    if only is None or "walk" in only:
        run_walk(plan, sim)
    if only is None or "event" in only:
        run_events(plan, sim)


def run_events(plan, sim):
    if not (sim / "hot_path").is_file():
        plan.row(NAME, "events", NOT_RUN, f"{sim}/hot_path is not there")
        return
    judge_cost(plan, [measure(plan, sim, "cost") for _ in range(3)])
    judge_tail(plan, "disk idle", [measure(plan, sim, "tail", "100000") for _ in range(3)])
    ballast = plan.scratch / "ballast"
    write = f"while :; do dd if=/dev/zero of={ballast} bs=1M count=256 conv=fsync; done"
    writer = subprocess.Popen(["sh", "-c", write], stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        judge_tail(plan, "disk saturated", [measure(plan, sim, "tail", "100000") for _ in range(3)])
    finally:
        with contextlib.suppress(OSError):
            os.killpg(writer.pid, signal.SIGKILL)
        writer.wait()
        ballast.unlink(missing_ok=True)
