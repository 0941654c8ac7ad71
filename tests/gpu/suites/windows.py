# SPDX-License-Identifier: Apache-2.0
"""Recording in windows on a real GPU: steps are counted without CUPTI, the verdict is the whole run's, and nothing breaks while windows
open and close beside CUDA graphs that are captured, instantiated and replayed."""

import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from check import native, victim
from check.plan import FAIL, INFO, NOT_RUN
from suites import ddp, records, windows_asked

NAME = "windows"
ABOUT = ("windows: steps, verdicts, what they cost, and CUDA graphs beside them (about 135 s); part soak: 30 million launches with the machine's CUPTI "
         "and with 13.5 (about 180 s on two GPUs, twice that on one; soak_machine, soak_13.5: one of them); part kept: what CUPTI keeps in memory of a "
         "launch (about 60 s); parts " + ", ".join(windows_asked.RUNS) + ": launches that are asked for (about 20 s each)")
SOAK = 30_000_000
# with which CUPTI -> its release; None: the machine's, which may keep host memory of each launch
# (docs/windows.md)
SOAKS = {"machine": None, "13.5": "13.5"}
WITHOUT_LINE = ("caller_dropped", "site_dropped")  # the call is recorded; where a ring was half full its place was left out
LONGEST = {"pause between emptying the rings": "longest_pause_ns", "write to the recording": "longest_write_ns", "flush": "longest_flush_ns"}
SOAK_S = 200  # less than that left: not begun
LOOKED_AT = 0.1  # window_steps.cu first looks at what there is when this part of the launches was made

# name -> (program, its arguments, GAPPROBE_WINDOW, verdicts that are right; None: any)
RUNS = {
    "mlp_eager": ("mlp_eager", ["--form", "slow", "--steps", "450"], "16/48", ("LAUNCH", "LAUNCH-OPTIMIZER")),
    "gpt_item": ("gpt_item", ["--form", "slow", "--steps", "350"], "16/48", ("SYNC",)),
    "mlp_graph": ("mlp_graph", ["--steps", "6000"], "256/768", ("SMALL-KERNELS", "GPU-BOUND")),
    "graphs": ("window_graphs", ["--seconds", "20", "--threads"], "2/4", None),
    "budget": ("mlp_eager", ["--form", "slow", "--steps", "450"], None, ("LAUNCH", "LAUNCH-OPTIMIZER")),
}
LEAST_WINDOWS = {"mlp_eager": 4, "gpt_item": 4, "mlp_graph": 4, "graphs": 300, "budget": 1}


