# SPDX-License-Identifier: Apache-2.0
"""Programs that are not PyTorch: JAX, CuPy, plain CUDA C++ with a static runtime, the driver API. All end with a trace."""

from check import native, victim
from check.plan import FAIL, NOT_RUN
from check.tracefile import Trace

NAME = "others"
ABOUT = "JAX, CuPy, CUDA C++ with a static runtime, driver API (about 25 s)"


def judge(plan, name, ended):
    summary, truth, path = ended.summary(), ended.truth, ended.trace()
    if ended.code != 0 or summary is None or path is None or not ended.line:
        return plan.row(NAME, f"{name}: trace and line", FAIL,
                        f"exit {ended.code}, summary {summary is not None}, trace {path is not None}: {ended.err[-160:]!r}")
    trace = Trace(path)
    kernels = (summary.get("totals") or {}).get("kernels")
    if "kernels_of_that_name" in truth:
        expected = truth["kernels_of_that_name"]
        seen = sum(truth["kernel"] in (k.name or "") for k in trace.kernels)
    elif "kernels" in truth:
        expected, seen = truth["kernels"], kernels
    else:
        expected, seen = None, kernels
    good = seen == expected if expected is not None else bool(seen) and seen == len(trace.kernels)
    return plan.row(NAME, f"{name}: trace and line", good and trace.dropped_by_perfetto() == 0,
                    f"{seen} of {expected if expected is not None else 'unknown'} kernels, {len(trace.kernels)} slices; {ended.line[:80]}")


def run(plan, only=None):
    made = native.built(plan, "plain", "driver_api")
    starts = [(p, lambda p=p: victim.jax_program(plan, p, ours=True)) for p in ("jax_train", "cupy_loop") if only is None or p in only]
    starts += [(p, lambda path=path, p=p: victim.Victim(plan, [path], ours=True, name=p)) for p, path in made.items() if only is None or p in only]
    ended = victim.several_at_once(plan, starts, seconds_each=20)
    for name, _ in starts:
        if ended.get(name) is None:
            plan.row(NAME, name, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, name, ended[name].as_detail())
        judge(plan, name, ended[name])
