# SPDX-License-Identifier: Apache-2.0
"""Windows where launches are not bound to the driver or the runtime's library but asked for: JAX (XLA), CuPy (ctypes), CUDA C++ with the runtime linked in.
Parts of suite `windows`; each program runs without us, too, and must compute the same."""

from check import native, victim
from check.plan import FAIL, INFO, NOT_RUN

FIXED = {"GAPPROBE_WINDOW": "128/1024", "GAPPROBE_SLOW_STEP": "0"}
BUDGET = {"GAPPROBE_BUDGET": "0.5", "GAPPROBE_TEST_FREE_MS": "100"}
SAME = {"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"}  # two processes compute the same

# name -> (program, its arguments, environment, windows at least (0: it is recorded whole, and the
# line says so), is a launch known that comes once a step)
RUNS = {
    "jax": ("asked_steps", ["jax"], {**FIXED, **SAME}, 3, True),
    "jax_budget": ("asked_steps", ["jax"], {**BUDGET, **SAME}, 1, True),
    # (CuPy asks when it is imported, before we attach)
    "cupy": ("asked_steps", ["cupy"], FIXED, 0, False),
    "static": ("static_steps", [], FIXED, 3, True),
    "static_budget": ("static_steps", [], BUDGET, 1, True),
    "static_threads": ("static_steps", ["--threads", "3"], BUDGET, 1, False),  # they are out of step
}
SECONDS_EACH = 25


def judge(plan, suite, name, ended, alone):
    """One program under us, and the same without."""
    _, _, _, least, is_stepped = RUNS[name]
    summary, truth = ended.summary(), ended.truth
    if ended.code != 0 or ended.late or summary is None or not truth or alone.code != 0:
        plan.row(suite, f"{name}: ends well", FAIL,
                 f"exit {ended.code} (without us {alone.code}), late {ended.late}, summary {summary is not None}: {ended.err[-200:]!r}")
        return
    plan.row(suite, f"{name}: results", truth.get("result") == alone.truth.get("result") is not None,
             f"{truth.get('result')}, without us {alone.truth.get('result')}", "the same")
    totals, words = summary.get("totals") or {}, summary.get("attributes") or {}
    windows, between = totals.get("windows") or 0, totals.get("launches_between") or 0
    is_whole = windows == 0 and between == 0 and "no recording windows" in ended.line
    plan.row(suite, f"{name}: windows", windows >= least and between > 0 and "no recording windows" not in ended.line if least else is_whole,
             f"{windows} windows, {between} launches between them, {totals.get('launches')} recorded; {words.get('windows')}; {ended.line[:200]}", f">= {least}" if least else "none, and said")
    true, counted = truth["true_steps"], totals.get("clock_steps")
    plan.row(suite, f"{name}: steps", abs((counted or 0) - true) <= true // 50 if is_stepped else INFO, f"{counted} counted, {true} true", "±2 %")
    lost = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    # (XLA names a range for each kernel, between windows too: dropped there, which is a note)
    plan.row(suite, f"{name}: losses", not [k for k in lost if not k.startswith("range_")], lost or "none", "none but names of ranges")
    sources = (summary.get("versions") or {}).get("sources")
    plan.row(suite, f"{name}: cost", INFO, f"{(summary.get('cost') or {}).get('share', 0):.2%} said; {ended.took_s:.1f} s, without us {alone.took_s:.1f}; {sources}")


def run(plan, suite, only):
    """Those of them that are asked for by name: they take a minute and a half together."""
    names = [n for n in RUNS if n in (only or ())]
    made = native.built(plan, "static_steps") if any(RUNS[n][0] == "static_steps" for n in names) else {}

    def start(name, ours):
        program, arguments, env, _, _ = RUNS[name]
        if program == "static_steps":
            return victim.Victim(plan, [made[program], *arguments], ours=ours, env={**env, **native.cupti()}, name=name)
        return victim.jax_program(plan, program, *arguments, ours=ours, env=env)

    for name in names:
        if RUNS[name][0] == "static_steps" and not made:
            plan.row(suite, name, NOT_RUN, "no nvcc")
            continue
        starts = [(ours, lambda n=name, o=ours: start(n, o)) for ours in (False, True)]
        ended = victim.several_at_once(plan, starts, seconds_each=SECONDS_EACH, jobs=1)
        if None in (ended.get(False), ended.get(True)):
            plan.row(suite, name, NOT_RUN, "no time left")
            continue
        plan.detail(suite, name, ended[True].as_detail())
        judge(plan, suite, name, ended[True], ended[False])
