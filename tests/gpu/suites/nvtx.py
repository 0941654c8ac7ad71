# SPDX-License-Identifier: Apache-2.0
"""NVTX ranges of real PyTorch: every one the program made is in the trace, with its domain, and no other of that name."""

import collections
import gzip

from check import victim
from check.plan import FAIL, NOT_RUN
from check.tracefile import events

NAME = "nvtx"
ABOUT = "torch.cuda.nvtx, emit_nvtx and the Python package nvtx: names and counts (about 15 s)"


def seen(path):
    """(ranges, moments): how many of each name, as nsys shows them, `domain:name`; operators without their numbers."""
    ranges, moments = collections.Counter(), collections.Counter()
    for e in events(gzip.decompress(path.read_bytes()).decode()):
        if e.get("cat") != "user_annotation":
            continue
        args = e.get("args") or {}
        name = str(e.get("name")).split(", seq = ")[0].split(", op_id = ")[0]
        domain = args.get("domain")
        (moments if args.get("style") == "Mark" else ranges)[f"{domain}:{name}" if domain else name] += 1
    return ranges, moments


def judge(plan, ended):
    truth, path, summary = ended.truth, ended.trace(), ended.summary()
    if ended.code != 0 or path is None or summary is None or not truth:
        return plan.row(NAME, "ranges", FAIL, f"exit {ended.code}, trace {path is not None}: {ended.err[-200:]!r}")
    ranges, moments = seen(path)
    wrong = [f"{name} {ranges[name]} of {count}" for name, count in truth["ranges"].items() if ranges[name] != count]
    plan.row(NAME, "ranges", not wrong, "; ".join(wrong) or f"{sum(truth['ranges'].values())} ranges of {len(truth['ranges'])} names", "equal")
    wrong = [f"{name} {moments[name]} of {count}" for name, count in truth["moments"].items() if moments[name] != count]
    plan.row(NAME, "moments", not wrong and not any(name in ranges for name in truth["moments"]),
             "; ".join(wrong) or f"{sum(truth['moments'].values())} marks, none a range", "equal")
    wrong = [f"{name} {ranges[name]} of {count}" for name, count in truth["operators"].items() if ranges[name] != count]
    plan.row(NAME, "operators of emit_nvtx", not wrong, "; ".join(wrong) or f"{truth['operators']}", "equal")
    losses = {k: v for k, v in (summary.get("losses") or {}).items() if v}
    return plan.row(NAME, "losses", not losses, f"{losses or 'none'}; package nvtx {'there' if truth.get('package') else 'not there'}", "none")


def run(plan, only=None):
    if plan.dry:
        return plan.row(NAME, "ranges", NOT_RUN, "torch.cuda.nvtx needs a build with CUDA")
    if not plan.room_for(NAME, "ranges", 20):
        return None
    ended = victim.python(plan, "nvtx_torch", ours=True, gate=False).wait(min(60, plan.left() - 2))
    plan.detail(NAME, "nvtx_torch", ended.as_detail())
    return judge(plan, ended)
