# SPDX-License-Identifier: Apache-2.0
"""Two ranks of one job, a GPU each, one of them starved by its input: what each rank's own verdict says, and what all say together.

The ranks are started as torchrun starts them (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT). The rank that waits for
the other in the all-reduce is COMM, and never GPU-BOUND; the starved one INPUT with its line; `gapprobe summary` names it.
Where the fixed form wins less than the suite `causes` asks for, the program is wrong and no verdict is judged.

Part `hang`: one rank stops, the other waits in a collective without its partner until torch.distributed's watchdog ends it. With us that takes no
longer than without, and what the GPU did before is in the trace.
"""

import gzip
import json
import socket
import subprocess
import time

from check import victim
from check.machine import gpus
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import Trace
from suites.causes import lines_marked, named_causes, right_line
from suites.causes_labels import HEALTHY, LEAST_WIN, SILENT

NAME = "ddp"
ABOUT = "DDP on two GPUs, one rank starved by its input: verdict of each, `gapprobe summary` (about 60 s); part hang: a collective without its partner (about 60 s, 120 at most)"

PROGRAM = victim.PROGRAMS / "ddp.py"
WORLD = 2
STARVED = 1  # the rank whose shard holds large images
STEPS = {"slow": 90, "fixed": 200}
WARMUP, HANG_STEPS = 10, 40  # of the program: a rank stops behind these
START_S = 15  # imports, contexts, NCCL's start
FORM_S = 45  # one form may take as long as this
LEFT_BEHIND_S = 8  # a rank whose partner is gone waits for it in vain
HANG = "hang"
HANG_S = 60  # start, the watchdog's 10 s, and what PyTorch does before it aborts
# The watchdog waits four times this for debug information of all ranks before it ends the process,
# a minute as it is by itself (ProcessGroupNCCL.cpp; without us, too: 60 s were not enough,
# 2026-11-26). Its name in PyTorch until 2.9, and since.
NO_DUMP = {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "500",
           "TORCH_FR_WAIT_TIMEOUT_DUMP_MILSEC": "500"}
