# SPDX-License-Identifier: Apache-2.0
"""What a run with gapprobe costs against the same run without: the programs of one name, each a process of its own with a profiler or none, take
turns on the GPU, a block of half a second each (check/turns.py).

Equal processes differ for as long as they live, by some 3 % where the host is the limit. So `processes=4` has four of each side and of those without a
profiler (another profiler's: one; `side=ours*2`: two of that side), and intervals that are over processes and rounds; with one of each, as without it, they
are of the rounds alone, and a second process without any profiler (`again`) shows what two equal ones differ by. All players have the same cores
(`cores=0-7`; usually the first eight), and what else makes equal processes alike.

Parts are programs, and sides may be chosen: always_on:mlp_eager+side=ours+side=torch_cuda. Programs `call_...` make one call of the runtime
20,000 times a step, and a side `client:subscribe:kernel` is a client of CUPTI that does just that (programs/client.c): what of CUPTI costs what.
`ours` records all steps; `without:1:2` is the same without these kinds of records (38, SYNCHRONIZATION, is off anyway while gapprobe holds the
subscription), `with:WINDOW=48/1000000:SAMPLE_HZ=0` gapprobe with these settings (`GAPPROBE_` before each; all steps where none is about windows),
`library:/path/of.so` another build of it that records all steps.
`closed` is gapprobe as it is by itself, once it has closed its first window (always_on_closed.py). `ddp` (only if named) is a job of two ranks, a GPU
each: they take their turn together. `rounds=60` for more rounds than usual, `limit=150` for so many seconds of them a program at most."""

import pathlib
import shutil
import subprocess
import time

from check import native, turns, victim
from check.plan import FAIL, NOT_RUN
from suites import ddp
from suites.always_on_closed import CLOSED, close, facts_of
from suites.always_on_judge import ABOUT, BASE, BUDGET, LEAST_ROUNDS, NAME, judge

__all__ = ("ABOUT", "NAME", "judge", "run")

PROGRAMS = ("gpt_large", "gpt_small", "mlp_eager", "mlp_graph", "compiled", "trainer")
CALLS = ("call_get_device", "call_is_capturing", "call_event_record", "call_stream_query")
RANKS = "ddp"
# Programs that find no room on a GPU if several processes begin at once; later they play one at a
# time (programs/turns.py).
ONE_BY_ONE = ("gpt_large",)
BLOCK_S = 0.4
LEAD = 3  # steps of a block that do not count, at most
# From one block of a process to its next at most: gapprobe takes ten seconds without a step for a
# program that hangs, and opens a window.
LONGEST_PAUSE_S = 8
ROUNDS = 30
MOST_STEPS = 400
# One process each, however many there are of the other sides.
OTHERS = ("torch_cuda", "torch_cpu_cuda", "nsys")
DEFAULT_SIDES = (BASE, "again", "ours", "budget", *OTHERS)


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


def settings(side):
    """The environment that `with:KEY=VALUE:KEY=VALUE` asks for."""
    told = {f"GAPPROBE_{k}": v for k, _, v in (s.partition("=") for s in side.split(":")[1:])}
    is_windowed = {"GAPPROBE_WINDOW", "GAPPROBE_BUDGET", "GAPPROBE_TEST_FREE_MS"} & told.keys()
    return told if is_windowed else {**victim.WHOLE, **told}


