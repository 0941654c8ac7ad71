# SPDX-License-Identifier: Apache-2.0
"""Steps found from the launches alone: as many as there are, and none where there are none."""

from check import victim
from check.plan import FAIL, NOT_RUN
from suites.verdicts import steps_of

NAME = "steps"
ABOUT = "12 equal layers, accumulation, evaluation, generation, no period at all; and marks (about 40 s)"

SHAPES = ("layers", "accumulate", "evaluate", "generate", "unstable")


def judge(plan, shape, marked, ended):
    summary, truth = ended.summary(), ended.truth
    title = f"{shape}{', marked' if marked else ''}"
    if ended.code != 0 or summary is None or not truth:
        return plan.row(NAME, title, FAIL, f"exit {ended.code}, summary {summary is not None}: {ended.err[-200:]!r}")
    found, source = steps_of(summary), (summary.get("steps") or {}).get("source")
    if shape == "unstable":
        return plan.row(NAME, title, not found, f"{found} steps found ({source})", "no steps found")
    if shape == "generate" and not marked:
        right = [n for n in (truth["true_steps"], truth["tokens"]) if found is not None and abs(found - n) <= 1]
        return plan.row(NAME, title, bool(right), f"{found} found ({source}); {truth['true_steps']} requests, {truth['tokens']} tokens",
                        "requests or tokens ±1")
    return plan.row(NAME, title, found is not None and abs(found - truth["true_steps"]) <= 1,
                    f"{found} found ({source}), {truth['true_steps']} true", "±1")


def run(plan, only=None):
    shapes = [s for s in SHAPES if only is None or s in only]
    runs = [(s, False) for s in shapes] + ([("layers", True)] if "layers" in shapes else [])
    starts = [((s, m), lambda s=s, m=m: victim.python(plan, "shapes", "--shape", s, *(["--marks"] if m else []), ours=True))
              for s, m in runs]
    ended = victim.several_at_once(plan, starts, seconds_each=20)
    for s, m in runs:
        if ended.get((s, m)) is None:
            plan.row(NAME, s, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, f"{s} marked={m}", ended[(s, m)].as_detail())
        judge(plan, s, m, ended[(s, m)])
