# SPDX-License-Identifier: Apache-2.0
"""Whose kernel: line, module and operator that the trace gives each kernel, against what PyTorch's own means say (programs/whose.py,
in a process of its own). The kernels of one step, by their order and names; shares are of the GPU time of those kernels.

What makes no node and runs in no line (the sum of a parameter's gradients) has neither in both, and counts as alike."""

import gzip

from check import victim
from check.plan import FAIL, INFO, NOT_RUN
from check.tracefile import events

NAME = "whose"
ABOUT = "line, module and operator of every kernel of a training step, forward and backward, against torch.profiler (about 30 s a model)"
MODELS = ("gpt", "resnet", "unet", "gpt_compiled", "gpt_graph", "resnet_graph", "trainer", "checkpointed")
STEPS, SECONDS = 40, 100
LEAST, LEAST_OF_GRAPHS = 95.0, 90.0  # percent of the GPU's time; of torch.compile's kernels as of graphs'


def ours(path):
    """The kernels of a trace in the order of their launches: (name, path, line, pass, node)."""
    launched, found = {}, []
    for e in events(gzip.decompress(path.read_bytes()).decode()):
        args = e.get("args") or {}
        if e.get("cat") in ("cuda_runtime", "cuda_driver"):
            launched[args.get("correlation")] = e["ts"]
        elif e.get("cat") == "kernel":
            found.append((args, e))
    found = [(launched.get(a.get("correlation"), e["ts"]), a, e) for a, e in found]
    rows = []
    for _, args, e in sorted(found, key=lambda f: (f[0], f[2]["ts"])):  # (all kernels of a graph have one launch)
        line = str(args.get("site", "")).split(" ")[0].rsplit("/", 1)[-1]
        is_backward = "backward of" in args
        rows.append((args.get("full name", e["name"]), args.get("module", ""), line, "backward" if is_backward else "forward",
                     args.get("backward of", ""), args.get("operator", ""), args.get("source nodes", "")))
    return rows


def same(theirs, our):
    """Is it the same kernel, by their names? (Ours may be short.)"""
    return theirs == our or our.split("<")[0].split("(")[0].strip() in theirs


def alike(reference, trace):
    """The last step of the trace whose kernels are the reference's, as pairs; none: []."""
    names = [r[0] for r in reference]
    for first in range(len(trace) - len(names), -1, -1):
        if all(same(n, t[0]) for n, t in zip(names, trace[first:])):
            return list(zip(reference, trace[first:]))
    return []


def judge(plan, model, reference, ended):
    path = ended.trace()
    if ended.code != 0 or path is None or not reference:
        return plan.row(NAME, model, FAIL, f"exit {ended.code}, trace {path is not None}, {len(reference)} kernels: {ended.err[-300:]!r}")
    trace = ours(path)
    pairs = alike(reference, trace)
    if not pairs:
        plan.detail(NAME, model, {"reference": reference, "trace": trace[-2 * len(reference):]})
        return plan.row(NAME, model, FAIL, f"no step of {len(trace)} kernels has the reference's {len(reference)}")
    whole = sum(r[5] for r, _ in pairs) or 1.0

    def share(is_alike):
        return 100 * sum(r[5] for r, t in pairs if is_alike(r, t)) / whole

    def operators():
        is_known = share(lambda r, t: r[7:] == list(t[5:5 + len(r) - 7]))
        plan.detail(NAME, f"{model}: operators", {"unlike": [(r, t) for r, t in pairs if r[7:] != list(t[5:5 + len(r) - 7])][:200]})
        return is_known

    losses = {k: v for k, v in ((ended.summary() or {}).get("losses") or {}).items() if v}
    plan.row(NAME, f"{model}: losses", INFO, f"{losses or 'none'}")
    if model.endswith("_compiled"):
        alike_by = operators()
        return plan.row(NAME, f"{model}: operators and source nodes", alike_by >= LEAST_OF_GRAPHS, f"{alike_by:.1f} % of the GPU's time, {len(pairs)} kernels",
                        f">= {LEAST_OF_GRAPHS} %")
    least = LEAST_OF_GRAPHS if model.endswith("_graph") else LEAST
    lines, modules = share(lambda r, t: r[3] == t[2]), share(lambda r, t: r[1] == t[1])
    both = share(lambda r, t: (r[1], r[3]) == (t[1], t[2]))
    passes, nodes = share(lambda r, t: r[4] == t[3]), share(lambda r, t: r[4] != "backward" or r[6].endswith(t[4]) and t[4])
    unlike = [(r, t) for r, t in pairs if (r[1], r[3], r[4]) != (t[1], t[2], t[3])]
    plan.detail(NAME, model, {"unlike": unlike[:200], "kernels": len(pairs)})
    plan.row(NAME, f"{model}: line and module", both >= least, f"{both:.1f} % of the GPU's time, {len(pairs)} kernels; lines {lines:.1f}, modules {modules:.1f}",
             f">= {least} %")
    plan.row(NAME, f"{model}: forward or backward", passes >= least, f"{passes:.1f} %; type of node {nodes:.1f} %", f">= {least} %")
    alike_by = operators()
    return plan.row(NAME, f"{model}: operator", alike_by >= least, f"{alike_by:.1f} % of the GPU's time", f">= {least} %")


def run(plan, only=None):
    for model in only or MODELS:
        if plan.dry:
            plan.row(NAME, model, NOT_RUN, "needs a GPU")
        elif plan.room_for(NAME, model, 60):
            told = victim.python(plan, "whose", model, "1", "--reference", ours=False)
            trained = victim.python(plan, "whose", model, str(STEPS), ours=True, env=victim.WHOLE)
            told = told.wait(min(SECONDS, plan.left() - 2))
            judge(plan, model, told.truth.get("kernels") or [], trained.wait(min(SECONDS, plan.left() - 2)))
            if told.code != 0:
                plan.row(NAME, f"{model}: reference", INFO, f"exit {told.code}: {told.err[-500:]!r}")
