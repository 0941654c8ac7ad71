# SPDX-License-Identifier: Apache-2.0
"""Verdicts and found steps of the labelled PyTorch programs.

Each program runs three times: both forms alternating in one process without gapprobe (what does the fix really win?),
then each form alone under gapprobe with marks hidden. A label counts only where the real fix wins at least 15 %: else
the program is wrong, not the verdict, and the row says so.
"""

from check import pairing, victim
from check.plan import FAIL, INFO, NOT_RUN

NAME = "verdicts"
ABOUT = "eight labelled PyTorch programs: verdict, found steps, real win of the fix (about 300 s)"

LEAST_WIN = 0.15
NO_WAIT = ("SMALL-KERNELS", "GPU-BOUND")
# program -> causes that are right for the slow form. "proof": the label follows from what the fixed
# form wins.
LABELS = {
    "gpt_item": ("SYNC",),
    "mlp_eager": ("LAUNCH", "LAUNCH-OPTIMIZER"),  # its optimizer is foreach=False, two thirds of its launches
    "host_sleep": ("SLEEP", "HOST"),
    "pageable_copies": ("COPY",),
    "empty_cache": ("ALLOC",),
    "gpt_bound": ("GPU-BOUND",),
    "mlp_graph": NO_WAIT,
    "compiled": "proof",
}
# Programs whose fixed form must win little: it takes the host away, and the label says that the
# host is no limit.
HOST_IS_NO_LIMIT = ("gpt_bound",)
MOST_WIN_IF_BOUND = 0.10
# Programs without a fixed form.
UNFIXABLE = ("mlp_graph",)


def verdict_of(summary):
    """(cause, code, one text for the table) of a summary; all '' where there is none."""
    v = (summary or {}).get("verdict") or {}
    cause, code = str(v.get("cause") or ""), str(v.get("code") or "")
    text = str(v.get("text") or v.get("line") or "")
    return cause, code, " ".join(x for x in (cause, code, str(v.get("confidence") or ""), text) if x)


def steps_of(summary):
    """Steps of the run, warm-up included: recorded ones, and where a window closed those that were only counted; None without a summary."""
    summary = summary or {}
    if (summary.get("totals") or {}).get("windows"):
        return (summary.get("coverage") or {}).get("steps_run")
    return (summary.get("steps") or {}).get("count")


def predicted_win(summary):
    """(share of step time that the verdict's fix is said to win, its error), or None where nothing is promised."""
    v = (summary or {}).get("verdict") or {}
    step, then = v.get("step_ns"), v.get("predicted_ns")
    if not step or not then:
        return None
    return 1 - then / step, (v.get("error_ns") or 0) / step


# A promise is kept if the fixed form's step is within its ±, or within this share of the slow step.
PROMISE_POINTS = 0.08


def kept_promise(slow, fixed):
    """(kept, words): the step that the slow form's summary promises against the one of the fixed form's summary.

    Both ran under the same recorder, each alone in its process: the win measured without gapprobe has another
    denominator (a host-bound slow form takes as long as its host, which varies from process to process).
    None where nothing is promised or the fixed form has no steps.
    """
    v = (slow or {}).get("verdict") or {}
    step, promised, error = v.get("step_ns"), v.get("predicted_ns"), v.get("error_ns") or 0
    truth = ((fixed or {}).get("steps") or {}).get("mean_ns")
    if not step or not promised or not truth:
        return None
    off = abs(promised - truth)
    kept = off <= max(error, PROMISE_POINTS * step)
    return kept, f"{step / 1e6:.2f} -> {promised / 1e6:.2f} (±{error / 1e6:.2f}) ms said, {truth / 1e6:.2f} ms the fixed form"


def expected_causes(program, wins):
    """Causes that are right for the slow form, or None where the real win says that the program is wrong."""
    label, win = LABELS[program], wins.get(program)
    if program in UNFIXABLE:
        return label
    if win is None:
        return label if label != "proof" else ("LAUNCH",) + NO_WAIT
    if label == "proof":
        return ("LAUNCH",) if win >= LEAST_WIN else NO_WAIT
    if program in HOST_IS_NO_LIMIT:
        return label if win < MOST_WIN_IF_BOUND else None
    return label if win >= LEAST_WIN else None


