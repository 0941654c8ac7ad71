# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's tools around us: ncu, compute-sanitizer and nsys start a program that has us preloaded. The program ends as without us, the tool finds what
it finds without us, and we stay off and say why, in one line. Forced beside nsys we record every kernel."""

import pathlib
import re
import shutil

from check import native, victim
from check.plan import NOT_RUN
from check.tracefile import Trace
from suites import always_on

NAME = "around"
ABOUT = "ncu, compute-sanitizer and nsys around a program with us preloaded: its end, what they find, one line of ours (about 70 s)"

PROGRAM = "plain"
SECONDS_EACH = 40


class Tool:
    """A tool: how it starts a program, and what it says that must be the same with us."""

    def __init__(self, name, program, options, finds, forced=False):
        self.name, self.program, self.options, self.finds, self.forced = name, program, options, re.compile(finds, re.M), forced

    @property
    def env(self):
        return {**native.cupti(), **({"GAPPROBE_FORCE": "1"} if self.forced else {})}

    def command(self, words):
        return [self.program, *self.options, *words]


def installed(name):
    """Path of one of NVIDIA's tools, or None."""
    if name == "nsys":
        return always_on.nsys()
    found = shutil.which(name)
    places = (pathlib.Path("/opt/nvidia"), pathlib.Path("/usr/local/cuda/bin"), pathlib.Path("/usr/local/cuda/compute-sanitizer"))
    within = (p for place in places if place.is_dir() for p in sorted(place.rglob(name)) if p.is_file())
    return found or next((str(p) for p in within), None)


def tools(plan):
    """{name: Tool, or None where it is not here}."""
    def tool(name, options, finds, forced=False):
        path = installed(name)
        return path and Tool(f"{name}, forced" if forced else name, path, options, finds, forced)

    # the clocks are left alone, and five launches are enough: each is replayed
    counters = ("--clock-control", "none", "--launch-count", "5", "--metrics", "launch__grid_size")
    # (cuda,nvtx: among what it traces by default; for the ranges it loads itself before us)
    nsys = ("profile", "-t", "cuda,nvtx", "-s", "none", "--cpuctxsw=none", "-o", str(plan.scratch / "around-%p"))
    return {"ncu": tool("ncu", counters, r"launch__grid_size\s+\S*\s+[\d,]+"),
            "compute-sanitizer": tool("compute-sanitizer", (), r"ERROR SUMMARY: .*"),
            "nsys": tool("nsys", nsys, r"Generat\w+"), "nsys_forced": tool("nsys", nsys, r"Generat\w+", forced=True)}


def judge(plan, tool, plain, ours):
    """`plain`, `ours`: the program under the tool, without us and with us."""
    if plain.code != 0 or not plain.truth:
        return plan.row(NAME, f"{tool.name}: program", NOT_RUN, f"does not run without us either: exit {plain.code}, {(plain.err or plain.out)[-200:]!r}")
    same = ours.code == plain.code and ours.truth == plain.truth and not ours.late
    plan.row(NAME, f"{tool.name}: program", same, f"exit {plain.code} -> {ours.code}, {plain.truth} -> {ours.truth}", "equal")
    found = [tool.finds.findall(e.out + e.err) for e in (plain, ours)]
    plan.row(NAME, f"{tool.name}: what it finds", bool(found[0]) and found[0] == found[1],
             f"{len(found[0])} lines without us, {len(found[1])} with: {found[1][:1]}", "equal, some")
    talk = ours.our_lines
    if tool.forced:
        path = ours.trace()
        kernels = len(Trace(path).kernels) if path else 0
        return plan.row(NAME, f"{tool.name}: we record", kernels == plain.truth["kernels"], f"{kernels} kernels: {talk[-1:]}", plain.truth["kernels"])
    good = len(talk) == 1 and (tool.name == "ncu" or "GAPPROBE_FORCE" in talk[0])  # (beside ncu there is no way)
    return plan.row(NAME, f"{tool.name}: our line", good, f"{len(talk)} lines: {talk[:1]}", "1, with the way out, if there is one")


def run(plan, only=None):
    made = native.built(plan, PROGRAM)
    if PROGRAM not in made:
        return plan.row(NAME, "whole suite", NOT_RUN, "no program")
    wanted = {name: tool for name, tool in tools(plan).items() if only is None or name in only}
    for name in (n for n, tool in wanted.items() if tool is None):
        plan.row(NAME, name, NOT_RUN, "not on this machine")
    here = [tool for tool in wanted.values() if tool]
    starts = [((tool.name, ours), lambda t=tool, o=ours: victim.Victim(plan, t.command([made[PROGRAM]]), ours=o, env=t.env, name=t.name))
              for tool in here for ours in (False, True)]
    # one after the other: two ncu at once, and one finds "a driver resource was unavailable" (H100,
    # 2026-11-26)
    ended = victim.several_at_once(plan, starts, seconds_each=SECONDS_EACH, jobs=1)
    for tool in here:
        pair = ended.get((tool.name, False)), ended.get((tool.name, True))
        if None in pair:
            plan.row(NAME, tool.name, NOT_RUN, "no time left")
            continue
        plan.detail(NAME, tool.name, {"plain": {**pair[0].as_detail(), "out": pair[0].out[-600:]}, "ours": {**pair[1].as_detail(), "out": pair[1].out[-600:]}})
        judge(plan, tool, *pair)
    return None