LATE_S = 2.0  # so much later than without us a job that hangs may end
INPUT = ("INPUT-WORKERS", "INPUT")
# Launching may be what is left where the host is slow that day; and of 12 ms the loss's operations
# on 1.2 GB, one by one, take 4.6: fused they would move half of it or less.
FIXED = (*HEALTHY, "LAUNCH", "MEMORY-BOUND")
# NVLink multicast stays off: a program that uses it can put GPUs that others share out of service.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def started(plan, form, ours=True):
    """The ranks of one job: {rank: Victim}."""
    job = {"WORLD_SIZE": str(WORLD), "LOCAL_WORLD_SIZE": str(WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
           "OMP_NUM_THREADS": "1", "GAPPROBE_PRINT": "all", "GAPPROBE_TEST_KEEP": "1", **NO_MULTICAST, **(NO_DUMP if form == HANG else {})}
    steps = 12 if (plan.quick or plan.dry) and form != HANG else STEPS.get(form, STEPS["slow"])
    return {r: victim.python(plan, "ddp", "--form", form, "--steps", str(steps), ours=ours,
                             env={**job, "RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(WORLD)}


def ended(plan, ranks):
    """What they left, {rank: Ended}: all within the time of one form; where one fails the others are not waited for."""
    deadline = time.monotonic() + min(FORM_S, plan.left() - 2)
    while time.monotonic() < deadline:
        codes = [v.process.poll() for v in ranks.values()]
        if None not in codes:
            break
        if any(codes):  # one has failed
            deadline = min(deadline, time.monotonic() + LEFT_BEHIND_S)
        time.sleep(0.05)
    return {r: v.wait(0.1) for r, v in ranks.items()}


def judge_win(plan, slow, fixed):
    """Whether the label holds: what the fix wins by the ranks' own clocks."""
    before, after = (max(e.truth["step_ms"] for e in form.values()) for form in (slow, fixed))
    win = 1 - after / before
    good = win >= LEAST_WIN
    plan.row(NAME, "real win", INFO if plan.dry else good, f"{win:.1%}: {before:.2f} -> {after:.2f} ms", f">= {LEAST_WIN:.0%}")
    return good


def judge_rank(plan, form, rank, run):
    """One rank's own verdict."""
    summary = run.summary()
    named = named_causes(summary)
    first = named[0] if named else "none"
    verdict = (summary or {}).get("verdict") or {}
    if form == "fixed":
        expected, good = FIXED, first in FIXED and "COMM" not in named
    elif rank == STARVED:
        expected, good = INPUT, first in INPUT
    else:
        expected, good = ("COMM",), first == "COMM"
    false = not good and first not in (*SILENT, *expected)
    steps = f"{((summary or {}).get('steps') or {}).get('count')} steps found, {run.truth.get('true_steps')} true"
    told = f"{(summary or {}).get('rank')} of {(summary or {}).get('world_size')}"
    plan.row(NAME, f"{form} rank {rank}: verdict", good,
             f"{'FALSE ACCUSATION ' if false else ''}{first} {verdict.get('confidence')} {verdict.get('text')}; {steps}", " or ".join(expected))
    plan.row(NAME, f"{form} rank {rank}: knows its place", told == f"{rank} of {WORLD}", told, f"{rank} of {WORLD}")
    if form == "slow" and rank == STARVED:
        site, marked = verdict.get("site"), lines_marked(PROGRAM)
        said = "; ".join(f"{PROGRAM.name}:{n} in {f}" for n, f in marked.items())
        if site is None:
            plan.row(NAME, f"rank {rank}: line", FAIL, "the verdict names no line", said)
        else:
            plan.row(NAME, f"rank {rank}: line", right_line(PROGRAM, marked, site),
                     f"{site.get('file')}:{site.get('line')} in {site.get('function')}", said)


def together(plan, ranks):
    """(what `gapprobe summary --json` says of all ranks, why not)."""
    folders = [str(e.directory) for e in ranks.values()]
    try:
        done = subprocess.run([plan.build / "gapprobe", "summary", "--json", *folders], capture_output=True, text=True, timeout=30)
        return json.loads(done.stdout), ""
    except (OSError, subprocess.SubprocessError, ValueError) as e:
        return {}, str(e)


def judge_together(plan, form, found, why):
    """The starved rank is named, and nobody where both are fed (two GPUs are never quite alike: for information)."""
    worst = found.get("worst") or {}
    value = found.get("line") or f"no summary of the ranks: {why}"
    if form == "slow":
        good = worst.get("rank") == STARVED and worst.get("stands_out") is True
        return plan.row(NAME, "slow: summary names the slow rank", good, value, f"rank {STARVED} stands out")
    return plan.row(NAME, "fixed: summary", INFO if found else FAIL, value)


def hung_for(run):
    """From a rank's last step to its end, s; None where it got to none."""
    try:
        return run.ended_at - int((run.directory / "last_step").read_text()) / 1e9
    except (OSError, ValueError):
        return None


def judge_hang(plan, plain, ours):
    """The rank that waits, without us and with us: as soon at its end, by the same way."""
    took = [hung_for(e) for e in (plain, ours)]
    if took[0] is None or plain.code == 0 or plain.late:
        return plan.row(NAME, "hang: as without us", NOT_RUN,
                        f"program wrong: exit {plain.code} after {took[0]} s without us, late {plain.late}, {plain.err[-160:]!r}")
    if took[1] is None:
        return plan.row(NAME, "hang: as without us", FAIL, f"no step: exit {ours.code}, {ours.err[-160:]!r}")
    return plan.row(NAME, "hang: as without us", ours.code == plain.code and not ours.late and took[1] <= took[0] + LATE_S,
                    f"exit {plain.code} -> {ours.code}; from the last step to the end {took[0]:.2f} -> {took[1]:.2f} s", f"same, +{LATE_S} s")


def judge_hang_trace(plan, ours):
    """What the GPU did in the last steps is in the trace, after `recover` where the process was killed."""
    line = ours.line
    if not line:
        _, out, err = ours.recover(plan)
        line = out.strip() or err.strip()
    path = ours.trace()
    if path is None:
        return plan.row(NAME, "hang: the last seconds", FAIL, f"no trace: {line[:200]!r}")
    trace = Trace(path)
    reduces = sum("AllReduce" in (k.name or "") for k in trace.kernels)
    hang = WARMUP + HANG_STEPS - 1  # steps whose all-reduce had its partner, but for the first, which may be left out
    return plan.row(NAME, "hang: the last seconds", reduces >= hang, f"{reduces} all-reduces, {len(trace.kernels)} kernels; {line[:160]}",
                    f"{hang} all-reduces")


def run_hang(plan):
    if not plan.room_for(NAME, HANG, 2 * HANG_S):
        return None
    jobs = {}
    for ours in (False, True):
        ranks = started(plan, HANG, ours)
        jobs[ours] = waiting = ranks[1 - STARVED].wait(min(HANG_S, plan.left() - 2))
        ranks[STARVED].stop()
        plan.detail(NAME, f"hang {'with' if ours else 'without'} us", waiting.as_detail())
    judge_hang(plan, jobs[False], jobs[True])
    return None if plan.dry else judge_hang_trace(plan, jobs[True])


def run(plan, only=None):
    if not plan.dry and len(gpus(plan)) < WORLD:
        return plan.row(NAME, "two ranks", NOT_RUN, f"needs {WORLD} GPUs, {len(gpus(plan))} here")
    if only and HANG in only:
        return run_hang(plan)
    forms = {}
    for form in STEPS:
        if not plan.room_for(NAME, form, 3 * START_S):
            return None
        forms[form] = ended(plan, started(plan, form))
        for rank, e in forms[form].items():
            plan.detail(NAME, f"{form} rank {rank}", e.as_detail())
            for recording in e.recordings()[:1]:
                (plan.out / f"ddp.{form}.rank{rank}.gprec.gz").write_bytes(gzip.compress(recording.read_bytes(), 9))
        wrong = [f"rank {r}: exit {e.code}, late {e.late}, {e.err[-160:]!r}" for r, e in forms[form].items()
                 if e.code != 0 or e.late or "step_ms" not in e.truth or (e.summary() is None and not plan.dry)]
        if wrong or plan.dry:
            plan.row(NAME, f"{form}: both ranks end", not wrong, "; ".join(wrong) or "exit 0")
        if wrong:
            return None
    holds = judge_win(plan, forms["slow"], forms["fixed"])
    if plan.dry:
        return None
    if not holds:
        return plan.row(NAME, "verdicts", NOT_RUN, "program wrong")
    for form, ranks in forms.items():
        for rank, e in ranks.items():
            judge_rank(plan, form, rank, e)
        found, why = together(plan, ranks)
        plan.detail(NAME, f"{form}: summary", found)
        judge_together(plan, form, found, why)
    return None
