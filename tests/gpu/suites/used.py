# SPDX-License-Identifier: Apache-2.0
"""How well the GPU is used, by its own counters (NVML's GPM), against what a loop did by the clock (programs/used.py) and what ncu says of its
kernels (used_ncu.py); and the CPU time of the thread that reads them.

Peaks are at the mean clock of the multiprocessors, which the program counts (programs/sm_clock.py); where it could not, at NVML's readings of it.
A tensor core also works on what pads a product to whole tiles: 1.6 % more than the FLOPs with tiles of 320 columns (nvjet's on an H200).

Over PCIe the counter says more than the payload: DCGM calls its fields of the same counters bytes "including both header and payload"
(DCGM_FI_PROF_PCIE_RX_BYTES in its dcgm_fields.h). With payloads of 256 bytes that is some 20 a packet (a header of 12, link CRC and framing of 4 each
in PCIe 5), 8 %; it was 7.2 (H200, 2026-11-29). So wide a limit cannot tell MB from MiB, which are 4.9 % apart; that of NVLink can: its counter said 2.4 %
more than the payload (H200, 2026-11-30)."""

import bisect
import gzip
import json
import statistics
import subprocess

from check import pairing, victim
from check.machine import gpus
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import events
from suites import used_ncu, used_phases

NAME = "used"
ABOUT = "tensor cores, FP32 pipe, memory bandwidth, PCIe and NVLink by the GPU's counters, against FLOPs and bytes by the clock (about 20 s each), and ncu"
KINDS = ("bf16", "half", "fp32", "memory", "pcie", "nvlink", "phases", "steps", "ncu")
SECONDS = 14
POINTS = 3.0  # percent of the peak
READING = "GPU 0 multiprocessors %"  # the counter track whose events are when the counters were read
GPT_STEPS, LEAST_READINGS, STEP_PERCENT = 650, 12, 0.1
CPU_MS = 2.0  # a second
LINKS = {"pcie": 1.10, "nvlink": 1.04}  # with headers, of the payload
CLOCKS = 3.0  # percent
SHARES = {"memory": "memory_bandwidth_share", "fp32": "fp32_active_share"}


def clocks(truth, gauges):
    """(MHz to go by, what to say of it)."""
    counted, read = truth.get("sm_mhz"), gauges.get("sm_clock_mhz")
    of_nvml = f"NVML reads {read:.0f}" if read else "NVML reads none"
    if counted:
        return counted, f"at {counted:.0f} MHz by cycles, {of_nvml}"
    return read, f"{of_nvml} MHz, cycles not counted ({truth.get('sm_mhz_missing')})"


def expected(kind, truth, clock_mhz):
    """The share of its peak, percent; None: the peak is not known."""
    if kind == "memory":
        return 100 * truth["a_second"] / truth["bandwidth"]
    a_clock = truth["fp32_a_clock" if kind == "fp32" else "tensor_a_clock"]
    if not a_clock or not clock_mhz:
        return None
    return 100 * truth["a_second"] / (truth["multiprocessors"] * a_clock * clock_mhz * 1e6)


def counters_of(analyzed):
    return (analyzed.get("devices") or [{}])[0].get("counters")


def judge_thread(plan, kind, truth, periods):
    """`periods`: seconds from one reading of GPM to the next, or []."""
    cpu, seconds = truth["nvml_cpu_ns"] / 1e6, truth.get("nvml_cpu_s") or truth["seconds"]
    value = f"{cpu / seconds:.2f} ms a second: {cpu:.1f} ms in {seconds:.1f} s"
    if "nvml_cpu_before_ns" in truth:
        value += f", {truth['nvml_cpu_before_ns'] / 1e6:.1f} before"
    if periods:
        value += f"; {len(periods)} readings, {min(periods):.3f} to {max(periods):.3f} s"
    plan.row(NAME, f"{kind}: CPU time of the thread", cpu / seconds <= CPU_MS, value, f"<= {CPU_MS} ms")


