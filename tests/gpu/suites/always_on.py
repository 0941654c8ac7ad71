# SPDX-License-Identifier: Apache-2.0
"""What a run with gapprobe costs against the same run without: the programs of one name, each a process of its own with a profiler or none, take
turns on the GPU, a block of half a second each (check/turns.py). A second process without any profiler shows what two equal ones differ by.

Parts are programs, and sides may be chosen: always_on:mlp_eager+side=ours+side=torch_cuda. Programs `call_...` make one call of the runtime
20,000 times a step, and a side `client:subscribe:kernel` is a client of CUPTI that does just that (programs/client.c): what of CUPTI costs what. `without:1:2`
is gapprobe without these kinds of records (38, SYNCHRONIZATION, is off anyway while gapprobe holds the subscription), `with:WINDOW=48/1000000:SAMPLE_HZ=0` gapprobe
with these settings (`GAPPROBE_` before each). `rounds=60` for more rounds than usual, `limit=150` for so many seconds a program at most."""

import pathlib
import shutil
import subprocess
import time

from check import native, pairing, turns, victim
from check.plan import FAIL, INFO, NOT_RUN

NAME = "always_on"
ABOUT = "what a run costs against one without us, and against other profilers, in turns of half a second (about 60 s a program)"

PROGRAMS = ("gpt_large", "gpt_small", "mlp_eager", "mlp_graph", "compiled", "trainer")
CALLS = ("call_get_device", "call_is_capturing", "call_event_record", "call_stream_query")
BLOCK_S = 0.4
ROUNDS = 30
LEAST_ROUNDS = 10
MOST_STEPS = 400
BASE = "plain"
# The budget is 0.5 % (docs/windows.md), 0.3 % where the GPU is the limit (issue: always on).
LIMITS = {"gpt_large": 0.3}
LIMIT = BUDGET = 0.5


def nsys():
    """Path of an nsys on this machine, or None."""
    found = shutil.which("nsys")
    return found or next((str(p) for p in sorted(pathlib.Path("/opt/nvidia").glob("nsight-*/**/target-linux-x64/nsys"))), None)


def client(plan, words):
    """What starts a program with programs/client.c, told these words."""
    library = plan.scratch / "client.so"
    if not library.exists():
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, victim.PROGRAMS / "client.c", "-ldl"], check=True)
    cupti = native.cupti().get("GAPPROBE_CUPTI", "libcupti.so.13")
    return {"ours": False, "env": {"LD_PRELOAD": str(library), "CLIENT": " ".join(words), "CLIENT_CUPTI": cupti}}


def sides(plan, chosen=()):
    """name -> what its process is started with; `client:WORD:WORD` and `without:KIND` are those of `chosen`."""
    traced = nsys()
    known = {
        BASE: {"ours": False},
        "again": {"ours": False},
        "ours": {"ours": True},
        # a process that takes turns with n others runs for one n-th of the time its budget is a share of; and what the first minutes of
        # a run may cost beyond it is not what this run of half a minute is to show
        "budget": {"ours": True, "env": {"GAPPROBE_BUDGET": f"{BUDGET / max(len(chosen), 1):.3f}", "GAPPROBE_TEST_FREE_MS": "0"}},
        "bare": {"ours": True, "env": {"GAPPROBE_TEST_BARE": "1"}},
        "no_samples": {"ours": True, "env": {"GAPPROBE_SAMPLE_HZ": "0"}},
        "no_sites": {"ours": True, "env": {"GAPPROBE_SITES": "0"}},
        "torch_cuda": {"ours": False, "profiler": "cuda"},
        "torch_cpu_cuda": {"ours": False, "profiler": "cpu+cuda"},
    }
    known |= {w: {"ours": True, "env": {"GAPPROBE_TEST_WITHOUT": w.partition(":")[2].replace(":", ",")}} for w in chosen if w.startswith("without:")}
    known |= {w: {"ours": True, "env": {f"GAPPROBE_{k}": v for k, _, v in (s.partition("=") for s in w.split(":")[1:])}} for w in chosen if w.startswith("with:")}
    known |= {c: client(plan, c.split(":")[1:]) for c in chosen if c.startswith("client:")}
    if traced:
        known["nsys"] = {"ours": False, "command_prefix": (traced, "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-o",
                                                           plan.scratch / f"nsys-{time.monotonic_ns()}")}
    return known


DEFAULT_SIDES = (BASE, "again", "ours", "budget", "torch_cuda", "torch_cpu_cuda", "nsys")


def words(middle, low, high, unit):
    return f"{middle:+.2f} {unit} [{low:+.2f}, {high:+.2f}]"