def sides(plan, chosen=(), players=None):
    """name -> what its processes are started with; `client:WORD:WORD`, `without:KIND` and the like are those of `chosen`. `players`: how many processes there
    are (one a side)."""
    traced = nsys()
    players = players or len(chosen)

    def ours(**env):
        return {"ours": True, "env": {**victim.WHOLE, **env}}

    known = {
        BASE: {"ours": False},
        "again": {"ours": False},
        "ours": ours(),
        # a process that takes turns with n others runs for one n-th of the time its budget is a
        # share of; and what the first minutes of a run may cost beyond it is not what this run of
        # half a minute is to show
        "budget": {"ours": True, "env": {"GAPPROBE_BUDGET": f"{BUDGET / max(players, 1):.3f}", "GAPPROBE_TEST_FREE_MS": "0"}},
        CLOSED: {"ours": True, "env": {"GAPPROBE_TEST_FREE_MS": "100"}, "held": True},
        "bare": ours(GAPPROBE_TEST_BARE="1"),
        "no_samples": ours(GAPPROBE_SAMPLE_HZ="0"),
        "no_sites": ours(GAPPROBE_SITES="0"),
        "torch_cuda": {"ours": False, "profiler": "cuda"},
        "torch_cpu_cuda": {"ours": False, "profiler": "cpu+cuda"},
    }
    known |= {w: ours(GAPPROBE_TEST_WITHOUT=w.partition(":")[2].replace(":", ",")) for w in chosen if w.startswith("without:")}
    known |= {w: {"ours": True, "env": settings(w)} for w in chosen if w.startswith("with:")}
    known |= {w: ours(LD_PRELOAD=w.partition(":")[2]) for w in chosen if w.startswith("library:")}
    known |= {c: client(plan, c.split(":")[1:]) for c in chosen if c.startswith("client:")}
    if traced:
        known["nsys"] = {"ours": False, "command_prefix": (traced, "profile", "-t", "cuda", "-s", "none", "--cpuctxsw=none", "-o",
                                                           plan.scratch / f"nsys-{time.monotonic_ns()}-%p")}
    return known


def option(only, name, usual):
    """What stands behind `name=` among the parts."""
    return next((o.partition("=")[2] for o in only if o.startswith(f"{name}=")), usual)


def number(only, name, usual):
    """The same where it is a number, 1 or more."""
    said = option(only, name, usual)
    if said is not usual and not (said.isdigit() and int(said)):
        raise ValueError(f"{name}={said}: no number")
    return said if said is usual else int(said)


def counts(only):
    """{side: how many processes of it}, those without a profiler first: of `side=NAME`, `side=NAME*2`, `processes=4`."""
    each = number(only, "processes", 1)
    said = [o[5:] for o in only if o.startswith("side=")] or [s for s in DEFAULT_SIDES if s != "again" or each == 1]
    found = {BASE: each}
    for word in said:
        name, star, count = word.rpartition("*")
        if not star:
            name, count = word, 1 if word in OTHERS else each
        elif not (count.isdigit() and int(count)):
            raise ValueError(f"side={word}: no number of processes")
        found[name] = int(count)
    return found


def named(side, count):
    """Names of the players of a side."""
    return [side] if count == 1 else [f"{side}#{n}" for n in range(1, count + 1)]


PORTS = set()  # given to jobs of this run: none twice, though some begin to listen late


def port():
    found = ddp.free_port()
    while found in PORTS:
        found = ddp.free_port()
    PORTS.add(found)
    return str(found)


def job():
    """What the ranks of one job are told, but for their own numbers."""
    return {"WORLD_SIZE": str(ddp.WORLD), "LOCAL_WORLD_SIZE": str(ddp.WORLD), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port(),
            "OMP_NUM_THREADS": "1", "GAPPROBE_PRINT": "all", **ddp.NO_MULTICAST}


def start(plan, program, wanted, cores=None):
    """The players of one program."""
    is_job = program == RANKS
    prefix = turns.alike(cores, turns.CORES * (ddp.WORLD if is_job else 1))
    plan.detail(NAME, f"{program} started by", prefix)
    found = []
    for side, how in sides(plan, tuple(wanted), sum(wanted.values())).items():
        for name in named(side, wanted.get(side, 0)):
            told = {**how, "command_prefix": (*prefix, *how.get("command_prefix", ())), "held": how.get("held", program in ONE_BY_ONE)}
            if is_job:
                told |= {"world": ddp.WORLD, "env": {**how.get("env", {}), **job()}}
            found.append((turns.Job if is_job else turns.Player)(plan, program, name, **told))
    return found


def make_ready(plan, program, players):
    """Those that have taken their GPU and done their first steps, or are to close a window and do so later (always_on_closed.py)."""
    found = []
    for p in players:
        within = min(turns.READY_S, max(plan.left() - 10, 1))
        if p.wait_start(within) if p.side == CLOSED and not plan.dry else p.wait_ready(within):
            found.append(p)
        else:
            not_ready(plan, program, p)
    return found