def judge(plan, kind, ended, analyzed, periods=()):
    truth, counters = ended.truth, counters_of(analyzed)
    gauges = analyzed.get("gauges") or {}
    plan.detail(NAME, kind, {"truth": truth, "counters": counters, "gauges": gauges, "line": ended.line, "readings_s": periods})
    if ended.code != 0 or not truth or not counters:
        why = gauges.get("counters_missing")
        return plan.row(NAME, kind, FAIL, f"exit {ended.code}, counters {counters}, {why}: {ended.err[-300:]!r}")
    judge_thread(plan, kind, truth, periods)
    counted, read_mhz = truth.get("sm_mhz"), gauges.get("sm_clock_mhz")
    if counted and read_mhz and 100 * abs(read_mhz - counted) > CLOCKS * counted:
        plan.row(NAME, f"{kind}: NVML's clock", INFO, f"{read_mhz:.0f} MHz, by cycles {counted:.0f}: {100 * (read_mhz / counted - 1):+.1f} %")
    if kind in LINKS:
        read, moved = counters[f"{kind}_received_bytes_per_s"] or 0, truth["a_second"]
        return plan.row(NAME, kind, moved <= read <= moved * LINKS[kind],
                        f"{read / 1e9:.1f} GB/s by the counters, {moved / 1e9:.1f} of payload: {100 * (read / moved - 1):+.1f} %", f"payload x 1 to {LINKS[kind]}")
    key = SHARES.get(kind, "tensor_active_share")
    clock, said = clocks(truth, gauges)
    read, right = counters[key], expected(kind, truth, clock)
    if right is None:
        return plan.row(NAME, kind, NOT_RUN, f"no peak or clock is known: {truth}, {gauges}")
    if kind == "fp32":
        idle = counters["tensor_active_share"]
        plan.row(NAME, "fp32: tensor cores", idle is not None and idle <= 0.01, f"{100 * (idle or 0):.1f} %", "<= 1 %")
    by = "bytes" if kind == "memory" else "FLOPs"
    return plan.row(NAME, kind, read is not None and abs(100 * read - right) <= POINTS,
                    f"{100 * (read or 0):.1f} % by the counters, {right:.1f} by {by}, {said}", f"within {POINTS} points")


def busy(analyzed):
    """Share of the steady time in which kernels ran; None: not known."""
    device = (analyzed.get("devices") or [{}])[0]
    compute, wall = (device.get("buckets_ns") or {}).get("compute"), device.get("steady_wall_ns")
    if compute is not None and wall:
        return compute / wall
    utilization = (analyzed.get("gauges") or {}).get("utilization_pct")
    return None if utilization is None else utilization / 100


