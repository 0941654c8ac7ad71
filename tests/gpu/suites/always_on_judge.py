# SPDX-License-Identifier: Apache-2.0
"""The rows of the suite `always_on`, from the rounds and from what the summaries say was recorded."""

from check import pairing, turns
from check.plan import FAIL, INFO, NOT_RUN, PASS
from suites.always_on_closed import CLOSED

NAME = "always_on"
ABOUT = ("what a run costs against one without us, and against other profilers, in turns of half a second (about 60 s a program; with processes=4 "
         "three to four minutes)")
BASE = "plain"
LEAST_ROUNDS = 10
# The budget is 0.5 % (docs/windows.md), 0.3 % where the GPU is the limit (issue: always on).
LIMITS = {"gpt_large": 0.3}
LIMIT = BUDGET = 0.5
JUDGED = ("budget", CLOSED)
OURS, LIBRARY = "ours", "library:"
MORE = 5.0  # percent of a recorded step that a change may cost where the host is the limit (issue: whose kernels)
ATTACHED = "client:subscribe"  # a client of CUPTI that subscribes and asks for nothing: what CUPTI costs by being there


def words(middle, low, high, unit):
    return f"{middle:+.2f} {unit} [{low:+.2f}, {high:+.2f}]"


def recorded(facts):
    """How much of the steps of a side's processes was recorded, in words; "" where no summary says it."""
    ranks = [r for f in facts for r in f["ranks"]]
    if not ranks:
        return ""
    seen = ", ".join(" and ".join(str(r["seen"]) for r in f["ranks"]) or "?" for f in facts)
    done, windows = (", ".join(str(v) for v in sorted({r[key] for r in ranks}, key=str)) for key in ("all", "windows"))
    return f"; recorded {seen} of {done} steps, " + ("without windows" if windows == "0" else f"windows: {windows}")


def open_ones(facts):
    """Why the rounds of `closed` were not all behind a closed window; "" where they were."""
    closings = [f["closing"] for f in facts]
    late = [c for c in closings if not (c and c["closed"])]
    if late or not facts:
        most = max((c["blocks_s"] for c in late if c), default=None)
        return f"{len(late)} of {len(closings)} did not close" + ("" if most is None else f" in {most:.0f} s of blocks")
    if any(len(f["ranks"]) < f["processes"] for f in facts):
        return "no summary says what was recorded"
    ranks = [(r, f["closing"]["all_steps"]) for f in facts for r in f["ranks"]]
    more = [r for r, _ in ranks if r["windows"] != 1]
    if more:
        return f"another window opened in {len(more)} of {len(ranks)} (alarms: {sum(r['alarms'] or 0 for r in more)})"
    more = [r for r, before in ranks if (r["seen"] or 0) > before]
    return f"{len(more)} of {len(ranks)} recorded more steps than were done before the rounds" if more else ""


def can_be_seen(rounds, side, limit):
    """Whether the interval holds for another process, too: there are several of each kind, or two equal ones are seen to be alike."""
    if min(len(turns.processes(rounds, s)) for s in (side, BASE)) > 1:
        return True
    again = turns.added(rounds, "again", BASE)["percent"] if turns.processes(rounds, "again") else None
    return again is not None and max(abs(again[1]), abs(again[2])) <= limit


def is_cuptis(rounds, limit):
    """Whether a CUPTI that is only there costs more than the limit by itself, by the quietest blocks."""
    return bool(turns.processes(rounds, ATTACHED)) and turns.added(rounds, ATTACHED, BASE)["quiet_percent"][0] > limit


def judge_limit(plan, program, rounds, side, more, text, why_not):
    """A side that is to cost no more than its limit. `why_not`: it was not what was to be measured."""
    limit, (_, low, high) = LIMITS.get(program, LIMIT), more["percent"]
    if why_not:
        result, text = NOT_RUN, f"{why_not}: {text}"
    elif low > limit and is_cuptis(rounds, limit):
        result, text = INFO, f"as much as CUPTI costs by being there: {text}"
    elif low > limit:
        result = FAIL
    elif not can_be_seen(rounds, side, limit):
        result, text = NOT_RUN, f"cannot be seen within {limit} % (what two equal processes differ by is more, or not known): {text}"
    elif high > limit:
        result, text = NOT_RUN, f"cannot be seen within {limit} %: {text}"
    else:
        result = PASS if side == CLOSED or more["p99_percent"][0] <= limit else FAIL
    return plan.row(NAME, f"{program}: {side}", result, text, f"{limit} %")


