# SPDX-License-Identifier: Apache-2.0
"""The rows of the suite `said`, from the rounds that processes played in turns and from what one free run said and did."""

import random

from check import pairing, turns
from check.plan import FAIL, INFO, NOT_RUN, PASS
from suites.always_on_closed import CLOSED
from suites.always_on_judge import BASE, LEAST_ROUNDS, judge_spread, open_ones, words

NAME = "said"
OURS = "ours"
WIDENED = 2.0  # points: what is said may be so far outside of the interval of what is true
WIDEST = 6.0  # points: a wider interval tells nothing
FREE_S, SHARE = 2.0, 0.005  # what a run may lose to being recorded: seconds, and of its time
FRONT_STEPS = 20  # of a run that do not count: compilers, autotuners, the first of everything
# Behind the moment from which nothing is wanted: CUPTI is switched when no flush of its buffers is
# under way, and what was launched before is still recorded.
SETTLES_S = 0.3
LEAST_STEPS = 20


def said_of(summary):
    """((%, least, most) by which a recorded step takes longer as the run measured it, or None, why there is none)."""
    if summary is None:
        return None, "no summary"
    totals = summary.get("totals") or {}
    most = totals.get("longer_most_ppm") or 0
    if not most:
        attributes = summary.get("attributes") or {}
        return None, f"the run measured nothing (windows: {attributes.get('windows')})"
    return tuple((totals.get(key) or 0) / 1e4 for key in ("longer_ppm", "longer_least_ppm", "longer_most_ppm")), ""


def more(rounds, side, base):
    """(middle, low, high), % of a step of `base`."""
    return tuple(100 * v for v in pairing.two_level(turns.times(rounds, side), turns.times(rounds, base), pairing.SHARE)[0])


def off_spans(summary, seen=()):
    """[(from, to)] in which nothing was recorded because no window was open, ns; `seen`: those that `gapprobe ps` told of meanwhile, for what is left of a long
    recording may not go back so far."""
    return [(u["from_ns"], u["to_ns"]) for u in (summary.get("coverage") or {}).get("unobserved") or [] if "window" in u["reason"]] + list(seen)


