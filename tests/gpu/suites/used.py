# SPDX-License-Identifier: Apache-2.0
"""How well the GPU is used, by its own counters (NVML's GPM), against what a loop did by the clock (programs/used.py), at the clock of the
multiprocessors that was read meanwhile; and the CPU time of the thread that reads them."""

import json
import subprocess

from check import victim
from check.plan import FAIL, INFO, NOT_RUN

NAME = "used"
ABOUT = "tensor cores, FP32 pipe, memory bandwidth and PCIe by the GPU's counters, against FLOPs and bytes by the clock (about 20 s each)"
KINDS = ("bf16", "half", "fp32", "memory", "pcie")
SECONDS = 14
POINTS = 3.0  # percent of the peak
CPU_MS = 2.0  # a second
LINK = 5.0  # percent of what the loop moved


def expected(kind, truth, clock_mhz):
    """The share of its peak, percent; None: the peak is not known."""
    if kind == "memory":
        return 100 * truth["a_second"] / truth["bandwidth"]
    a_clock = truth["fp32_a_clock" if kind == "fp32" else "tensor_a_clock"]
    if not a_clock or not clock_mhz:
        return None
    return 100 * truth["a_second"] / (truth["multiprocessors"] * a_clock * clock_mhz * 1e6)


def judge(plan, kind, ended, analyzed):
    truth, counters = ended.truth, (analyzed.get("devices") or [{}])[0].get("counters")
    gauges = analyzed.get("gauges") or {}
    plan.detail(NAME, kind, {"truth": truth, "counters": counters, "gauges": gauges, "line": ended.line})
    if ended.code != 0 or not truth or not counters:
        why = gauges.get("counters_missing")
        return plan.row(NAME, kind, FAIL, f"exit {ended.code}, counters {counters}, {why}: {ended.err[-300:]!r}")
    cpu = truth["nvml_cpu_ns"] / 1e6 / truth["seconds"]
    plan.row(NAME, f"{kind}: CPU time of the thread", cpu <= CPU_MS, f"{cpu:.2f} ms a second", f"<= {CPU_MS} ms")
    if kind == "pcie":
        read = counters["pcie_received_bytes_per_s"]
        off = 100 * abs(read - truth["a_second"]) / truth["a_second"] if read is not None else 100.0
        return plan.row(NAME, kind, off <= LINK, f"{(read or 0) / 1e9:.1f} GB/s by the counters, {truth['a_second'] / 1e9:.1f} by the clock", f"within {LINK} %")
    key = {"memory": "memory_bandwidth_share", "fp32": "fp32_active_share"}.get(kind, "tensor_active_share")
    read, right = counters[key], expected(kind, truth, gauges.get("sm_clock_mhz"))
    if right is None:
        return plan.row(NAME, kind, NOT_RUN, f"no peak or clock is known: {truth}, {gauges}")
    if kind == "fp32":
        idle = counters["tensor_active_share"]
        plan.row(NAME, "fp32: tensor cores", idle is not None and idle <= 0.01, f"{100 * (idle or 0):.1f} %", "<= 1 %")
    return plan.row(NAME, kind, read is not None and abs(100 * read - right) <= POINTS,
                    f"{100 * (read or 0):.1f} % by the counters, {right:.1f} by the clock at {gauges.get('sm_clock_mhz')} MHz", f"within {POINTS} points")


def analysis(plan, path):
    done = subprocess.run([plan.build / "gapprobe", "analyze", "--json", path], capture_output=True, text=True, timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def run(plan, only=None):
    for kind in only or KINDS:
        if plan.dry:
            plan.row(NAME, kind, NOT_RUN, "needs a GPU")
        elif plan.room_for(NAME, kind, SECONDS + 12):
            ended = victim.python(plan, "used", kind, str(SECONDS), ours=True, env=victim.WHOLE).wait(min(90, plan.left() - 2))
            judge(plan, kind, ended, analysis(plan, ended.trace()) if ended.trace() else {})
            plan.row(NAME, f"{kind}: line", INFO, ended.line)
