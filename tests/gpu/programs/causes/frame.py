# SPDX-License-Identifier: Apache-2.0
"""The frame around the programs in this folder; knows no framework, and of gapprobe only how to say what is to be recorded. A program is run as

  --form slow | fixed   a plain loop, as a user would write it (this is what gapprobe watches), or
  --form win            all its forms in one process, a block of each in turn: what each fix really wins;
  --form turns          the slow and the fixed one so, under gapprobe, and the slow one once more while gapprobe records: what it promises for this
                        process, this host and this minute, beside what the fix wins there. The win is that of steps nobody records: what
                        recording adds to the slow one's steps (a tenth where the host is waited for) is no fix's merit.

With --gate it imports, takes its GPU and builds its model, says so with a file `ready`, and waits: many programs are made
ready side by side, and then each has the machine to itself. The last line on stdout is one JSON object, the truth.
A line of Python that is the cause ends in `# SITE`; where several do, any of them is right.
"""

import argparse
import json
import os
import pathlib
import sys
import time
from dataclasses import dataclass
from typing import Callable, Optional

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent))  # the programs next door

from capture import capture  # noqa: E402

RECORDED = "recorded"  # with --form turns: the slow form's blocks that gapprobe records


@dataclass
class Form:
    """One form of a program."""

    step: Callable  # step(i) does one step, and returns what to wait for
    period: int = 1  # it repeats after so many steps: a block is a whole number of them
    lead: int = 2  # steps before a block that do not count: what was prefetched while another form ran is used up
    begin: Optional[Callable] = None  # called before its first step and before each block
    end: Optional[Callable] = None  # called after each block


class Sizes:
    """What every side has in common: sizes and times cut down to try the programs without a GPU."""

    def __init__(self, tiny):
        self.tiny = tiny

    def size(self, real, tiny):
        return tiny if self.tiny else real

    def seconds(self, real):
        return real / 20 if self.tiny else real

    def opened(self):
        """The gate is open."""

    def agree(self, n):
        """A number that all ranks have."""
        return n


def block_ms(ctx, form, n, recorded=False):
    """Mean step time of `n` steps, ms, from an empty queue to an empty queue; what leads up to them is left out, and not `recorded`."""
    value = None
    if form.begin is not None:
        form.begin()
    for _ in range(form.lead):
        value = form.step(0)
    ctx.sync(value)
    if recorded:
        capture(True)
    began = time.perf_counter()
    for i in range(n):
        value = form.step(i)
    ctx.sync(value)
    took = (time.perf_counter() - began) * 1e3 / n
    if recorded:
        capture(False)
    if form.end is not None:
        form.end()
    return took


def alternate(ctx, rounds, forms, block_s, recorded=""):
    """A block of each form in turn, `rounds` times, the order turned by one each time: {form: [ms a step]}. The form that is `recorded` is,
    the others are not."""
    lengths = {}
    for name, form in forms.items():
        block_ms(ctx, form, form.period)  # loads kernels
        periods = int(block_s * 1e3 / max(block_ms(ctx, form, form.period) * form.period, 0.01))
        lengths[name] = form.period * ctx.agree(max(1 if form.period > 1 else 2, min(periods, 400)))
    names, found = list(forms), {name: [] for name in forms}
    for k in range(rounds):
        at = k % len(names)
        for name in names[at:] + names[:at]:
            found[name].append(block_ms(ctx, forms[name], lengths[name], name == recorded))
    return {"rounds_ms": found, "block_steps": lengths}


def loop(ctx, form, warmup, steps):
    """The loop that gapprobe watches. Warm-up steps are steps like the others; only their time is left out."""
    if form.begin is not None:
        form.begin()
    value, started = None, time.perf_counter()
    for i in range(warmup + steps):
        if i == warmup:
            ctx.sync(value)
            started = time.perf_counter()
        value = form.step(i)
    ctx.sync(value)
    took = time.perf_counter() - started
    if form.end is not None:
        form.end()
    return {"true_steps": warmup + steps, "step_ms": took * 1e3 / steps}


def main(build, side, *, steps, forms=("slow", "fixed"), warmup=5, block_s=0.2):
    """Run the program. `build(form, ctx)` gives a Form or a plain step function; `steps` in a watched loop, or {form: steps}."""
    p = argparse.ArgumentParser()
    p.add_argument("--form", choices=(*forms, "win", "turns"), default=forms[0])
    p.add_argument("--steps", type=int, default=None, help="steps after warm-up (default: the program's own)")
    p.add_argument("--rounds", type=int, default=7, help="with --form win or turns: blocks of each form")
    p.add_argument("--gate", action="store_true", help="when all is built, write the file `ready` and wait for a line on stdin")
    p.add_argument("--device", default="cuda")
    p.add_argument("--tiny", action="store_true", help="tiny sizes: try the program without a GPU")
    a = p.parse_args()

    def built(form):
        made = build(form, ctx)
        return made if isinstance(made, Form) else Form(made)

    began = time.monotonic()
    ctx = side(a.device, a.tiny)
    made = {form: built(form) for form in {"win": forms, "turns": (forms[0], "fixed")}.get(a.form, (a.form,))}
    ctx.sync(None)
    setup_s = time.monotonic() - began
    if a.gate:
        pathlib.Path("ready").touch()
        sys.stdin.readline()
    ctx.opened()
    began = time.monotonic()
    if a.form in ("win", "turns"):
        recorded = RECORDED if a.form == "turns" else ""
        if recorded:
            made = {RECORDED: made[forms[0]], **made}
        truth = alternate(ctx, a.rounds, made, (2 * block_s if recorded else block_s) if not a.tiny else 0.01, recorded)
    else:
        truth = loop(ctx, made[a.form], warmup, a.steps or (steps if isinstance(steps, int) else steps[a.form]))
    truth.update(program=pathlib.Path(sys.argv[0]).stem, form=a.form, setup_s=round(setup_s, 2), ran_s=round(time.monotonic() - began, 2))
    print(json.dumps(truth), flush=True)
    if a.form == "win":
        os._exit(0)  # nobody watches how it ends, and the next one waits for that
