# SPDX-License-Identifier: Apache-2.0
"""What gapprobe adds to bare CUPTI (same kinds, same call ids, empty handlers, no sampler), by paired blocks in one process, and
the host and GPU memory of a run at its start and after 1,000,000 launches."""

from check import native, pairing, victim
from check.plan import FAIL, INFO, NOT_RUN

NAME = "cost"
ABOUT = "added time a launch and a GPU-bound step over bare CUPTI, host and GPU memory (about 160 s)"

LAUNCH_LIMIT_NS = 150
LAUNCH_LIMIT_SHARE = 0.15  # of what bare CUPTI itself adds
STEP_LIMIT_POINTS = 0.5
LEAST_PAIRS = 200
HOST_LIMIT_MB = 256 + 64  # GAPPROBE_MAX_MB and the steady state beside the rings
GPU_LIMIT_MB = 32


def judge_launch(plan, ended, bases):
    truth = ended.truth
    blocks = truth.get("blocks")
    if not blocks or ended.code != 0:
        return plan.row(NAME, "launch: added to bare CUPTI", FAIL, f"exit {ended.code}: {ended.err[-200:]!r}")
    if not truth.get("switch"):
        return plan.row(NAME, "launch: added to bare CUPTI", FAIL, "gapprobe_test_bare is not exported by the preloaded library")
    added, low, high = pairing.interval([b[0] - b[2] for b in blocks])
    cpu, cpu_low, cpu_high = pairing.interval([b[1] - b[3] for b in blocks])
    ratio, *_ = pairing.interval([b[0] / b[2] for b in blocks], rounds=200)
    bare = pairing.median([b[2] for b in blocks])
    base = pairing.median(bases) if bases else None
    limit = max(LAUNCH_LIMIT_NS, LAUNCH_LIMIT_SHARE * (bare - base) if base else 0)
    plan.row(NAME, "launch: plain, bare CUPTI", INFO,
             f"{base or 0:.0f} ns, {bare:.0f} ns a launch (other processes: compare loosely)")
    plan.row(NAME, "launch: CPU time added", INFO, f"{cpu:+.0f} ns [{cpu_low:+.0f}, {cpu_high:+.0f}] of the thread")
    return plan.row(NAME, "launch: added to bare CUPTI", len(blocks) >= LEAST_PAIRS and added <= limit,
                    f"{added:+.0f} ns [{low:+.0f}, {high:+.0f}], ratio {ratio:.3f}, {len(blocks)} pairs", f"{limit:.0f} ns")


def judge_step(plan, ended):
    truth = ended.truth
    pairs = truth.get("pairs_ms")
    if not pairs or ended.code != 0:
        return plan.row(NAME, "step: mean added", FAIL, f"exit {ended.code}: {ended.err[-200:]!r}")
    if not truth.get("switch"):
        return plan.row(NAME, "step: mean added", FAIL, "gapprobe_test_bare is not exported by the preloaded library")
    points = [(sum(ours) / sum(bare) - 1) * 100 for ours, bare in pairs]
    mean, low, high = pairing.interval(points)

    def p99(chosen):
        ours, bare = ([t for pair in chosen for t in pair[i]] for i in (0, 1))
        return (pairing.quantile(ours, 0.99) / pairing.quantile(bare, 0.99) - 1) * 100

    tail, tail_low, tail_high = pairing.interval(pairs, statistic=p99, rounds=400)
    step = pairing.median([t for p in pairs for t in p[1]])
    enough = len(pairs) >= LEAST_PAIRS
    plan.row(NAME, "step: mean added", enough and mean <= STEP_LIMIT_POINTS,
             f"{mean:+.2f} points [{low:+.2f}, {high:+.2f}] of {step:.2f} ms, {len(pairs)} pairs", f"{STEP_LIMIT_POINTS} points")
    return plan.row(NAME, "step: p99 added", enough and tail <= STEP_LIMIT_POINTS,
                    f"{tail:+.2f} points [{tail_low:+.2f}, {tail_high:+.2f}]", f"{STEP_LIMIT_POINTS} points")


def judge_memory(plan, plain, ours, bare):
    if any(e is None or e.code != 0 for e in (plain, ours)):
        return plan.row(NAME, "memory", FAIL, f"{[(e and e.code, e and e.err[-120:]) for e in (plain, ours)]}")
    p, o = plain.truth, ours.truth
    for when in ("start", "end"):
        host = (o[f"rss_{when}_kb"] - p[f"rss_{when}_kb"]) / 1024
        gpu = (p[f"gpu_free_{when}"] - o[f"gpu_free_{when}"]) / 2**20
        of_bare = (p[f"gpu_free_{when}"] - bare.truth[f"gpu_free_{when}"]) / 2**20 if bare and bare.truth else float("nan")
        name = "start" if when == "start" else f"after {o['launches']:,} launches"
        plan.row(NAME, f"memory: host, {name}", host <= HOST_LIMIT_MB, f"{host:+.0f} MB", f"{HOST_LIMIT_MB} MB")
        plan.row(NAME, f"memory: GPU, {name}", gpu <= GPU_LIMIT_MB, f"{gpu:+.0f} MB (bare CUPTI {of_bare:+.0f})", f"{GPU_LIMIT_MB} MB")
    return None


def run(plan, only=None):
    parts = only or ("launch", "step", "memory")
    made = native.built(plan, "cost_launch", "count")
    pairs = "220" if not plan.quick else "20"
    step = None
    if "step" in parts:
        step = victim.python(plan, "cost_step", "--pairs", pairs if not plan.dry else "3", ours=True, env=victim.WHOLE, gate=True)
    if "launch" in parts and "cost_launch" in made and plan.room_for(NAME, "launch", 25):
        tell = [made["cost_launch"], "--pairs", "300" if not plan.quick else "30", "--core", "3"]
        bases = []
        for turn in range(3):
            ended = victim.Victim(plan, tell if turn == 1 else [*tell[:2], "60", *tell[3:]], ours=turn == 1, env={**native.cupti(), **victim.WHOLE}, name="launch").wait(60)
            if turn == 1:
                with_us = ended
            elif ended.truth.get("blocks"):
                bases.append(pairing.median([b[0] for b in ended.truth["blocks"]]))
        plan.detail(NAME, "launch", with_us.as_detail())
        judge_launch(plan, with_us, bases)
    if step is not None:
        if plan.room_for(NAME, "step", 110):
            ended = step.wait(min(240, plan.left() - 2))
            plan.detail(NAME, "step", ended.as_detail())
            judge_step(plan, ended)
        else:
            step.stop()
    if "memory" in parts and "count" in made and plan.room_for(NAME, "memory", 40):
        tell = [made["count"]] + (["--bulk", "50000"] if plan.quick else [])
        runs = [victim.Victim(plan, tell, ours=ours, env={**native.cupti(), **victim.WHOLE, **env}, name="memory").wait(60)
                for ours, env in ((False, {}), (True, {}), (True, {"GAPPROBE_TEST_BARE": "1"}))]
        plan.detail(NAME, "memory", [r.as_detail() for r in runs])
        judge_memory(plan, *runs)
    elif "memory" in parts and "count" not in made:
        plan.row(NAME, "memory", NOT_RUN, "no built program")
