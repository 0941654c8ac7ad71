# SPDX-License-Identifier: Apache-2.0
"""What a run costs once its first window is closed, by what is switched on and off inside one process (programs/switched.py): gapprobe's own
code in the program's calls, step by step; how long that code takes in each step, by clocks around it, which tells of single steps what pairs cannot; and a CUPTI that is attached and asked for nothing, block by block, each against the same process without. Equal
processes differ by 1 to 3 % for as long as they live (`always_on`); neighbouring steps of one process do not.

What this does not hold: gapprobe's own threads (they are there in both kinds of blocks), and launches whose address a launcher keeps in a table of its own
(Triton's: there all the time). With CUDA graphs CUPTI cannot be taken away (cuptiFinalize): their row is `always_on`'s `client:subscribe`.

Parts are the programs of `always_on`, `own`, `timed` or `cupti` for one of the three, and `seconds=40` of blocks. `library=/other/libgapprobe.so`: what a recorded
step takes above bare CUPTI, step by step in a window, with the build and with that one, in two processes of each that take turns; what the build has more is the difference."""

import math
import subprocess

from check import pairing, turns, victim
from check.plan import FAIL, INFO, NOT_RUN, PASS
from suites import ddp
from suites.always_on import number, option
from suites.always_on_judge import LIMIT, LIMITS, MORE, words

NAME = "switched"
ABOUT = "what gapprobe's own code and an attached CUPTI cost between windows, on and off in turns inside one process (about 140 s a program; two GPUs: ddp, if named)"
PROGRAMS = ("gpt_large", "gpt_small", "mlp_eager", "mlp_graph", "compiled", "trainer")
RANKS = "ddp"
NO_FINALIZE = ("mlp_graph", RANKS)  # cuptiFinalize crashes where graphs are, and where another thread (NCCL's watchdog) is in a CUDA call
OWN, TIMED, CUPTI = "own", "timed", "cupti"
SWITCH = {OWN: "slots", TIMED: "timed", CUPTI: "cupti"}
WHAT = {OWN: "gapprobe's own code", TIMED: "its own code, by clocks", CUPTI: "an attached CUPTI"}
RECORDED, EACH = "recorded", 2  # processes of each library
SECONDS = 40
LEAST_PAIRS = 20
Q = 0.99


def trimmed(values):
    """Mean of the middle 60 %: of what a host that stalls gives, it scatters less than the median or the mean."""
    v = sorted(values)
    cut = len(v) // 5
    return pairing.mean(v[cut:len(v) - cut])


def added(pairs):
    """What the first of each pair of blocks has more than the second: {"percent", "us", "mean_percent", "p99_percent": (middle, low, high)}, 95 %.
    `pairs`: step times, ms.

    The middle is the trimmed mean over the pairs of the logarithm of the ratio of the blocks' medians (a host that stalls makes single steps long;
    ratios themselves are more often large than small: of equal blocks that scatter by 8 % their mean is 0.6 % too much), that of "mean_percent"
    the ratio of all time, and the quantile that of all steps of a kind; the intervals are of resampled pairs."""
    middles = [(pairing.median(a), pairing.median(b)) for a, b in pairs]
    sums = [(sum(a), sum(b)) for a, b in pairs]

    def total(chosen):
        return sum(a for a, _ in chosen) / sum(b for _, b in chosen) - 1

    def p99(chosen):
        a, b = ([t for pair in chosen for t in pair[i]] for i in (0, 1))
        return pairing.quantile(a, Q) / pairing.quantile(b, Q) - 1

    found = {"percent": pairing.interval([math.log(a / b) for a, b in middles], statistic=lambda v: math.expm1(trimmed(v)), rounds=1000),
             "mean_percent": pairing.interval(sums, statistic=total, rounds=1000),
             "p99_percent": pairing.interval(pairs, statistic=p99, rounds=300)}
    us = pairing.interval([a - b for a, b in middles], statistic=trimmed, rounds=1000)
    return {**{k: tuple(100 * v for v in three) for k, three in found.items()}, "us": tuple(1e3 * v for v in us)}


def by_clocks(pairs, own):
    """What gapprobe's code takes of a step and by how much it lengthens their 99th percentile, by the clocks around it (ms, as `pairs` those of the steps):
    {"percent", "us", "p99_percent": (middle, low, high), "clocks_us": what the clocks themselves take of a step}.

    Each step is held against itself, shorter by what was measured in it, less what clocks with nothing between them say (the median of the
    steps that go past gapprobe): so the host's own ups and downs, which make any two sets of steps differ by a point or more at their 99th
    percentile, are in both. It is an upper bound: a step may wait for the GPU meanwhile, threads for each other, and an interruption that falls into
    our code would have come anyway. Not in it: what our code takes from the caches of the program's, which is in the mean of the pairs."""
    clocks = pairing.median([t for _, without in own for t in without])
    steps = [(t, max(o - clocks, 0.0)) for (times, _), (owned, _) in zip(pairs, own) for t, o in zip(times, owned)]

    def of(statistic):
        return lambda chosen: statistic([t for t, _ in chosen]) / statistic([t - o for t, o in chosen]) - 1

    p99 = of(lambda values: pairing.quantile(values, Q))
    found = {"percent": pairing.interval(steps, statistic=of(pairing.mean), rounds=300), "p99_percent": pairing.interval(steps, statistic=p99, rounds=300)}
    us = pairing.interval([o for _, o in steps], statistic=pairing.mean, rounds=300)
    return {**{k: tuple(100 * v for v in three) for k, three in found.items()}, "us": tuple(1e3 * v for v in us), "clocks_us": 1e3 * clocks}