def sorted_steps(clock, summary, seen=()):
    """([(second, took)] of the steps that may have been recorded, the same of those that nobody recorded), s, without the run's front. A flush may take
    seconds beside a graph's replays, and a window that has ended costs as much as before until it is over: docs/windows.md."""
    settles = SETTLES_S * 1e9 + ((summary.get("totals") or {}).get("longest_flush_ns") or 0)
    began, at, spans = clock["began_ns"], clock["at_us"], off_spans(summary, seen)
    recorded, others = [], []
    for a, b in list(zip(at, at[1:]))[FRONT_STEPS:]:
        is_off = any(start + settles <= began + a * 1000 and began + b * 1000 <= stop for start, stop in spans)
        (others if is_off else recorded).append((int(a // 1e6), (b - a) / 1e6))
    return recorded, others


def blocks(steps):
    """[(how many, their time)] of each second."""
    found = {}
    for second, took in steps:
        n, sum_ = found.get(second, (0, 0.0))
        found[second] = n + 1, sum_ + took
    return list(found.values())


def each(steps):
    """Mean step time, of blocks."""
    count, took = (sum(column) for column in zip(*steps))
    return took / count


def paid(clock, summary, seen=(), draws=1000, seed=1):
    """What being recorded cost one run by its own clock: {"s": (middle, low, high), "limit_s", "run_s", ...}; "s" None: it cannot be told.

    What recorded steps took is known, what they would have taken is not: the interval is of that, from as many seconds of steps that nobody recorded, drawn
    twice (so few are known, and those would have been a few of them)."""
    recorded, others = sorted_steps(clock, summary, seen)
    run_s = clock["at_us"][-1] / 1e6
    took = sum(t for _, t in recorded)
    facts = {"run_s": run_s, "limit_s": FREE_S + SHARE * run_s, "recorded_steps": len(recorded), "other_steps": len(others), "recorded_s": took, "s": None}
    if len(recorded) < LEAST_STEPS or len(others) < LEAST_STEPS:
        return facts
    draw, theirs, like = random.Random(seed), blocks(others), len(blocks(recorded))
    known = (draw.choices(theirs, k=len(theirs)) for _ in range(draws))
    low, high = pairing.ends([took - len(recorded) * each(draw.choices(some, k=like)) for some in known])
    return {**facts, "s": (took - len(recorded) * each(theirs), low, high)}


def looks(clock):
    """[(quarter of a second, steps that began in it, their mean, ms)]: for the result file."""
    at, found = clock["at_us"], {}
    for a, b in zip(at, at[1:]):
        found.setdefault(int(a // 250e3), []).append(b - a)
    return [(quarter, len(v), round(sum(v) / len(v) / 1e3, 4)) for quarter, v in sorted(found.items())]


def judge_said(plan, program, said, why_none, true, text, why_not):
    """Whether what was said is what is true, as far as that is known."""
    low, high = true[1:]
    heard = f"said {words(*said, '%')}" if said else f"said nothing: {why_none}"
    text = f"{heard}; true {words(*true, '%')} {text}"
    if why_not:
        result, text = NOT_RUN, f"{why_not}: {text}"
    elif said is None:
        result = NOT_RUN
    elif high - low > WIDEST:
        result, text = NOT_RUN, f"known to {high - low:.1f} points only: {text}"
    else:
        result = PASS if low - WIDENED <= said[0] <= high + WIDENED else FAIL
    return plan.row(NAME, f"{program}: said", result, text, f"within {WIDENED:.0f} points of it")


def judge_paid(plan, program, facts):
    text = (f"of {facts['recorded_s']:.1f} s that may have been recorded of {facts['run_s']:.1f} "
            f"({facts['recorded_steps']} steps, {facts['other_steps']} were not)")
    limit = f"{facts['limit_s']:.2f} s"
    if facts["s"] is None:
        return plan.row(NAME, f"{program}: paid", NOT_RUN, f"too few steps on one side {text}", limit)
    middle, low, high = facts["s"]
    result = FAIL if low > facts["limit_s"] else PASS if high <= facts["limit_s"] else NOT_RUN
    return plan.row(NAME, f"{program}: paid", result, f"{'cannot be told: ' if result == NOT_RUN else ''}{words(middle, low, high, 's')} {text}", limit)


def whole(facts):
    """Why not everything was recorded on the side that records everything; "" where it was."""
    ranks = [r for f in facts for r in f["ranks"]]
    closed = [r for r in ranks if r["windows"] != 0]
    if len(ranks) < len(facts) or not facts:
        return f"{len(facts) - len(ranks)} of {len(facts)} left no summary"
    return f"{len(closed)} of {len(ranks)} that record everything closed a window" if closed else ""


def judge_turns(plan, program, said, why_none, rounds, facts):
    """Rows of the rounds: what a recorded step costs beside what was said of it, and what an attached CUPTI costs."""
    if len(rounds) < LEAST_ROUNDS:
        return plan.row(NAME, f"{program}: rounds", NOT_RUN, f"{len(rounds)} whole ones", f">= {LEAST_ROUNDS}")
    judge_spread(plan, program, rounds, NAME)
    counts = {side: len(turns.processes(rounds, side)) for side in (OURS, CLOSED, BASE)}
    of_side = {side: [facts[n] for n in turns.processes(rounds, side) if n in facts] for side in counts}
    base = pairing.median([t for times in turns.times(rounds, BASE) for t in times])
    why_not = "dry: nothing is preloaded" if plan.dry else whole(of_side[OURS]) or open_ones(of_side[CLOSED])
    against = CLOSED if counts[CLOSED] else BASE
    true = more(rounds, OURS, against)
    plan.detail(NAME, f"{program} true", true)
    text = f"of {base:.2f} ms ({counts[OURS]} processes against {counts[against]} {against}, {len(rounds)} rounds)"
    judge_said(plan, program, said, why_none, true, text, why_not)
    for side, word in ((CLOSED, "attached"), (OURS, "recorded")):
        if counts[side]:
            text = f"{why_not}{': ' if why_not else ''}{words(*more(rounds, side, BASE), '%')} against {counts[BASE]} without us"
            plan.row(NAME, f"{program}: {word}", INFO, text)
    return None


def judge_free(plan, program, clock, summary, seen=()):
    """Rows of the free run; what it said of its cost, and why it said nothing."""
    said, why_none = said_of(summary)
    plan.detail(NAME, f"{program} said", said or why_none)
    if clock is None or summary is None:
        plan.row(NAME, f"{program}: paid", NOT_RUN if plan.dry else FAIL, "no clock" if clock is None else why_none)
        return said, why_none
    facts = paid(clock, summary, seen)
    plan.detail(NAME, f"{program} paid", facts)
    plan.detail(NAME, f"{program} looks", looks(clock))
    plan.detail(NAME, f"{program} off", [[round((ns - clock["began_ns"]) / 1e9, 3) for ns in span] for span in off_spans(summary, seen)])
    judge_paid(plan, program, facts)
    return said, why_none
