# SPDX-License-Identifier: Apache-2.0
"""Nothing lost, nothing added: kernels the program counted = kernels recorded = slices in the trace; kernel time as
torch.profiler sees it; and a clock that can be true."""

from check import native, pairing, victim
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import Trace

NAME = "exactness"
ABOUT = "1,000,000 launches counted three ways, kernel time against torch.profiler, clock checks (about 110 s)"

KERNEL_TIME_LIMIT = 0.01
BEFORE_LAUNCH_LIMIT = 1e-4
SYNC_MEDIAN_LIMIT_NS = 20_000
EMPTY_QUEUE_LIMIT_NS = 15_000


def total(summary, key):
    return ((summary or {}).get("totals") or {}).get(key)


def judge_count(plan, ended, title):
    truth, summary = ended.truth, ended.summary()
    if ended.code != 0 or summary is None or not truth:
        return plan.row(NAME, f"{title}: counts", FAIL, f"exit {ended.code}, summary {summary is not None}: {ended.err[-200:]!r}")
    losses = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    kernels, launches = total(summary, "kernels"), total(summary, "launches")
    plan.row(NAME, f"{title}: kernels", kernels == truth["kernels"] == truth["ran"],
             f"{kernels} recorded, {truth['kernels']} launched, {truth['ran']} ran; losses {losses or 0}", "equal")
    plan.row(NAME, f"{title}: launch calls", launches == truth["launches"], f"{launches} recorded, {truth['launches']} made", "equal")
    path = ended.trace()
    if path is None:
        return plan.row(NAME, f"{title}: slices", FAIL, "no trace")
    left_out = ((summary.get("trace_file") or {}).get("left_out") or {}).get("gpu_operations")
    trace = Trace(path)
    lost = trace.dropped_by_perfetto()
    plan.row(NAME, f"{title}: slices", len(trace.kernels) == truth["kernels"] and lost == 0,
             f"{len(trace.kernels)} kernel slices, {lost} that Perfetto would drop, {left_out} left out by size, {path.stat().st_size / 2**20:.1f} MB", "equal, 0")
    return trace


def judge_clock(plan, trace, title):
    known, before = trace.starts_before_launch()
    share = before / known if known else 1.0
    plan.row(NAME, f"{title}: kernels before launch", known > 0 and share <= BEFORE_LAUNCH_LIMIT,
             f"{before} of {known} start before their launch call", "0.01 %")
    distances = trace.synchronize_distances()
    late = sum(d < 0 for d in distances)
    middle = pairing.median(distances) if distances else float("inf")
    plan.row(NAME, f"{title}: end to synchronize", bool(distances) and late == 0 and middle <= SYNC_MEDIAN_LIMIT_NS,
             f"median {middle / 1e3:.1f} us of {len(distances)}, {late} ends after the return", "20 us, 0")
    empty = trace.launch_to_start_on_empty_queue()
    middle = pairing.median(empty) if empty else float("inf")
    plan.row(NAME, f"{title}: launch to start, empty queue", len(empty) >= 100 and middle <= EMPTY_QUEUE_LIMIT_NS,
             f"median {middle / 1e3:.1f} us of {len(empty)}", "15 us")


def judge_kernel_time(plan, pairs):
    """`pairs`: (ours, theirs), each an Ended."""
    ratios, counts = [], []
    for ours, theirs in pairs:
        busy, kernels = total(ours.summary(), "kernel_ns"), total(ours.summary(), "kernels")
        steps, truth = ours.truth.get("steps"), theirs.truth
        if not busy or not truth.get("kernel_ms"):
            plan.row(NAME, "kernel time: per step", FAIL,
                     f"ours exit {ours.code} {busy}, theirs exit {theirs.code}: {(ours.err or theirs.err)[-160:]!r}")
            return
        ratios.append(busy / 1e6 / steps / truth["kernel_ms"])
        counts.append((kernels / steps, truth["kernels"]))
    middle = pairing.median(ratios)
    plan.row(NAME, "kernel time: per step", abs(middle - 1) <= KERNEL_TIME_LIMIT,
             f"{(middle - 1) * 100:+.2f} % of torch.profiler's, pairs {[round((r - 1) * 100, 2) for r in ratios]}", "±1 %")
    plan.row(NAME, "kernel time: kernels a step", all(a == b for a, b in counts),
             f"{counts[0][0]:.2f} ours, {counts[0][1]:.2f} torch.profiler", "equal")


def run(plan, only=None):
    parts = only or ("count", "clock", "kernel_time")
    made = native.built(plan, "count")
    waiting = []
    if "kernel_time" in parts:
        for _ in range(1 if plan.quick else 3):
            waiting.append((("gapprobe",), lambda: victim.python(
                plan, "kernel_time", "--by", "gapprobe", ours=True, gate=True, env={"GAPPROBE_CAPTURE": "profiler"})))
            waiting.append((("profiler",), lambda: victim.python(plan, "kernel_time", "--by", "profiler", ours=False, gate=True)))
    roomy = {**native.cupti(), **victim.WHOLE, "GAPPROBE_MAX_MB": "4096", "GAPPROBE_EXIT_MS": "90000"}
    if "count" not in made and ("count" in parts or "clock" in parts):
        plan.row(NAME, "count, clock", NOT_RUN, "no built program")
    if "clock" in parts and "count" in made and plan.room_for(NAME, "clock", 20):
        tell = [made["count"], "--bulk", "20000", "--pdl", "2000", "--graphs", "20"]
        ended = victim.Victim(plan, tell, ours=True, env=roomy, name="clock").wait(60)
        plan.detail(NAME, "clock", ended.as_detail())
        trace = judge_count(plan, ended, "short run")
        if isinstance(trace, Trace):
            judge_clock(plan, trace, "clock")
            victim.keep(plan, ended.trace(), "trace-count-short.json.gz")
    if "count" in parts and "count" in made and plan.room_for(NAME, "1,000,000 launches", 60):
        tell = [made["count"]] + (["--bulk", "100000"] if plan.quick else [])
        ended = victim.Victim(plan, tell, ours=True, env=roomy, name="count").wait(min(150, plan.left() - 2))
        plan.detail(NAME, "count", ended.as_detail())
        trace = judge_count(plan, ended, "1,000,000 launches")
        if isinstance(trace, Trace):
            judge_clock(plan, trace, "1,000,000 launches")
    runs = []
    for (by,), ended in victim.one_by_one(plan, waiting, seconds_each=12):
        if ended is None:
            plan.row(NAME, f"kernel time by {by}", NOT_RUN, "no time left")
        else:
            plan.detail(NAME, f"kernel time {len(runs)} by {by}", ended.as_detail())
            runs.append(ended)
    pairs = [(runs[i], runs[i + 1]) for i in range(0, len(runs) - 1, 2)]
    if pairs:
        judge_kernel_time(plan, pairs)
    elif waiting:
        plan.row(NAME, "kernel time: per step", INFO, "no complete pair")