def analysis(plan, path):
    done = subprocess.run([plan.build / "gapprobe", "analyze", "--json", path], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def periods_of(text):
    """Seconds from one reading of GPM to the next, by the counter track in a trace; a pause between windows counts as one."""
    at = [e["ts"] for e in events(text) if e.get("ph") == "C" and e.get("name") == READING]
    return [(b - a) / 1e6 for a, b in zip(at, at[1:])]


def around_readings(text):
    """What each reading of the counters adds to the step in which it falls, us, beside the two steps before and the two behind it, of a trace; and the
    mean time between two readings, us."""
    found = list(events(text))
    steps = sorted((e["ts"], e["dur"]) for e in found if e.get("ph") == "X" and e.get("cat") == "step")
    readings = [e["ts"] for e in found if e.get("ph") == "C" and e.get("name") == READING]
    inside = {bisect.bisect_right(steps, (at, float("inf"))) - 1 for at in readings}
    added = []
    for n in sorted(inside):
        beside = [m for m in (n - 2, n - 1, n + 1, n + 2) if 0 <= m < len(steps) and m not in inside]
        if 0 <= n and steps[n][0] + steps[n][1] >= min(readings) and len(beside) == 4:
            added.append(steps[n][1] - sum(steps[m][1] for m in beside) / 4)
    return added, (max(readings) - min(readings)) / max(len(readings) - 1, 1) if readings else 0.0


def judge_steps(plan, text):
    """What reading the counters adds to the steps of the large GPT."""
    added, period = around_readings(text)
    if len(added) < LEAST_READINGS:
        return plan.row(NAME, "steps: added by reading", NOT_RUN, f"{len(added)} readings within steps, {LEAST_READINGS} at least")
    middle, low, high = (100 * us / period for us in pairing.interval(added, statistic=statistics.fmean))
    return plan.row(NAME, "steps: added by reading", -STEP_PERCENT <= low and high <= STEP_PERCENT,
                    f"{middle:+.4f} % [{low:+.4f}, {high:+.4f}] of the large GPT's steps, {len(added)} readings", f"interval within {STEP_PERCENT} %")


def of_phases(plan):
    ended = victim.python(plan, "phases", str(used_phases.STEPS), ours=True, env=victim.WHOLE).wait(min(90, plan.left() - 2))
    path = ended.trace()
    used_phases.judge(plan, NAME, ended, used_phases.of_phases(plan, path) if path else {}, expected)


def paired_steps(plan):
    ended = victim.python(plan, "gpt_bound", "--form", "slow", "--steps", str(GPT_STEPS), ours=True, env=victim.WHOLE).wait(min(150, plan.left() - 2))
    path = ended.trace()
    if ended.code != 0 or path is None:
        return plan.row(NAME, "steps: added by reading", FAIL, f"exit {ended.code}, trace {path is not None}: {ended.err[-200:]!r}")
    return judge_steps(plan, gzip.decompress(path.read_bytes()).decode())


def measure(plan, kind):
    """Runs it with us and judges it; its analysis."""
    ended = victim.python(plan, "used", kind, str(SECONDS), ours=True, env=victim.WHOLE).wait(min(90, plan.left() - 2))
    path = ended.trace()
    analyzed = analysis(plan, path) if path else {}
    judge(plan, kind, ended, analyzed, periods_of(gzip.decompress(path.read_bytes()).decode()) if path else ())
    plan.row(NAME, f"{kind}: line", INFO, ended.line)
    return analyzed


def against_ncu(plan, measured):
    """`measured`: {kind: analysis} of the runs so far; those that are missing are made."""
    tool = used_ncu.installed()
    if tool is None:
        return plan.row(NAME, "ncu", NOT_RUN, "no ncu on this machine")
    for kind in used_ncu.JUDGED:
        if kind not in measured and plan.room_for(NAME, kind, SECONDS + 12):
            measured[kind] = measure(plan, kind)
        if kind in measured and plan.room_for(NAME, f"ncu: {kind}", used_ncu.SECONDS_EACH):
            share = (counters_of(measured[kind]) or {}).get(SHARES.get(kind, "tensor_active_share"))
            used_ncu.judge(plan, kind, used_ncu.run(plan, tool, kind), share, busy(measured[kind]), POINTS)
    return None


def run(plan, only=None):
    measured = {}
    for kind in sorted(only or KINDS, key=lambda k: k == "ncu"):  # (after those that it is held against)
        if plan.dry:
            plan.row(NAME, kind, NOT_RUN, "needs a GPU")
        elif kind == "nvlink" and len(gpus(plan)) < 2:
            plan.row(NAME, kind, NOT_RUN, f"needs 2 GPUs, {len(gpus(plan))} here")
        elif kind == "ncu":
            against_ncu(plan, measured)
        elif kind == "steps":
            if plan.room_for(NAME, kind, 70):
                paired_steps(plan)
        elif kind == "phases":
            if plan.room_for(NAME, kind, used_phases.SECONDS):
                of_phases(plan)
        elif plan.room_for(NAME, kind, SECONDS + 12):
            measured[kind] = measure(plan, kind)
