# SPDX-License-Identifier: Apache-2.0
"""What ncu says of three kernels of a loop of programs/used.py, against what GPM's counters said of the loop. ncu sees kernels alone and GPM all time,
so ncu's share is multiplied with the share of the time in which kernels ran. Clocks are left alone; under ncu they are higher than under a power cap,
which shares of the multiprocessors' cycles do not mind, but those of the memory do (bf16: 21 % in ncu, 17 in the loop; H200, 2026-11-29)."""

import csv
import re
import sys

from check import victim
from check.plan import FAIL, INFO, NOT_RUN
from suites import around

NAME = "used"
SECONDS, SECONDS_EACH = 2, 30
PEAK = ".avg.pct_of_peak_sustained_elapsed"
METRICS = {
    "tensor": f"sm__pipe_tensor_cycles_active{PEAK}", "hmma": f"sm__pipe_tensor_op_hmma_cycles_active{PEAK}",
    "fma": f"sm__inst_executed_pipe_fma{PEAK}", "fma cycles": f"sm__pipe_fma_cycles_active{PEAK}",
    "fma heavy": f"sm__pipe_fmaheavy_cycles_active{PEAK}", "fma lite": f"sm__pipe_fmalite_cycles_active{PEAK}",
    "dram": f"dram__throughput{PEAK}", "dram B/s": "dram__bytes.sum.per_second",
    "clock": "sm__cycles_elapsed.avg.per_second", "s": "gpu__time_duration.sum",
}
SHOWN = {"dram B/s": (1e-9, "GB/s"), "clock": (1e-6, "MHz"), "s": (1e3, "ms")}
# What GPM's share is held against. For FP32 the instructions: ncu's list has them, and no cycles of
# that pipe, among what is read while kernels run ("_realtime"), as GPM does. The first run on a
# GPU tells whether it is so: the others are printed.
JUDGED = {"bf16": "tensor", "fp32": "fma", "memory": "dram"}
# (eight launches: tensors are filled, the clock is read, three rounds to warm up)
OPTIONS = ("--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", "none",
           "--launch-skip", "8", "--launch-count", "3", "--metrics", ",".join(METRICS.values()))
PREFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
UNIT = re.compile(r"([numKMGT]?)(?:s|sec|second|[hH]z|byte|cycle|inst)s?")


def installed():
    return around.installed("ncu")


def factor(unit):
    """What one of this unit is in %, seconds, bytes, Hz; None: not a unit that we know."""
    if unit in ("%", ""):
        return 1.0
    parts = [UNIT.fullmatch(part) for part in unit.split("/")]
    if len(parts) > 2 or None in parts:
        return None
    factors = [PREFIXES[part.group(1)] for part in parts]
    return factors[0] / factors[1] if len(factors) == 2 else factors[0]


def number(text, unit):
    try:
        return float(text.replace(",", "")) * factor(unit)
    except (ValueError, TypeError):  # ("n/a", or no unit that we know)
        return None


def parse(text):
    """Kernels in the output of `ncu --csv --page raw`: [{"kernel": its name, one of METRICS: value or None}]. That is a line of names, one of units,
    then a line a kernel; what ncu and the program say stands among them."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    first = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    table = list(csv.reader(lines[first:]))
    if len(table) < 3:
        return []
    names, units = table[0], dict(zip(table[0], table[1]))
    rows = [dict(zip(names, row)) for row in table[2:] if len(row) == len(names)]
    known = [(short, name) for short, name in METRICS.items() if name in units]
    return [{"kernel": row.get("Kernel Name", ""), **{short: number(row[name], units[name]) for short, name in known}} for row in rows]


def typical(kernels):
    """Medians of the kernels that last at least half as long as the longest; what ncu did not say is missing."""
    longest = max((k.get("s") or 0.0 for k in kernels), default=0.0)
    kernels = [k for k in kernels if (k.get("s") or 0.0) >= longest / 2]
    values = {short: sorted(k[short] for k in kernels if k.get(short) is not None) for short in METRICS}
    return {short: found[len(found) // 2] for short, found in values.items() if found}


def run(plan, tool, kind):
    command = [tool, *OPTIONS, sys.executable, victim.PROGRAMS / "used.py", kind, str(SECONDS)]
    return victim.Victim(plan, command, ours=False, env={"LC_ALL": "C"}, name="used-ncu").wait(min(60, plan.left() - 2))


def judge(plan, kind, ended, share, busy, points):
    """`share`: GPM's, 0 to 1, or None; `busy`: share of the time in which kernels ran, or None."""
    kernels, check = parse(ended.out), f"ncu: {kind}"
    plan.detail(NAME, check, {"kernels": kernels, "truth": ended.truth, "share": share, "busy": busy, "took_s": round(ended.took_s, 1)})
    said = (ended.out + ended.err)[-600:]
    if "ERR_NVGPUCTRPERM" in ended.out + ended.err:
        return plan.row(NAME, check, NOT_RUN, "ncu may not read counters here (ERR_NVGPUCTRPERM)")
    if ended.code != 0 or not kernels:
        return plan.row(NAME, check, FAIL, f"exit {ended.code}, {len(kernels)} kernels: {said!r}")
    values, key = typical(kernels), JUDGED[kind]
    shown = [f"{values[short] * by:.1f} {unit}" for short, (by, unit) in SHOWN.items() if short in values]
    shares = [f"{short} {values[short]:.1f}" for short in METRICS if short in values and short not in SHOWN]
    plan.row(NAME, f"{check}: all", INFO, ", ".join([*shares, *shown, f"{len(kernels)} of {kernels[0]['kernel']}"]))
    if share is None or busy is None or key not in values:
        return plan.row(NAME, check, NOT_RUN, f"share by the counters {share}, busy {busy}, {METRICS[key]} {values.get(key)}")
    right = values[key] * busy
    return plan.row(NAME, check, abs(100 * share - right) <= points,
                    f"{100 * share:.1f} % by the counters, {right:.1f} by ncu ({values[key]:.1f} in kernels, {100 * busy:.1f} % of the time)", f"within {points} points")
