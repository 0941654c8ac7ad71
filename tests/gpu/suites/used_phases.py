# SPDX-License-Identifier: Apache-2.0
"""The GPU's counters of each phase of a step that lasts for seconds (programs/phases.py), against what the phase did by the clock: of each by its
own unit, and of the other unit next to nothing. The counters of the whole are between the two, so one phase's cannot be taken for the other's."""

import json
import subprocess

from check.plan import FAIL, NOT_RUN

STEPS, SECONDS = 6, 50
POINTS = 5.0  # percent of the peak: a reading may hold a tenth of the other phase's time
OWN = {"rollout": ("memory", "memory_bandwidth_pct"), "forward": ("bf16", "tensor_active_pct")}  # kind of `used`, column


def of_phases(plan, path):
    """{name: row} of the table `phases`."""
    done = subprocess.run([plan.build / "gapprobe", "stats", "-r", "phases", "--json", path], capture_output=True, text=True, timeout=60)
    return {row["phase"]: row for row in json.loads(done.stdout)["phases"]} if done.returncode == 0 else {}


def judge(plan, suite, ended, rows, expected):
    """`expected`: that of the suite `used`."""
    truth = ended.truth
    plan.detail(suite, "phases", {"truth": truth, "rows": rows, "line": ended.line})
    if ended.code != 0 or not truth:
        return plan.row(suite, "phases", FAIL, f"exit {ended.code}: {ended.err[-300:]!r}")
    for name, (kind, key) in OWN.items():
        read, right = (rows.get(name) or {}).get(key), expected(kind, truth | {"a_second": truth["a_second"][name]}, truth["sm_mhz"])
        if right is None:
            plan.row(suite, f"phases: {name}", NOT_RUN, f"no peak or clock is known: {truth}")
            continue
        said = "nothing" if read is None else f"{read:.1f} %"
        plan.row(suite, f"phases: {name}", read is not None and abs(read - right) <= POINTS, f"{said} by the counters, {right:.1f} by the clock",
                 f"within {POINTS} points")
    tensor = (rows.get("rollout") or {}).get(OWN["forward"][1])
    return plan.row(suite, "phases: the other one's", tensor is not None and tensor <= POINTS, f"tensor cores {tensor} % in rollout", f"<= {POINTS} %")
