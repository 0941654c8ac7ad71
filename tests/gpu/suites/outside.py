# SPDX-License-Identifier: Apache-2.0
"""Attached in the middle of training: a program that has recording switched off is asked for its next steps from outside, twice, while it trains. What
comes is so many whole steps and the right verdict, and the program ends as it does without us."""

import json
import os
import subprocess
import time

from check import native, victim
from check.plan import FAIL, INFO, NOT_RUN

NAME = "outside"
ABOUT = "`gapprobe capture` of a program that trains with recording off, twice: whole steps, verdict, the program's own end (about 60 s)"

STEPS = 20
# name -> (program, its arguments, verdicts that are right)
RUNS = {
    "mlp_eager": ("mlp_eager", ["--form", "slow", "--steps", "600"], ("LAUNCH", "LAUNCH-OPTIMIZER")),
    "graph": ("window_steps", ["graph", "--ms", "15000", "--clocks", "2000"], None),
}
EAGER_KERNELS = 2700  # a step of mlp_eager, or more (2,766)
GRAPH_KERNELS = 101  # a step: a graph of 100 kernel nodes, and one kernel (window_steps.cu)
TRAINS_S = 4  # before it is asked
EACH_S = 60


def asked(plan, running, turn):
    """What `gapprobe capture` says of a running program: (exit code, summary or None, stderr)."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("GAPPROBE")} | {"TMPDIR": running.directory}
    folder = os.path.join(running.directory, f"captured-{turn}")
    os.mkdir(folder)
    command = [plan.build / "gapprobe", "capture", str(running.process.pid), "--steps", str(STEPS), "--seconds", "15", "--json", "-o", folder]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30)
        return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr
    except (OSError, subprocess.SubprocessError, ValueError) as e:
        return -1, None, str(e)


def judge(plan, name, turn, code, summary, err):
    title = f"{name}, capture {turn}"
    if code != 0 or summary is None:
        return plan.row(NAME, f"{title}: comes", FAIL, f"exit {code}: {err[-200:]!r}")
    steps = (summary.get("steps") or {}).get("count") or 0
    plan.row(NAME, f"{title}: steps", abs(steps - STEPS) <= 1, f"{steps} steps, {(summary.get('steps') or {}).get('source')}", f"{STEPS} ±1")
    lost = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    plan.row(NAME, f"{title}: losses", not lost, lost or "none", "none")
    right = RUNS[name][2]
    verdict = summary.get("verdict") or {}
    if right is None:
        kernels = (summary.get("totals") or {}).get("kernels")
        return plan.row(NAME, f"{title}: kernels", INFO, f"{kernels}; {GRAPH_KERNELS} a step; {verdict.get('cause')}")
    kernels, steady = ((summary.get("devices") or [{}])[0]).get("steady_kernels", 0), steps - ((summary.get("steps") or {}).get("warm_up") or 0)
    # (c074a64: the first quarter of a second held layers of one step, and they were told as 20
    # steps)
    plan.row(NAME, f"{title}: whole steps", steady > 0 and kernels / steady >= EAGER_KERNELS, f"{kernels} kernels in {steady} steady steps", f">= {EAGER_KERNELS} each")
    return plan.row(NAME, f"{title}: verdict", verdict.get("cause") in right, f"{verdict.get('cause')} {verdict.get('confidence')} {verdict.get('text')}",
                    " or ".join(right))


def judge_end(plan, name, plain, ours):
    """The program's own end: it trained on."""
    same = ours.code == plain.code == 0 and not ours.late and bool(ours.truth)
    plan.row(NAME, f"{name}: ends as without us", same, f"exit {plain.code} -> {ours.code}, late {ours.late}, {ours.err[-160:]!r}", "0, 0")
    key = "step_ms" if "step_ms" in plain.truth else "true_steps"
    return plan.row(NAME, f"{name}: {key}", INFO, f"{plain.truth.get(key)} without us, {ours.truth.get(key)} with (two processes: compare loosely)")


def run(plan, only=None):
    names = [n for n in RUNS if only is None or n in only]
    made = native.built(plan, "window_steps") if "graph" in names else {}
    for name in names:
        program, words, _ = RUNS[name]
        if not plan.room_for(NAME, name, EACH_S):
            continue
        if name == "graph" and program not in made:
            plan.row(NAME, name, NOT_RUN, "no program")
            continue

        def start(ours):
            env = {"GAPPROBE_CAPTURE": "profiler", **native.cupti()}
            if name == "graph":
                return victim.Victim(plan, [made[program], *words], ours=ours, env=env, name=name)
            return victim.python(plan, program, *words, ours=ours, env=env)

        plain = start(False)
        plain_ended = plain.wait(EACH_S)
        running, taken = start(True), []
        began = time.monotonic()
        for turn in () if plan.dry else (1, 2):
            # (of the first, its imports and its context as well)
            time.sleep(TRAINS_S + (plain_ended.truth.get("setup_s") or 2) if turn == 1 else 1)
            taken.append(asked(plan, running, turn))
        ours_ended = running.wait(max(EACH_S - (time.monotonic() - began), 5))
        plan.detail(NAME, name, {"plain": plain_ended.as_detail(), "ours": ours_ended.as_detail(), "captures": [s for _, s, _ in taken]})
        for turn, (code, summary, err) in enumerate(taken, 1):
            judge(plan, name, turn, code, summary, err)
        judge_end(plan, name, plain_ended, ours_ended)