def judge(plan, program, rounds):
    """Rows of one program from its rounds."""
    if len(rounds) < LEAST_ROUNDS:
        return plan.row(NAME, f"{program}: rounds", FAIL, f"{len(rounds)} whole ones", f">= {LEAST_ROUNDS}")
    base = pairing.median([turns.step_ms(r[BASE]) for r in rounds])
    for side in rounds[0]:
        if side == BASE:
            continue
        more = turns.added(rounds, side, BASE)
        text = f"{words(*more['percent'], '%')} of {base:.2f} ms, {words(*more['us'], 'us')} a step; p99 {words(*more['p99_percent'], '%')}; {len(rounds)} rounds"
        plan.detail(NAME, f"{program} {side}", more)
        if side == "budget":
            limit, (middle, low, high) = LIMITS.get(program, LIMIT), more["percent"]
            # what two equal processes differ by decides whether so little can be seen at all
            again = turns.added(rounds, "again", BASE)["percent"] if "again" in rounds[0] else None
            seen = again and max(abs(again[1]), abs(again[2])) <= limit
            result = FAIL if low > limit else NOT_RUN if not seen or high > limit else more["p99_percent"][0] <= limit
            plan.row(NAME, f"{program}: {side}", result, text + ("" if seen or low > limit else "; two equal processes differ by more than the limit"), f"{limit} %")
        else:
            plan.row(NAME, f"{program}: {side}", INFO, text)
    return None


def start(plan, program, chosen):
    return [turns.Player(plan, program, name, **how) for name, how in sides(plan, chosen).items() if name in chosen]


def steps_of_a_block(player):
    """So many that a block takes BLOCK_S; None where it does not run."""
    first = player.block(4)
    return first and max(3, min(MOST_STEPS, round(BLOCK_S * 1e3 / turns.step_ms(first))))


def option(only, name, usual):
    """The number behind `name=` among the parts."""
    return next((int(o.partition("=")[2]) for o in only if o.startswith(f"{name}=")), usual)


def run_program(plan, program, players, most=ROUNDS, limit_s=None):
    for p in players:
        if not p.wait_ready(min(turns.READY_S, max(plan.left() - 10, 1))):
            left = p.end(1)
            plan.row(NAME, f"{program}: {p.name}", NOT_RUN if p.name == "nsys" else FAIL, f"not ready, exit {left.code}: {left.err[-300:]!r}")
    playing = [p for p in players if p.ready]
    plain = next((p for p in playing if p.name == BASE), None)
    steps = steps_of_a_block(plain) if plain else None
    if not steps:
        plan.row(NAME, f"{program}: rounds", FAIL, "the program without us did not run")
        for p in playing:
            p.victim.stop()
        return
    turns.play(playing, steps, 2, time.monotonic() + plan.left() - 20, seed=0)  # not counted: the first seconds of a process are its own
    until = time.monotonic() + min(plan.left() - 20, limit_s or plan.left())
    rounds, gone = turns.play(playing, steps, most if not plan.quick and program not in CALLS else LEAST_ROUNDS, until)
    if gone:
        plan.row(NAME, f"{program}: {gone}", FAIL, f"ended after {len(rounds)} rounds")
    ended = {p.name: p.end(5 if p.name == "nsys" else 20) for p in playing}
    plan.detail(NAME, f"{program} rounds", [{n: {"step_ms": turns.step_ms(b), "steps": b["steps"]} for n, b in r.items()} for r in rounds])
    plan.detail(NAME, f"{program} ended", {n: e.as_detail() for n, e in ended.items() if n not in ("nsys",)})
    judge(plan, program, rounds)


def run(plan, only=None):
    only = only or list(PROGRAMS)
    chosen = [o[5:] for o in only if o.startswith("side=")] or DEFAULT_SIDES
    chosen = [BASE, *(c for c in chosen if c != BASE)]
    unknown = [o for o in only if not o.startswith(("side=", "rounds=", "limit=")) and o not in (*PROGRAMS, *CALLS)] + [c for c in chosen if c not in (*sides(plan, chosen), "nsys")]
    if unknown:
        raise ValueError(f"no such program or side: {', '.join(unknown)}")
    programs = [o for o in only if o in (*PROGRAMS, *CALLS)] or list(PROGRAMS)
    waiting = []
    for at, program in enumerate(programs):
        # The next program's processes import meanwhile only while nothing is timed.
        if not waiting:
            waiting = [(p, start(plan, p, chosen)) for p in programs[at:at + 2]]
        name, players = waiting.pop(0)
        if not plan.room_for(NAME, name, 30):
            for p in players:
                p.victim.stop()
            continue
        for _, others in waiting:
            for p in others:
                p.wait_ready(min(turns.READY_S, max(plan.left() - 10, 1)))
        run_program(plan, name, players, option(only, "rounds", ROUNDS), option(only, "limit", None))
