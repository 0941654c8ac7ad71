# SPDX-License-Identifier: Apache-2.0
"""Our figures of a program beside those of torch.profiler (programs/profiled.py) and of ncu, each from a process of its own, one after the other.

torch.profiler sees as many steps as we do: under a power cap equal steps of one run took 7.8 to 10.1 ms (H100, ok_gemm), so thirty of them are no mean.

ncu runs kernels one by one, some of them several times, and at clocks that no power cap holds down. What does not change with the clock is compared:
- A kernel keeps tensor cores at work for a share of its cycles. These shares are weighted by the time that kernels of that name take in the loop.
- A kernel moves so many bytes: its share of the bandwidth times its time in ncu. That is held against the time of our step's kernels.
Both are multiplied with the share of the time in which kernels ran, since GPM sees all of the time."""

import collections
import json
import re
import subprocess
import sys

from check import victim
from check.plan import FAIL, INFO, NOT_RUN
from suites import used, used_ncu

NAME = "beside"
ABOUT = "kernel times and counters of four programs beside those of torch.profiler and ncu, as a table for docs (about 30 s each)"
# ms a step, on an H200
PARTS = {"gpu_norm.slow": 6.8, "gpu_width.slow": 21.7, "gpu_width.fixed": 5.0, "gpu_attention_inference.slow": 4.2}
LOOP_S = 3.0
OURS_S, THEIRS_S, NCU_S, NCU_LIMIT_S = 12, 14, 20, 60
NCU_STEPS, NCU_SKIPPED = 12, 8
PERCENT = 2.0  # of torch.profiler's kernel time
STEPS_PERCENT = 2.0
POINTS = 5.0  # percent of the peak
TIED = 0.95  # of the largest kernel's time: either may be called the largest
SETUP = 20  # kernels that fill tensors before the first step
KNOWN = 0.9  # of the loop's time must be of kernels that ncu names, too
LENGTH = re.compile(r"\d+")  # of a part of a mangled name
PEAKS = {"tensor": "tensor cores", "dram": "memory bandwidth"}
METRICS = [used_ncu.METRICS[key] for key in ("s", *PEAKS)]
# Clocks are the machine's, not ours to lock; caches are left as the kernel before left them.
OPTIONS = ("--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--cache-control", "none", "--metrics", ",".join(METRICS))


def base(name):
    """A kernel's function alone: tools print types, parameters and namespaces in ways of their own, and some names mangled."""
    if name.startswith("_Z"):
        at, found = (3 if name.startswith("_ZN") else 2), ""
        while digits := LENGTH.match(name, at):
            at = digits.end() + int(digits.group())
            found = name[digits.end():at]
        return found or name
    name = name.replace("(anonymous namespace)", "").replace("<unnamed>", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].split("::")[-1].strip().rpartition(" ")[2]


def plain(name):
    """A demangled name without what demanglers write in different ways."""
    return re.sub(r"\((unsigned )?(int|long|bool)\)|(?<=\d)ul?\b|\s", "", name)


def largest(times):
    """(name, ns) of {name: ns}."""
    return max(times.items(), key=lambda item: item[1], default=("", 0.0))


def time_of(name, times):
    """Time of this kernel among another tool's: by its whole name or, where that is not there, by its function; None: not there."""
    whole = [ns for other, ns in times.items() if plain(other) == plain(name)]
    return max(whole or [ns for other, ns in times.items() if base(other) == base(name)], default=None)


