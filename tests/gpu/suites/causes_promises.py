# SPDX-License-Identifier: Apache-2.0
"""The promises of the suite `causes`: what the verdict of a slow form says its fix saves, against what it saved."""

import statistics
from dataclasses import dataclass

from check import pairing
from check.plan import FAIL, INFO

NAME = "causes"
PROMISE_OFF = 0.20  # a promised saving may be off by this share of the measured one
PROMISE_OVER = 0.10  # promising more than that much too much is flagged


@dataclass(frozen=True)
class Limits:
    """`off`, `over`: as above. Of so many promises (`of`) so many are `within` the one at least, so many `above` the other at most."""

    off: float = PROMISE_OFF
    over: float = PROMISE_OVER
    within: int = 20
    above: int = 1
    of: int = 24


OF_IDLE_TIME = Limits()
OF_KERNELS = Limits(0.25, 0.15, 11, 0, 14)  # whose other times are estimates
# What a promise is off by must be known to half of what is flagged, as a standard error: the test
# machine's host stands for 30 to 60 ms now and then, in one run of a form and not in the next (with
# gapprobe and without). Until then both forms run again, up to so many times.
SURE, MOST_RUNS = PROMISE_OVER / 2, 6


def promised_ms(slow):
    """The step time that the verdict of a recorded slow form says its fix saves; None where it says nothing."""
    v, before = (slow.summary() or {}).get("verdict") or {}, slow.truth.get("step_ms")
    if not v.get("step_ns") or not v.get("predicted_ns") or not before:
        return None
    # as a share of the recorded step, of the program's own recorded step: what gapprobe takes for
    # one may be a part of it (host_gil has two equal networks in turn), and the time behind the
    # last launch (the last of host_stall_50's five pauses) is in no step
    return (1 - v["predicted_ns"] / v["step_ns"]) * before


def left_ms(slow):
    """The step time that the verdict of a recorded slow form says is left once its fix is made; None where it says nothing."""
    saving = promised_ms(slow)
    return None if saving is None else slow.truth["step_ms"] - saving


def spread(values):
    """The standard error of the median of these, by their median deviation: one run in which the host stood for long does not count for more than another."""
    middle = statistics.median(values)
    sigma = 1.4826 * statistics.median(abs(v - middle) for v in values)  # of a normal distribution
    return sigma * (1.2533 if len(values) > 2 else 1) / len(values) ** 0.5


def doubt(slow, fixed):
    """The standard error of what the promise is off by, a share of the measured saving: both the times promised and those of the fixed form scatter from
    run to run (the slow form's own time does too, but what is promised goes with it). None: nothing to judge, or fewer than two runs of each."""
    befores, afters = ([run.truth.get("step_ms") for run in runs] for runs in (slow, fixed))
    left = [left_ms(run) for run in slow]
    if min(len(slow), len(fixed)) < 2 or not all(befores) or not all(afters) or not all(left):
        return None
    saved = statistics.median(befores) - statistics.median(afters)
    return (spread(left) ** 2 + spread(afters) ** 2) ** 0.5 / saved if saved > 0 else None


def in_doubt(runs):
    """Of {program: {"slow": its runs, "fixed": its runs}} those that must run again before their promise can be judged."""
    short = {p for p, of in runs.items() if max(len(of["slow"]), len(of["fixed"])) < MOST_RUNS}
    return [p for p in runs if p in short and (doubt(runs[p]["slow"], runs[p]["fixed"]) or 0) > SURE]


def judge_promise(plan, program, slow, fixed, limits=OF_IDLE_TIME):
    """The step time that the verdicts say the slow form's fix saves, against what it saved, by the program's own clock: both forms recorded, each in a
    process of its own, for the line speaks of recorded steps; `slow`, `fixed`: the runs of each, whose medians are compared. Returns by which share of
    the saving it is off; None: nothing promised (or not by each run), which is as far off as can be."""
    def middle(values):
        return statistics.median(values) if values and all(values) else None

    left = middle([left_ms(run) for run in slow])
    before, after = (middle([run.truth.get("step_ms") for run in runs]) for runs in (slow, fixed))
    said = before - left if before and left else None
    if not said or not before or not after or before <= after:
        why = "no step times" if not before or not after else f"the fix saved nothing here: {before:.2f} -> {after:.2f} ms" if before <= after else "nothing promised"
        plan.row(NAME, f"{program}: promise", FAIL, why)
        return None
    saved = before - after
    off = said / saved - 1
    flag = "OVER-PROMISE " if off > limits.over else ""
    plan.row(NAME, f"{program}: promise", abs(off) <= limits.off,
             f"{flag}{said:.2f} ms said, {saved:.2f} ms saved ({off:+.0%}); {before:.2f} -> {after:.2f} ms measured, {len(slow)} and {len(fixed)} runs"
             + (f", known to {error:.1%}" if (error := doubt(slow, fixed)) is not None else ""),
             f"±{limits.off:.0%}, more than +{limits.over:.0%} is flagged")
    return off


def judge_turns(plan, program, slow, turns):
    """For information: the part of a step that the slow form's verdict says its fix saves, against the part it saves where both forms take turns in one process
    and nobody records them. Another measure, with other faults: each form's blocks meet the GPU as the other left it (its power, of which what is
    promised depends, is an average of a second), and a DataLoader's workers go on meanwhile. Returns by which share it is off."""
    rounds = turns.truth.get("rounds_ms") if turns and turns.code == 0 else None
    v = (slow.summary() or {}).get("verdict") or {}
    if not rounds or not v.get("step_ns") or not v.get("predicted_ns"):
        return None
    before, watched = (pairing.median(rounds[form]) for form in ("slow", "recorded"))
    said, (saved, low, high) = 1 - v["predicted_ns"] / v["step_ns"], pairing.win(list(zip(rounds["slow"], rounds["fixed"])), rounds=500)
    recorded = (turns.summary() or {}).get("verdict") or {}
    if saved <= 0:
        plan.row(NAME, f"{program}: in turns", INFO, f"{said:.1%} said, and the fix saved nothing there: {saved:.1%} [{low:.1%}, {high:.1%}]")
        return None
    plan.row(NAME, f"{program}: in turns", INFO, f"{said:.1%} said, {saved:.1%} [{low:.1%}, {high:.1%}] saved ({said / saved - 1:+.0%}) of {before:.2f} ms, "
             f"{watched:.2f} recorded; there it says {recorded.get('cause')}")
    return said / saved - 1


def judge_promises(plan, offs, limits=OF_IDLE_TIME, name="promises"):
    """All of a run together; `offs`: {program: by which share of the saving its promise is off, None where nothing was promised}. Whether they
    are kept."""
    made = {program: off for program, off in offs.items() if off is not None}
    if not made:
        if offs:
            plan.row(NAME, name, FAIL, f"nothing promised: {', '.join(offs)}")
        return not offs
    within, over = sum(abs(o) <= limits.off for o in made.values()), sum(o > limits.over for o in made.values())
    kept = within * limits.of >= limits.within * len(offs) and over * limits.of <= limits.above * max(len(offs), limits.of)
    worst = max(made, key=lambda p: abs(made[p]))
    none = f"; nothing promised: {', '.join(p for p in offs if p not in made)}" if len(made) < len(offs) else ""
    plan.row(NAME, name, kept, f"{within} of {len(offs)} within {limits.off:.0%}, {over} above +{limits.over:.0%}; "
             f"worst {worst} {made[worst]:+.0%}{none}", f"of {limits.of}: {limits.within} at least, {limits.above} at most")
    return kept