def judge_above_cupti(plan, program, rounds, why_not):
    """What closed windows cost more than a CUPTI that is only there, by the quietest blocks."""
    more = turns.added(rounds, CLOSED, ATTACHED)
    limit, (_, low, high) = LIMITS.get(program, LIMIT), more["quiet_percent"]
    result = NOT_RUN if why_not else FAIL if low > limit else PASS if high <= limit else NOT_RUN
    plan.detail(NAME, f"{program} {CLOSED} above {ATTACHED}", more)
    plan.row(NAME, f"{program}: {CLOSED}, above an attached CUPTI", result,
             f"{why_not}{': ' if why_not else ''}quiet {words(*more['quiet_percent'], '%')}, {words(*more['quiet_us'], 'us')} a step; all {words(*more['percent'], '%')}", f"{limit} %")


def judge_above_library(plan, program, rounds, library):
    """What recording costs more than with another build of gapprobe."""
    more = turns.added(rounds, OURS, library)
    _, low, high = more["percent"]
    result = FAIL if low > MORE else PASS if high <= MORE else NOT_RUN
    counts = [len(turns.processes(rounds, s)) for s in (OURS, library)]
    plan.detail(NAME, f"{program} {OURS} above {library}", more)
    plan.row(NAME, f"{program}: {OURS}, above {library}", result,
             f"{words(*more['percent'], '%')}, {words(*more['us'], 'us')} a step; {len(rounds)} rounds, {counts[0]} against {counts[1]} processes", f"{MORE} %")


def judge_spread(plan, program, rounds, suite=NAME):
    """What equal processes differ by, where there are several."""
    for side in dict.fromkeys(turns.side_of(n) for n in rounds[0]):
        found = turns.times(rounds, side)
        if len(found) > 1:
            spread = pairing.spread(found)
            plan.detail(suite, f"{program} {side} spread", spread)
            if side == BASE:
                plan.row(suite, f"{program}: equal processes", INFO,
                         f"{len(found)} differ by ±{spread['half_range']:.2%}, SD {spread['sd']:.2%} (the noise of their rounds alone: {spread['noise']:.2%})")


def judge(plan, program, rounds, facts=None):
    """Rows of one program from its rounds. `facts`: by player, what was recorded (always_on_closed.facts_of)."""
    facts = facts or {}
    if len(rounds) < LEAST_ROUNDS:
        return plan.row(NAME, f"{program}: rounds", FAIL, f"{len(rounds)} whole ones", f">= {LEAST_ROUNDS}")
    base = pairing.median([t for times in turns.times(rounds, BASE) for t in times])
    judge_spread(plan, program, rounds)
    for side in dict.fromkeys(turns.side_of(n) for n in rounds[0]):
        if side == BASE:
            continue
        more = turns.added(rounds, side, BASE)
        plan.detail(NAME, f"{program} {side}", more)
        names = turns.processes(rounds, side)
        theirs = [facts[n] for n in names if n in facts]
        counts = len(names), len(turns.processes(rounds, BASE))
        several = f", {counts[0]} against {counts[1]} processes" if max(counts) > 1 else ""
        text = (f"{words(*more['percent'], '%')} of {base:.2f} ms, {words(*more['us'], 'us')} a step; quiet {words(*more['quiet_percent'], '%')}; p99 {words(*more['p99_percent'], '%')}; "
                f"{len(rounds)} rounds{several}{recorded(theirs)}")
        if side in JUDGED:
            why_not = "dry: nothing is preloaded" if plan.dry else open_ones(theirs)
            judge_limit(plan, program, rounds, side, more, text, why_not if side == CLOSED else "")
            if side == CLOSED and turns.processes(rounds, ATTACHED):
                judge_above_cupti(plan, program, rounds, why_not)
        else:
            plan.row(NAME, f"{program}: {side}", INFO, text)
            if side.startswith(LIBRARY) and turns.processes(rounds, OURS):
                judge_above_library(plan, program, rounds, side)
    return None
