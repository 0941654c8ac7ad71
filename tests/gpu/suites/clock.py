# SPDX-License-Identifier: Apache-2.0
"""The clock again after ten minutes. One command may run ten minutes only, so this suite has two parts:
`--only clock:start` starts a program that outlives the command (it measures, sleeps 600 s, measures again);
`--only clock:collect`, ten minutes later on the same machine, judges it. `--only clock:short` does both with 60 s."""

import json
import os
import pathlib
import subprocess
import time

from check import native, victim
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import Trace
from suites import exactness

NAME = "clock"
ABOUT = "the clock checks again after 10 minutes; parts start, collect (ten minutes later, same machine), short"

FOLDER = pathlib.Path("/tmp/gpu-check-clock")
PAUSE_S = 600
# The first half of the program is over by then (it takes about a second): nothing else may have the
# GPU while it measures.
FIRST_HALF_S = 30
PINGS = 1500


def start(plan, program):
    """Start the long program in a session of its own; it is not ended with this run."""
    FOLDER.mkdir(exist_ok=True)
    kept = FOLDER / "count"
    kept.write_bytes(pathlib.Path(program).read_bytes())
    kept.chmod(0o700)
    library = FOLDER / "libgapprobe.so"
    library.write_bytes((plan.build / "libgapprobe.so").read_bytes())
    env = dict(os.environ, **native.cupti(), LD_PRELOAD=str(library), GAPPROBE_DIR=str(FOLDER), TMPDIR=str(FOLDER))
    with open(FOLDER / "stdout", "wb") as out, open(FOLDER / "stderr", "wb") as err:
        p = subprocess.Popen([str(kept), "--ping", str(PINGS), "--bulk", "0", "--pdl", "0", "--graphs", "0", "--pause-s", str(PAUSE_S)],
                             env=env, cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True)
    until = time.monotonic() + FIRST_HALF_S
    while time.monotonic() < until and p.poll() is None and b"pausing" not in (FOLDER / "stdout").read_bytes():
        time.sleep(0.1)
    (FOLDER / "started").write_text(json.dumps({"pid": p.pid, "at": time.monotonic()}))
    plan.row(NAME, "long run", INFO, f"started, pid {p.pid}; collect it in {PAUSE_S + 10} s")


def judge(plan, path, pause_s):
    """Both halves of one trace, before and after the pause."""
    trace = Trace(path)
    times = [k.start for k in trace.kernels]
    if len(times) < 2 * PINGS:
        return plan.row(NAME, "kernels", FAIL, f"{len(times)} of {2 * PINGS}")
    cut = times[PINGS]
    plan.row(NAME, "pause in the trace", cut - times[PINGS - 1] >= pause_s * 0.95e9, f"{(cut - times[PINGS - 1]) / 1e9:.0f} s", f"{pause_s} s")
    for name, keep in (("before", lambda t: t < cut - pause_s * 0.5e9), (f"after {pause_s} s", lambda t: t >= cut - pause_s * 0.5e9)):
        exactness.judge_clock(plan, trace.part(keep), name)
    return None


def collect(plan):
    try:
        began = json.loads((FOLDER / "started").read_text())
    except (OSError, ValueError):
        plan.row(NAME, "long run", NOT_RUN, "none was started on this machine (clock:start)")
        return
    until = min(plan.left() - 15, began["at"] + PAUSE_S + 30 - time.monotonic())
    end = time.monotonic() + max(until, 0)
    while time.monotonic() < end and not list(FOLDER.glob("gapprobe-*.summary.json")):
        time.sleep(1)
    found = sorted(FOLDER.glob("gapprobe-*.json.gz"))
    if not found:
        plan.row(NAME, "long run", NOT_RUN, f"not done {time.monotonic() - began['at']:.0f} s after its start: {(FOLDER / 'stderr').read_text()[-160:]}")
        return
    judge(plan, found[0], PAUSE_S)


def run(plan, only=None):
    part = (only or ["short"])[0]
    if part == "collect":
        collect(plan)
        return
    made = native.built(plan, "count")
    if "count" not in made:
        plan.row(NAME, "whole suite", NOT_RUN, "no built program")
    elif part == "start":
        start(plan, made["count"])
    elif plan.room_for(NAME, "60 s pause", 80):
        tell = [made["count"], "--ping", PINGS, "--bulk", 0, "--pdl", 0, "--graphs", 0, "--pause-s", 60]
        ended = victim.Victim(plan, tell, ours=True, env={**native.cupti(), **victim.WHOLE}, name="clock").wait(min(100, plan.left() - 2))
        plan.detail(NAME, "short", ended.as_detail())
        path = ended.trace()
        if path is None:
            plan.row(NAME, "trace", FAIL, f"exit {ended.code}: {ended.err[-160:]!r}")
        else:
            judge(plan, path, 60)