def why_not(what, truth, summary, dry):
    """Why the pairs do not show it; "" where they do."""
    if len(truth["pairs"]) < (3 if dry else LEAST_PAIRS):
        return f"{len(truth['pairs'])} pairs, {LEAST_PAIRS} wanted"
    if dry:
        return ""
    if what == CUPTI:
        odd = {k: v for k, v in truth["codes"].items() if not k.endswith(" 0")}
        return f"CUPTI said {odd}" if odd else ""
    if not truth["slots"]:
        return "no slot leads to gapprobe"
    if not truth.get("closed"):
        return f"its window did not close in {truth.get('closing_s', 0):.0f} s"
    windows = ((summary or {}).get("totals") or {}).get("windows")
    return "" if windows == 1 else f"{windows} windows in its summary"


def judge(plan, program, what, ended, rank=None):
    """The row of one program, or of one rank of it; what it has more, or None."""
    who = program if rank is None else f"{program} rank {rank}"
    truth, name = ended.truth, f"{who}: {WHAT[what]}"
    if not truth.get("pairs") or ended.code != 0:
        plan.row(NAME, name, FAIL, f"exit {ended.code}{' (late)' if ended.late else ''}: {ended.err[-200:]!r}")
        return None
    why = why_not(what, truth, ended.summary(), plan.dry)
    more = by_clocks(truth["pairs"], truth["own"]) if what == TIMED else added(truth["pairs"])
    plan.detail(NAME, name, {**more, "blocks": [[round(pairing.median(b), 4) for b in pair] for pair in truth["pairs"]],
                             **{k: v for k, v in truth.items() if k not in ("pairs", "own")}, "summary": ended.summary(), "line": ended.line})
    base = pairing.median([pairing.median(b) for _, b in truth["pairs"]])
    limit = LIMITS.get(program, LIMIT)
    parts = [more["percent"], more["p99_percent"]] if what == TIMED else [more["percent"]]
    low, high = (max(three[i] for three in parts) for i in (1, 2))
    if what == CUPTI:
        result = NOT_RUN if why else INFO
    else:
        result = NOT_RUN if why else PASS if high <= limit else FAIL if low > limit else NOT_RUN
    seen = ""
    if what != CUPTI and not plan.dry:
        coverage = (ended.summary() or {}).get("coverage") or {}
        seen = f"; {truth['slots']} slots, {coverage.get('steps_seen')} steps recorded"
    middle = f"means {words(*more['mean_percent'], '%')}" if what != TIMED else f"clocks alone {more['clocks_us']:.1f} us"
    text = (f"{words(*more['percent'], '%')} of {base:.2f} ms, {words(*more['us'], 'us')} a step; {middle}; "
            f"p99 {words(*more['p99_percent'], '%')}; {len(truth['pairs'])} pairs{seen}")
    plan.row(NAME, name, result, f"{why}: {text}" if why else text, "" if what == CUPTI else f"{limit} %")
    return None if why else more


def judge_both(plan, program, own, cupti):
    """What a closed window costs in all, where CUPTI leaves room for it."""
    limit = LIMITS.get(program, LIMIT)
    middle = own["percent"][0] + cupti["percent"][0]
    # (two independent measurements: the squares of what each interval is wide add up)
    down = sum((m["percent"][0] - m["percent"][1]) ** 2 for m in (own, cupti)) ** 0.5
    up = sum((m["percent"][2] - m["percent"][0]) ** 2 for m in (own, cupti)) ** 0.5
    text = words(middle, middle - down, middle + up, "%")
    if cupti["percent"][1] > limit:
        plan.row(NAME, f"{program}: both", INFO, f"{text}: over the budget by what CUPTI alone costs")
    else:
        plan.row(NAME, f"{program}: both", PASS if middle + up <= limit else FAIL if middle - down > limit else NOT_RUN, text, f"{limit} %")


def library(plan):
    """slots.so, built, with the clocks in it."""
    target = plan.scratch / "slots.so"
    if not target.exists():
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", target, victim.PROGRAMS / "timed.c", victim.PROGRAMS / "slots.c", "-ldl"], check=True)
    return target