def ours_of(stats, analyzed, steps):
    """Our figures, by what `gapprobe stats` and `analyze` say of a run of so many steps; what is no kernel of every step is left out."""
    rows = [r for r in stats.get("cuda_gpu_kern_sum") or [] if r["instances"] >= steps]
    of_steps = sorted(s["compute_ns"] for s in stats.get("steps") or [] if s.get("flags") != "warm-up")
    times = {r["name"]: r["total_ns"] / steps for r in rows}
    counters, gauges = used.counters_of(analyzed) or {}, analyzed.get("gauges") or {}
    return {
        "kernels": sum(r["instances"] for r in rows), "steps": steps, "found": (analyzed.get("steps") or {}).get("count"), "ns": sum(times.values()),
        "times": times, "largest": largest(times), "spread": of_steps and [of_steps[0], of_steps[len(of_steps) // 2], of_steps[-1]],
        "tensor": counters.get("tensor_active_share"), "dram": counters.get("memory_bandwidth_share"), "counted_ns": counters.get("ns"),
        "busy": used.busy(analyzed), "missing": gauges.get("counters_missing") or "no reading lies within the steady steps",
    }


def theirs_of(truth):
    """torch.profiler's, by what programs/profiled.py says."""
    kernels = truth["kernels"]
    times = {name: ns for name, (_, ns) in kernels.items()}
    return {"kernels": sum(count for count, _ in kernels.values()), "ns": sum(times.values()), "times": times, "largest": largest(times),
            "spread": truth.get("spread")}


def tensor_share(kernels, times):
    """(percent of cycles in which tensor cores are at work, whose times weigh them): the loop's, if ncu has nearly all of its kernels."""
    cycles, ncu = collections.Counter(), collections.Counter()
    for k in kernels:
        cycles[base(k["kernel"])] += k["tensor"] * k["s"]
        ncu[base(k["kernel"])] += k["s"]
    loop = collections.Counter()
    for name, ns in times.items():
        loop[base(name)] += ns
    common = {name: loop[name] for name in ncu if ncu[name] and loop[name]}
    known = sum(common.values())
    if known and known >= KNOWN * sum(times.values()):
        return sum(ns * cycles[name] / ncu[name] for name, ns in common.items()) / known, "the loop's"
    return sum(cycles.values()) / sum(ncu.values()), "ncu's"


def ncu_of(kernels, wanted, times):
    """ncu's figures of the kernels of one step, of which there are `wanted`; `times`: torch.profiler's. Without figures: {"why": ...}."""
    if len(kernels) != wanted:
        return {"why": f"{len(kernels)} of {wanted} kernels in ncu's table"}
    if not all(k.get("s") for k in kernels):
        return {"why": "ncu gives some kernels no time"}
    ns = collections.Counter()
    for k in kernels:
        ns[k["kernel"]] += 1e9 * k["s"]
    found = {"kernels": len(kernels), "ns": sum(ns.values()), "times": dict(ns), "largest": largest(ns), "tensor": None, "dram_ns": None}
    if all(k.get("tensor") is not None for k in kernels):
        found["tensor"], found["weights"] = tensor_share(kernels, times)
    if all(k.get("dram") is not None for k in kernels):
        found["dram_ns"] = sum(k["dram"] / 100 * 1e9 * k["s"] for k in kernels)
    return found


def told_by(ended, wanted, times):
    """ncu's figures by what it printed, or {"why": ...}."""
    said = ended.out + ended.err
    if "ERR_NVGPUCTRPERM" in said:
        return {"why": "ncu may not read counters here (ERR_NVGPUCTRPERM)"}
    if ended.late:
        return {"why": f"ncu took longer than {ended.took_s:.0f} s"}
    if ended.code != 0:
        return {"why": f"ncu: exit {ended.code}: {said[-300:]!r}", "failed": True}
    return ncu_of(used_ncu.parse(ended.out), wanted, times)


def by_ncu(key, ours, ncu):
    """What GPM should say by ncu, percent of the peak, or None."""
    if ours["busy"] is None:
        return None
    if key == "tensor":
        return None if ncu.get("tensor") is None else ncu["tensor"] * ours["busy"]
    return None if ncu.get("dram_ns") is None else 100 * ncu["dram_ns"] / ours["ns"] * ours["busy"]


def ms(ns):
    return f"{ns / 1e6:.2f}"


def against(ns, right):
    return f"{100 * (ns / right - 1):+.1f} %" if right else "-"


def counters_row(key, ours, ncu):
    share, right = ours[key], by_ncu(key, ours, ncu)
    if share is None:
        return PEAKS[key], NOT_RUN, f"no counters: {ours['missing']}", ""
    if right is None:
        why = ncu.get("why") or (f"ncu does not give it: {used_ncu.METRICS[key]}" if ours["busy"] is not None else "busy share not known")
        return PEAKS[key], NOT_RUN, f"{100 * share:.1f} % by the counters; {why}", ""
    weights = f", weighted by {ncu['weights']} times" if key == "tensor" else ""
    return (PEAKS[key], abs(100 * share - right) <= POINTS,
            f"{100 * share:.1f} % by the counters over {(ours['counted_ns'] or 0) / 1e9:.1f} s, {right:.1f} by ncu, busy {100 * ours['busy']:.1f} %{weights}",
            f"within {POINTS:g} points")


def rows(ours, theirs, ncu):
    """What is judged of one program: [(check, result, value, limit)]."""
    found, steps = [], ours["steps"]
    found.append(("steps", ours["found"] is not None and abs(ours["found"] - steps) <= steps * STEPS_PERCENT / 100, f"{ours['found']} of {steps}",
                  f"within {STEPS_PERCENT:g} %"))
    more = ours["kernels"] - theirs["kernels"] * steps
    found.append(("kernels a step", -0.5 < more <= SETUP, f"{ours['kernels']} in {steps} steps, torch.profiler {theirs['kernels']:g} in each, ncu "
                  f"{ncu.get('kernels', '-')}: {more:+.0f}", f"0 to {SETUP} more"))
    by = f"ncu {ms(ncu['ns'])} ({against(ncu['ns'], theirs['ns'])})" if "ns" in ncu else "ncu -"
    found.append(("kernel time a step", bool(theirs["ns"]) and abs(ours["ns"] / theirs["ns"] - 1) <= PERCENT / 100,
                  f"{ms(ours['ns'])} ms ({against(ours['ns'], theirs['ns'])}), torch.profiler {ms(theirs['ns'])}, {by}", f"within {PERCENT:g} %"))
    spreads = [f"{whose} {' '.join(map(ms, figures['spread']))}" for whose, figures in (("ours", ours), ("torch.profiler", theirs)) if figures["spread"]]
    found.append(("kernel time of steps, ms", INFO, "; ".join(spreads) or "not known", "least, middle, most"))
    name, ns = ours["largest"]
    theirs_of_it = time_of(name, theirs["times"])
    said = [f"{base(name)} {ms(ns)} ms", f"torch.profiler {base(theirs['largest'][0])} {ms(theirs['largest'][1])}"]
    said += [f"ncu {base(ncu['largest'][0])} {ms(ncu['largest'][1])}"] if "largest" in ncu else []
    found.append(("largest kernel", bool(name) and theirs_of_it is not None and theirs_of_it >= TIED * theirs["largest"][1], ", ".join(said),
                  f"torch.profiler's, or one of {100 * TIED:g} % of its time"))
    if ncu.get("failed"):
        found.append(("ncu", FAIL, ncu["why"], ""))
    return found + [counters_row(key, ours, ncu) for key in PEAKS]


def cell(figures):
    name, ns = figures["largest"]
    return f"`{base(name)}` {ms(ns)}" if name else "-"


def markdown(found, machine):
    """A table of {part: (ours, theirs, ncu)} that can be copied into docs/."""
    lines = [f"{machine}. ncu: kernels one by one; its shares times that of the time in which kernels ran.", "",
             "| program | a step | gapprobe | torch.profiler | ncu |", "|---|---|---|---|---|"]
    for part, (ours, theirs, ncu) in found.items():
        table = [("kernels", f"{ours['kernels'] / ours['steps']:.0f}", f"{theirs['kernels']:.0f}", str(ncu.get("kernels", "-"))),
                 ("kernel time, ms", ms(ours["ns"]), ms(theirs["ns"]), ms(ncu["ns"]) if "ns" in ncu else "-"),
                 ("largest kernel, ms", cell(ours), cell(theirs), cell(ncu) if "largest" in ncu else "-")]
        for key, what in PEAKS.items():
            right = by_ncu(key, ours, ncu)
            table.append((f"{what}, %", "-" if ours[key] is None else f"{100 * ours[key]:.1f}", "-", "-" if right is None else f"{right:.1f}"))
        heads = [part.replace(".", " "), *[""] * (len(table) - 1)]
        lines += [f"| {' | '.join((head, *row))} |" for head, row in zip(heads, table)]
    return "\n".join(lines)


def stats_of(plan, path):
    done = subprocess.run([plan.build / "gapprobe", "stats", "-r", "cuda_gpu_kern_sum", "-r", "steps", "--json", path], capture_output=True, text=True,
                          timeout=60)
    return json.loads(done.stdout) if done.returncode == 0 else {}


def measure_ours(plan, program, form, steps):
    """Our figures, or None: then a row says why."""
    ended = victim.python(plan, f"causes/{program}", "--form", form, "--steps", str(steps), ours=True, env=victim.WHOLE).wait(min(90, plan.left() - 2))
    path, ran = ended.trace(), ended.truth.get("true_steps")
    if ended.code == 0 and path is not None and ran:
        found = ours_of(stats_of(plan, path), used.analysis(plan, path), ran)
        if found["kernels"]:
            return found
    plan.row(NAME, f"{program}.{form}", FAIL, f"exit {ended.code}, trace {path is not None}, {ran} steps: {ended.err[-300:]!r}")
    return None


def measure_theirs(plan, program, form, steps):
    ended = victim.python(plan, "profiled", program, form, str(steps), ours=False).wait(min(90, plan.left() - 2))
    if ended.code == 0 and ended.truth.get("kernels"):
        return theirs_of(ended.truth)
    plan.row(NAME, f"{program}.{form}", FAIL, f"torch.profiler: exit {ended.code}, {list(ended.truth)}: {ended.err[-300:]!r}")
    return None


def measure_ncu(plan, tool, program, form, theirs):
    """ncu's figures, or {"why": ...}."""
    if tool is None:
        return {"why": "no ncu on this machine"}
    if plan.left() < NCU_S:
        return {"why": f"ncu needs {NCU_S} s, {max(plan.left(), 0):.0f} s left"}
    wanted = round(theirs["kernels"])
    command = [tool, *OPTIONS, "--launch-skip", str(NCU_SKIPPED * wanted), "--launch-count", str(wanted),
               sys.executable, victim.PROGRAMS / "causes" / f"{program}.py", "--form", form, "--steps", str(NCU_STEPS)]
    ended = victim.Victim(plan, command, ours=False, env={"LC_ALL": "C"}, name="beside-ncu").wait(min(NCU_LIMIT_S, plan.left() - 2))
    return told_by(ended, wanted, theirs["times"]) | {"took_s": round(ended.took_s, 1)}


def run(plan, only=None):
    found, tool = {}, used_ncu.installed()
    torch = (plan.machine.get("packages") or {}).get("torch")
    machine = f"{plan.machine.get('gpu')}; PyTorch {torch}; gapprobe {plan.machine.get('commit')}"
    for part in only or PARTS:
        program, _, form = part.partition(".")
        if part not in PARTS:
            plan.row(NAME, part, FAIL, f"no such part; there are: {', '.join(PARTS)}")
            continue
        if plan.dry:
            plan.row(NAME, part, NOT_RUN, "needs a GPU")
            continue
        if not plan.room_for(NAME, part, OURS_S + THEIRS_S):
            continue
        steps = round((LOOP_S / 2 if plan.quick else LOOP_S) * 1e3 / PARTS[part])
        ours = measure_ours(plan, program, form, steps)
        theirs = ours and measure_theirs(plan, program, form, steps)
        if not theirs:
            continue
        found[part] = ours, theirs, measure_ncu(plan, tool, program, form, theirs)
        plan.detail(NAME, part, dict(zip(("ours", "torch.profiler", "ncu"), found[part])))
        for check, result, value, limit in rows(*found[part]):
            plan.row(NAME, f"{part}: {check}", result, value, limit)
        plan.detail(NAME, "table", markdown(found, machine))
    if found:
        plan.closing.append(markdown(found, machine))
