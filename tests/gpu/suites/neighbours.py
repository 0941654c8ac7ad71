# SPDX-License-Identifier: Apache-2.0
"""Other profilers in the same process: torch.profiler (in four ways), JAX's profiler and Triton's Proton give the same events with us as without, five or three times; and a
client that takes the subscription half-way and asks for nothing else leaves no call of ours untold."""

import collections

from check import victim
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import Trace
from suites import neighbours_torch
from suites.neighbours_torch import WAYS, YIELDED

NAME = "neighbours"
ABOUT = "torch.profiler (five times in a process, a hundred times, and in four other ways), the JAX profiler (five) and Proton (three, in four ways), with and without us; a subscriber (about 300 s)"

# Proton brings a libcupti of its own: where it is loaded before we attach we stay away, and forced
# it is led to ours.
AWAY, FORCED = "proton", "proton_forced"
# Where it is loaded after that: seconds from then to its first profile. At once it may have opened
# its own before we see it (we look four times a second): it keeps that, and we leave. After a
# second it was led to ours.
LATE = {"proton_late": 0, "proton_late_rest": 1}

MANY = 5  # profiles
GPU_KINDS = ("kernel ", "gpu_memcpy ", "gpu_memset ")


def difference(plain, ours):
    """{name: (without us, with us)} where the counts differ."""
    return {k: (plain.get(k, 0), ours.get(k, 0)) for k in sorted(set(plain) | set(ours)) if plain.get(k, 0) != ours.get(k, 0)}


def judge(plan, who, plain, ours):
    without, with_us = plain.truth.get("profiles"), ours.truth.get("profiles")
    if not without or not with_us or plain.code != 0 or ours.code != 0:
        return plan.row(NAME, f"{who}: ran", FAIL,
                        f"exit {plain.code} -> {ours.code}: {plain.err[-160:]!r} {ours.err[-160:]!r}")
    events = sum(without[0].values())
    if events == 0:
        return plan.row(NAME, f"{who}: ran", NOT_RUN, "the profiler sees no GPU events even without us")
    for turn, (a, b) in enumerate(zip(without, with_us), 1):
        odd = difference(a, b)
        on_gpu = {k: v for k, v in odd.items() if who not in WAYS or k.startswith(GPU_KINDS)}
        calls = {k: v for k, v in odd.items() if who in WAYS and k not in on_gpu}
        if not odd and MANY < turn < len(without):
            continue  # a row for the first ones, the last and those that are not equal
        plan.row(NAME, f"{who}: GPU events, profile {turn}", not on_gpu,
                 f"{sum(a.values())} events without us, {sum(b.values())} with; {on_gpu or 'all counts equal'}", "equal by name")
        if who in WAYS:
            plan.row(NAME, f"{who}: API and other events, profile {turn}", not calls, str(calls or "all counts equal"), "equal by name")
    if len(without) != len(with_us):
        plan.row(NAME, f"{who}: profiles", FAIL, f"{len(without)} without us, {len(with_us)} with", "equal")
    if who in WAYS:
        neighbours_torch.judge_way(plan, NAME, who, plain, ours)
        neighbours_torch.judge_kernel_time(plan, NAME, who, plain, ours)
        neighbours_torch.judge_recorded(plan, NAME, who, ours)
    if who == AWAY:
        talk = ours.our_lines
        return plan.row(NAME, f"{who}: we stay away and say so", len(talk) == 1 and "Triton's Proton" in talk[0] and ours.summary() is None, talk[:1] or ours.err[-110:],
                        "1 line")
    # CUPTI gives the first records after a client's clock is registered again in another clock,
    # some say (pytorch/pytorch#192021)
    summary = ours.summary() or {}
    lost = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    unobserved = (summary.get("coverage") or {}).get("unobserved") or ()
    away = [u["to_ns"] - u["from_ns"] for u in unobserved if u["reason"] == YIELDED]
    plan.row(NAME, f"{who}: our losses", INFO, f"{lost or 'none'}; {len(away)} spans yielded, {sum(away) / 1e9:.1f} s")
    talk, reports = ours.our_lines, [line for line in ours.our_lines if " [GP" in line]
    most = 2 if who in LATE else 1
    return plan.row(NAME, f"{who}: and we still report", bool(summary) and len(reports) == 1 and len(talk) <= most,
                    f"{len(talk)} lines: {ours.line[:110] or ours.err[-110:]}", "the report" if most == 1 else "the report, and a line more at most")


def judge_subscriber(plan, without, with_one):
    """The same program twice under us, in the second run with a subscriber from the middle on: as many calls of each name are told."""
    paths = without.trace(), with_one.trace()
    if None in paths or without.code or with_one.code or with_one.truth.get("subscribed") != 0:
        return plan.row(NAME, "subscriber: ran", FAIL, f"exit {without.code}, {with_one.code}; {with_one.truth}; {with_one.err[-160:]!r}")
    a, b = (dict(collections.Counter(c.name for c in Trace(p).calls)) for p in paths)
    odd = difference(a, b)
    return plan.row(NAME, "subscriber: calls told", bool(a) and not odd, f"{sum(a.values())} calls without it, {sum(b.values())} with; "
                    f"{odd or 'all counts equal'}", "equal by name")


def run_subscriber(plan):
    starts = [(on, lambda on=on: victim.python(plan, "subscribed_torch", *(["--subscribe"] if on else []), ours=True)) for on in (False, True)]
    ended = victim.several_at_once(plan, starts, seconds_each=20)
    if None in (ended.get(False), ended.get(True)):
        return plan.row(NAME, "subscriber", NOT_RUN, "no time left")
    plan.detail(NAME, "subscriber", {"without": ended[False].as_detail(), "with": ended[True].as_detail()})
    return judge_subscriber(plan, ended[False], ended[True])


def program_of(who):
    """The program of a part, and its arguments."""
    words = WAYS[who][0] if who in WAYS else ("--late", str(LATE[who])) if who in LATE else ()
    return [f"profiled_{who.partition('_')[0]}", *words]


def run(plan, only=None):
    if only is None or "subscriber" in only:
        run_subscriber(plan)
    who = [w for w in (*WAYS, "jax", AWAY, FORCED, *LATE) if only is None or w in only]

    def start(w, ours):
        run = victim.jax_program if w == "jax" else victim.python
        env = WAYS[w][1] if w in WAYS else {"GAPPROBE_FORCE": "1"} if w == FORCED else None
        return run(plan, *program_of(w), ours=ours, env=env, **({"gate": True} if w in WAYS else {}))

    def starts(of_torch):
        return [((w, u), lambda w=w, u=u: start(w, u)) for w in who if (w in WAYS) == of_torch for u in (False, True)]

    # (kernels' times are compared: nothing else may be on the GPU)
    ended = dict(victim.one_by_one(plan, starts(True), seconds_each=25))
    ended.update(victim.several_at_once(plan, starts(False), seconds_each=25))
    for w in who:
        pair = ended.get((w, False)), ended.get((w, True))
        if None in pair:
            plan.row(NAME, w, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, w, {"plain": pair[0].as_detail(), "ours": pair[1].as_detail()})
        judge(plan, w, *pair)