def judge(plan, name, ended):
    summary, truth = ended.summary(), ended.truth
    if ended.code != 0 or ended.late or summary is None or not truth:
        plan.row(NAME, f"{name}: ends well", FAIL, f"exit {ended.code}, late {ended.late}, summary {summary is not None}: {ended.err[-200:]!r}")
        return
    totals, coverage = summary.get("totals") or {}, summary.get("coverage") or {}
    windows, between = totals.get("windows") or 0, totals.get("launches_between") or 0
    plan.row(NAME, f"{name}: windows", windows >= LEAST_WINDOWS[name] and between > 0,
             f"{windows} windows, {between} launches between them, {totals.get('alarms')} alarms; {ended.line[:60]}", f">= {LEAST_WINDOWS[name]}")
    true, said = truth["true_steps"], coverage.get("steps_run")
    plan.row(NAME, f"{name}: steps of the run", said is not None and abs(said - true) <= max(2, true // 100),
             f"{said} said ({totals.get('clock_steps')} counted), {coverage.get('steps_seen')} seen, {true} true", "±1 %")
    # (a note: now and then CUPTI never gives the end of an operation that a switch fell upon, one
    # of 300,000 beside captures)
    # (and a program that captures graphs without end makes more launches than we remember)
    lost = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    harmless = {"unfinished", "caller_dropped"} if name == "graphs" else {"unfinished"}
    plan.row(NAME, f"{name}: losses", not lost.keys() - harmless, lost or "none", f"none but {' and '.join(sorted(harmless))}")
    verdict = (summary.get("verdict") or {})
    right = RUNS[name][3]
    if right is not None:
        plan.row(NAME, f"{name}: verdict", verdict.get("cause") in right, f"{verdict.get('cause')} {verdict.get('confidence')} {verdict.get('text')}",
                 " or ".join(right))
    if name == "graphs":
        plan.row(NAME, "graphs: results", truth["wrong"] == 0 and truth["graphs"] > 0,
                 f"{truth['graphs']} graphs captured, {truth['replays']} replays, {truth['wrong']} wrong", "0 wrong")
    words = summary.get("attributes") or {}
    plan.row(NAME, f"{name}: cost", INFO, f"{(summary.get('cost') or {}).get('share', 0):.2%} said; {words.get('windows')}; {words.get('windows.cost')}")


def beside_runtime(plan, program, release):
    """(folder that holds the CUDA runtime of a program and the libcupti of a release, None), or (None, why there is none). The libcupti beside the runtime is
    taken before that of GAPPROBE_CUPTI, and a toolkit has one there."""
    library = records.library_of(plan, release)
    if library is None:
        return None, f"no {plan.build / 'cupti' / release}/libcupti.so.*"
    listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
    runtime = re.search(r"(libcudart\.so\S*) => (/\S+)", listed)
    if runtime is None:
        return None, f"no CUDA runtime in {listed[-200:]!r}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"cupti-{release}-", dir=plan.scratch))
    (folder / runtime[1]).symlink_to(runtime[2])
    (folder / library.name).symlink_to(library)
    return folder, None


def judge_soak(plan, name, ended):
    """Windows opening and closing during 30 million launches, graphs and copies among them: nothing grows, nothing is lost unreported."""
    label = f"soak {name}"
    summary, truth = ended.summary(), ended.truth
    if ended.code != 0 or ended.late or summary is None or not truth:
        plan.row(NAME, f"{label}: ends well", FAIL, f"exit {ended.code}, late {ended.late}: {ended.err[-200:]!r}")
        return
    version = (summary.get("versions") or {}).get("cupti") or 0
    used = f"{version // 10_000}.{version // 100 % 100}"  # CUPTI's own number, from 13.0 on: 130500
    release = SOAKS[name]
    path = (summary.get("attributes") or {}).get("cupti.path")
    plan.row(NAME, f"{label}: CUPTI", INFO if release is None else used == release, f"{used}, {path}", release or "")
    totals, losses = summary.get("totals") or {}, summary.get("losses") or {}
    # (a slow moment of the machine has two seconds of steps recorded as one window: totals.alarms)
    due = max(truth["true_steps"] // 1024 - 1 - 17 * (totals.get("alarms") or 0), 1)
    plan.row(NAME, f"{label}: windows", (totals.get("windows") or 0) >= due,
             f"{totals.get('windows')} windows and {totals.get('alarms')} alarms in {truth['launches']:,} launches, {truth['ran_s']} s; {ended.line[:100]}", f">= {due}")
    lost = {k: v for k, v in losses.items() if v and k not in WITHOUT_LINE}
    plan.row(NAME, f"{label}: losses", not lost, lost or "none", "none")
    plan.row(NAME, f"{label}: calls without their line", INFO, sum(losses.get(k) or 0 for k in WITHOUT_LINE))
    plan.row(NAME, f"{label}: longest", INFO, ", ".join(f"{what} {(totals.get(key) or 0) / 1e6:.1f} ms" for what, key in LONGEST.items()))
    zero = losses.get("zero_timestamp")
    plan.row(NAME, f"{label}: zero timestamps", zero == 0, zero, "0")
    # what the summary says CUPTI keeps of all launches at most: a release that is known to keep
    # nothing has none
    kept = 0 if release else ((summary.get("cost") or {}).get("cupti_kept_bytes") or 0) * (1 - LOOKED_AT) / 2**20
    start, end = (truth[f"rss_{when}_kb"] / 1024 for when in ("start", "end"))
    plan.row(NAME, f"{label}: host memory", end - start <= 16 + kept, f"{start:.0f} -> {end:.0f} MB ({end - start:+.0f}), at most {kept:.0f} of it CUPTI's",
             "+16 MB" + (" and what CUPTI keeps" if kept else ""))
    start, end = (truth[f"gpu_free_{when}"] / 2**20 for when in ("start", "end"))
    plan.row(NAME, f"{label}: GPU memory", start - end <= 8, f"{start:.0f} -> {end:.0f} MB free ({start - end:.0f} more in use)", "+8 MB")
    for what in ("threads", "descriptors"):
        a, b = truth[f"{what}_start"], truth[f"{what}_end"]
        plan.row(NAME, f"{label}: {what}", b <= a, f"{a} -> {b}", "none more")


def soak(plan, only):
    """The soaks that are asked for, each on a GPU of its own where there are two."""
    names = [n for n in SOAKS if "soak" in only or f"soak_{n}" in only]
    program = native.built(plan, "window_steps").get("window_steps") if names else None
    if program is None:
        return
    tell = [program, "soak", "--clocks", "0", "--launches", str(SOAK if not plan.quick else 1_000_000)]
    gpus = ddp.gpus(plan)
    starts = []
    for name in names:
        env = {"GAPPROBE_WINDOW": "256/1024", "GAPPROBE_MAX_MB": "64"}
        if SOAKS[name] is None:
            env.update(native.cupti())
        else:
            folder, why = beside_runtime(plan, program, SOAKS[name])
            if folder is None:
                plan.row(NAME, f"soak {name}", NOT_RUN, why)
                continue
            env["LD_LIBRARY_PATH"] = ":".join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        if len(gpus) > 1:
            env["CUDA_VISIBLE_DEVICES"] = gpus[len(starts) % len(gpus)]
        starts.append((name, lambda n=name, e=env: victim.Victim(plan, tell, ours=True, env=e, name=f"soak_{n}")))
    seconds = 20 if plan.quick else SOAK_S
    for name, ended in victim.several_at_once(plan, starts, seconds_each=seconds, jobs=min(max(len(gpus), 1), len(SOAKS))).items():
        if ended is None:
            plan.row(NAME, f"soak {name}", NOT_RUN, "no time left")
            continue
        plan.detail(NAME, f"soak {name}", ended.as_detail())
        judge_soak(plan, name, ended)


# What is switched on, and by what name launches are made (programs/residue.c).
KEPT = [("registered", "A1CGs"), ("records", "A1CGs"), ("records", "A1Cs"), ("records", "A1CGw")]  # G: a graph is instantiated
LAUNCHES_A_WINDOW, WINDOWS_BETWEEN = 25_000, 38  # residue.c's `keep` prints what is resident after 3, 22, 41 and 60 windows


def kept(plan):
    """Bytes of host memory that stay of a launch, by what is switched on and by release: what grows while nothing of ours runs at all."""
    program = plan.scratch / "residue"
    made = subprocess.run(["gcc", "-O1", "-o", program, victim.PROGRAMS / "residue.c", "-ldl", "-lpthread"], capture_output=True, text=True)
    theirs = native.cupti().get("GAPPROBE_CUPTI")
    runtime = next((str(p) for d in sys.path for p in pathlib.Path(d or ".").glob("nvidia/*/lib/libcudart.so.*")), None)
    launcher = native.built(plan, "launch_symbol").get("launch_symbol")
    if made.returncode != 0 or launcher is None or theirs is None or runtime is None:
        plan.row(NAME, "kept", NOT_RUN, f"no gcc, nvcc, CUPTI or CUDA runtime here: {made.stderr[-200:]}")
        return
    runs = [(kinds, way, theirs) for kinds, way in KEPT]
    for release in ("12.9", "13.0", "13.2", "13.4", "13.5"):
        runs += [("records", "A1CGs", str(p)) for p in sorted((plan.build / "cupti" / release).glob("libcupti.so.*"))[:1]]

    def one(run):
        kinds, way, cupti = run
        try:
            done = subprocess.run([program, kinds, way, cupti, runtime, launcher], capture_output=True, text=True, timeout=60)
            resident = re.search(r'kB": \[(\d+), (\d+), (\d+), (\d+)\]', done.stdout)
            return run, resident and (int(resident[4]) - int(resident[2])) * 1024 / (WINDOWS_BETWEEN * LAUNCHES_A_WINDOW), done.stderr[-120:]
        except subprocess.TimeoutExpired:
            return run, None, "more than 60 s"

    with concurrent.futures.ThreadPoolExecutor(plan.jobs) as pool:
        for (kinds, way, cupti), each, err in pool.map(one, runs):
            name = f"kept: {kinds} {way}" + ("" if cupti == theirs else f", {pathlib.Path(cupti).parent.name}")
            plan.row(NAME, name, INFO if each is not None else FAIL, f"{each:.1f} bytes a launch" if each is not None else f"no figure: {err}")


def run(plan, only=None):
    soak(plan, only or ())
    if only is not None and "kept" in only:
        kept(plan)
    windows_asked.run(plan, NAME, only)
    names = [n for n in RUNS if only is None or n in only]

    def start(name):
        program, words, window, _ = RUNS[name]
        env = {"GAPPROBE_WINDOW": window} if window else {"GAPPROBE_BUDGET": "0.5", "GAPPROBE_TEST_FREE_MS": "100"}
        return victim.python(plan, program, *words, ours=True, env=env, gate=True)

    starts = [(n, lambda n=n: start(n)) for n in names]
    if "graphs" in names:
        starts.append(("graphs alone", lambda: victim.python(plan, "window_graphs", "--seconds", "5", "--threads", ours=False, gate=True)))
    for name, ended in victim.one_by_one(plan, starts, seconds_each=15):
        if ended is None:
            plan.row(NAME, name, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, name, ended.as_detail())
        if name == "graphs alone":
            plan.row(NAME, "graphs: without us", ended.code == 0 and ended.truth.get("wrong") == 0, f"exit {ended.code}: {ended.err[-200:]!r}", "ends well")
            continue
        judge(plan, name, ended)