def start(plan, program, what, seconds):
    """Its processes, gated: one, of `ddp` one a rank."""
    options = ["--program", program, "--switch", "nothing" if plan.dry else SWITCH[what], "--seconds", str(seconds), "--library", str(library(plan))]
    env = {"GAPPROBE_TEST_FREE_MS": "100", **turns.SAME}
    if what != CUPTI and not plan.dry:
        options += ["--until-closed", str(plan.build / "gapprobe")]
    if program != RANKS:
        return [victim.python(plan, "switched", *options, ours=what != CUPTI, env=env, gate=True)]
    job = {"WORLD_SIZE": str(ddp.WORLD), "LOCAL_WORLD_SIZE": str(ddp.WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(ddp.free_port()),
           "OMP_NUM_THREADS": "1", "GAPPROBE_PRINT": "all", **ddp.NO_MULTICAST}
    return [victim.python(plan, "switched", *options, ours=what != CUPTI, env={**env, **job, "RANK": str(r), "LOCAL_RANK": str(r)}, gate=True)
            for r in range(ddp.WORLD)]


def judge_recorded(plan, program, found):
    """What the build's recorded steps have more than the other library's. `found`: of each (library's name, what ended); a library's figure is the mean of
    its processes'."""
    added_by = {}
    for name, ended in found:
        truth, row = ended.truth, f"{program}: {RECORDED}, {name}"
        if ended.code != 0 or not truth.get("slots") or len(truth.get("pairs") or ()) < LEAST_PAIRS:
            return plan.row(NAME, row, FAIL, f"exit {ended.code}, {truth.get('slots')} slots, {len(truth.get('pairs') or ())} pairs: {ended.err[-200:]!r}")
        more = added(truth["pairs"])
        added_by.setdefault(name, []).append(more)
        base = pairing.median([pairing.median(b) for _, b in truth["pairs"]])
        plan.detail(NAME, f"{row}, process {len(added_by[name])}", {**more, "base_ms": base})
        plan.row(NAME, row, INFO, f"{words(*more['percent'], '%')} of {base:.2f} ms, {words(*more['us'], 'us')} a step above bare CUPTI; {len(truth['pairs'])} pairs")
    (mine, low, high), (other, other_low, other_high) = ([pairing.mean([m["percent"][i] for m in all_of]) for i in range(3)] for all_of in added_by.values())
    middle = mine - other
    # (independent measurements: the squares of what each interval is wide add up)
    down, up = math.hypot(mine - low, other_high - other), math.hypot(high - mine, other - other_low)
    result = PASS if middle + up <= MORE else FAIL if middle - down > MORE else NOT_RUN
    return plan.row(NAME, f"{program}: {RECORDED}, above the other library", result, words(middle, middle - down, middle + up, "%"), f"{MORE} %")


def recorded(plan, program, seconds, other):
    """The build and the other library, in turns."""
    options = ["--program", program, "--switch", "nothing" if plan.dry else RECORDED, "--seconds", str(seconds), "--library", str(library(plan))]
    found = []
    for _ in range(EACH):
        for name, env in (("the build", {}), (other, {"LD_PRELOAD": other})):
            if not plan.room_for(NAME, f"{program}: {RECORDED}", seconds + 30):
                return
            process = victim.python(plan, "switched", *options, ours=not plan.dry, env={**victim.WHOLE, **turns.SAME, **env}, gate=True)
            process.open()
            found.append((name, process.wait(min(seconds + 90, max(plan.left() - 5, 1)))))
    judge_recorded(plan, program, found)


def run(plan, only=None):
    only = only or []
    other = option(only, "library", "")
    only = [o for o in only if not o.startswith("library=")]
    seconds = number(only, "seconds", SECONDS if not plan.quick else 8)
    whats = [w for w in SWITCH if w in only] or list(SWITCH)
    unknown = [o for o in only if o not in (*PROGRAMS, RANKS, *SWITCH) and not o.startswith("seconds=")]
    if unknown:
        raise ValueError(f"no such part: {', '.join(unknown)}")
    programs = [p for p in (*PROGRAMS, RANKS) if p in only] or list(PROGRAMS)
    if RANKS in programs and not plan.dry and len(ddp.gpus(plan)) < ddp.WORLD:
        plan.row(NAME, RANKS, NOT_RUN, f"needs {ddp.WORLD} GPUs, {len(ddp.gpus(plan))} here")
        programs.remove(RANKS)
    if other:
        for program in programs:
            recorded(plan, program, seconds, other)
        return
    todo = [(p, w) for p in programs for w in whats if not (w == CUPTI and p in NO_FINALIZE)]
    waiting, found = [], {}
    while todo or waiting:
        while todo and len(waiting) < 2:  # the next one imports meanwhile
            waiting.append((*todo[0], start(plan, *todo.pop(0), seconds)))
        program, what, processes = waiting.pop(0)
        if not plan.room_for(NAME, f"{program}: {WHAT[what]}", seconds + 20):
            for p in processes:
                p.stop()
            continue
        for p in processes:
            p.open()
        ended = [p.wait(min(seconds + 90, max(plan.left() - 5, 1))) for p in processes]
        for rank, e in enumerate(ended):
            found[program, what] = judge(plan, program, what, e, None if program != RANKS else rank)
    for program in programs:
        pair = [found.get((program, w)) for w in (OWN, CUPTI)]
        if None not in pair:
            judge_both(plan, program, *pair)