def not_ready(plan, program, player):
    left = player.end(1)
    said = "; ".join(f"exit {e.code}: {e.err[-300:]!r}" for e in left)
    plan.row(NAME, f"{program}: {player.name}", NOT_RUN if player.side == "nsys" else FAIL, f"not ready, {said}")


def steps_of_a_block(player, players):
    """So many that a block takes BLOCK_S, and where windows are to stay closed no process waits too long; None where it does not run."""
    first = player.block(4)
    if not first:
        return None
    each = turns.step_ms(first)
    steps = min(MOST_STEPS, round(BLOCK_S * 1e3 / each))
    if any(p.side == CLOSED for p in players):
        # (first of a round and last of the next)
        steps = min(steps, int(LONGEST_PAUSE_S * 1e3 / (2 * (len(players) - 1) * each)) - LEAD)
    return max(3, steps)


def run_program(plan, program, players, most=ROUNDS, limit_s=None):
    playing = make_ready(plan, program, players)
    plain = next((p for p in playing if p.side == BASE), None)
    steps = steps_of_a_block(plain, playing) if plain else None
    if not steps:
        plan.row(NAME, f"{program}: rounds", FAIL, "the program without us did not run")
        for p in playing:
            p.stop()
        return
    closings = close(plan, program, [p for p in playing if p.side == CLOSED], steps)
    for p in [p for p in playing if not p.ready]:
        not_ready(plan, program, p)
    playing = [p for p in playing if p.ready]
    turns.play(playing, steps, 2, time.monotonic() + plan.left() - 20, seed=0)  # not counted: the first seconds of a process are its own
    until = time.monotonic() + min(plan.left() - 20, limit_s or plan.left())
    rounds, gone = turns.play(playing, steps, most if not plan.quick and program not in CALLS else LEAST_ROUNDS, until)
    if gone:
        plan.row(NAME, f"{program}: {gone}", FAIL, f"ended after {len(rounds)} rounds")
    for p in playing:  # all of them first: a profiler takes its time
        p.tell_end()
    ended = {p.name: p.end(5 if p.side == "nsys" else 20) for p in playing}
    plan.detail(NAME, f"{program} rounds", [{n: {"step_ms": turns.step_ms(b), "steps": b["steps"]} for n, b in r.items()} for r in rounds])
    plan.detail(NAME, f"{program} ended", {n: [e.as_detail() for e in left] if program == RANKS else left[0].as_detail()
                                           for n, left in ended.items() if turns.side_of(n) != "nsys"})
    facts = {p.name: facts_of(ended[p.name], p.all_steps, closings.get(p.name)) for p in playing}
    plan.detail(NAME, f"{program} recorded", facts)
    judge(plan, program, rounds, facts)


def run(plan, only=None):
    only = only or list(PROGRAMS)
    wanted = counts(only)
    known = (*PROGRAMS, *CALLS, RANKS)
    unknown = [o for o in only if not o.startswith(("side=", "rounds=", "limit=", "processes=", "cores=")) and o not in known]
    unknown += [s for s in wanted if s not in (*sides(plan, tuple(wanted)), "nsys")]
    if unknown:
        raise ValueError(f"no such program or side: {', '.join(unknown)}")
    cores = option(only, "cores", None)
    programs = [o for o in only if o in known] or list(PROGRAMS)
    if RANKS in programs and not plan.dry and len(ddp.gpus(plan)) < ddp.WORLD:
        plan.row(NAME, RANKS, NOT_RUN, f"needs {ddp.WORLD} GPUs, {len(ddp.gpus(plan))} here")
        programs.remove(RANKS)
    # The next program's processes import meanwhile, where they are few, and only while nothing is
    # timed.
    ahead = 2 if sum(wanted.values()) <= len(DEFAULT_SIDES) else 1
    waiting = []
    for at, program in enumerate(programs):
        if not waiting:
            waiting = [(p, start(plan, p, wanted, cores)) for p in programs[at:at + ahead]]
        name, players = waiting.pop(0)
        if not plan.room_for(NAME, name, 30):
            for p in players:
                p.stop()
            continue
        for _, others in waiting:
            for p in others:
                p.wait_start(min(turns.READY_S, max(plan.left() - 10, 1)))
        run_program(plan, name, players, number(only, "rounds", ROUNDS), number(only, "limit", None))