def judge_win(plan, program, ended, wins):
    pairs = ended.truth.get("pairs_ms")
    if not pairs:
        plan.row(NAME, f"{program}: real win", FAIL, f"program failed, exit {ended.code}: {ended.err[-200:]!r}")
        return
    middle, low, high = pairing.win(pairs)
    wins[program] = middle
    slow, fixed = (pairing.median([p[i] for p in pairs]) for i in (0, 1))
    s, f = ended.truth["slow"], ended.truth["fixed"]
    if program in HOST_IS_NO_LIMIT:
        result, limit = middle < MOST_WIN_IF_BOUND, f"< {MOST_WIN_IF_BOUND:.0%}"
    elif LABELS[program] == "proof":
        result, limit = INFO, "decides the label"
    else:
        result, limit = middle >= LEAST_WIN, f">= {LEAST_WIN:.0%}"
    plan.row(NAME, f"{program}: real win", result,
             f"{middle:.1%} [{low:.1%}, {high:.1%}] {slow:.2f} -> {fixed:.2f} ms; issue {s['issue_ms']:.1f}/{f['issue_ms']:.1f} ms, "
             f"kernels {s['kernels'] or 0:.0f}/{f['kernels'] or 0:.0f}, {s['kernel_ms'] or 0:.1f}/{f['kernel_ms'] or 0:.1f} ms", limit)


def judge_run(plan, program, form, ended, wins, summaries):
    summary = summaries[program, form] = ended.summary()
    if ended.code != 0 or ended.late or summary is None:
        plan.row(NAME, f"{program} {form}: verdict", FAIL,
                 f"exit {ended.code}, late {ended.late}, summary {summary is not None}: {ended.err[-160:]!r}")
        return
    cause, _, text = verdict_of(summary)
    right = expected_causes(program, wins)
    if form == "slow":
        if right is None:
            plan.row(NAME, f"{program} {form}: verdict", NOT_RUN, f"program wrong (win {wins[program]:.1%}); says {text}")
        else:
            plan.row(NAME, f"{program} {form}: verdict", cause in right, text, " or ".join(right))
    else:
        accused = LABELS[program] if LABELS[program] != "proof" else ("LAUNCH",)
        if program in HOST_IS_NO_LIMIT:
            plan.row(NAME, f"{program} {form}: verdict", cause in NO_WAIT, text, " or ".join(NO_WAIT))
        else:
            plan.row(NAME, f"{program} {form}: verdict", cause not in accused, text, "not " + " or ".join(accused))
    if form == "slow" and program in wins and predicted_win(summary) is not None:
        win, error = predicted_win(summary)
        plan.row(NAME, f"{program} {form}: predicted win", INFO, f"{win:.1%} (±{error:.1%}) said, {wins[program]:.1%} real")
    slow = summaries.get((program, "slow"))
    promise = kept_promise(slow, summary) if form == "fixed" else None
    named = verdict_of(slow)[0]
    if promise is not None and named in LABELS[program][1:]:
        # it promises what its own fix wins, a part of what the fixed form fixes; the suite `causes`
        # judges such promises
        plan.row(NAME, f"{program}: promise", INFO, f"of {named} alone: {promise[1]}")
    elif promise is not None:
        plan.row(NAME, f"{program}: promise", *promise, f"± or {PROMISE_POINTS:.0%} of the step")
    true, found = ended.truth.get("true_steps"), steps_of(summary)
    plan.row(NAME, f"{program} {form}: steps", found is not None and abs(found - true) <= 1,
             f"{found} found, {true} true ({(summary.get('steps') or {}).get('source')})", "±1")


def run(plan, only=None):
    programs = [p for p in LABELS if only is None or p in only]
    starts = []
    quick = ["--pairs", "5"] if plan.quick else []
    for program in programs:
        if program not in UNFIXABLE:
            starts.append(((program, "win"),
                           lambda p=program: victim.python(plan, p, "--form", "win", *quick, ours=False, gate=True)))
        for form in ("slow",) if program in UNFIXABLE else ("slow", "fixed"):
            options = ["--form", form, "--hide"] + (["--steps", "60"] if plan.quick else [])
            starts.append(((program, form),
                           lambda p=program, o=options: victim.python(plan, p, *o, ours=True, gate=True)))
    wins, summaries = {}, {}
    for (program, form), ended in victim.one_by_one(plan, starts, seconds_each=15):
        if ended is None:
            plan.row(NAME, f"{program} {form}", NOT_RUN, "no time left")
            continue
        plan.detail(NAME, f"{program} {form}", ended.as_detail())
        if form == "win":
            judge_win(plan, program, ended, wins)
        else:
            judge_run(plan, program, form, ended, wins, summaries)
            if form == "slow" and ended.trace() is not None and program == "gpt_item":
                victim.keep(plan, ended.trace(), "trace-gpt_item.json.gz")
