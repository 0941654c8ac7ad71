# SPDX-License-Identifier: Apache-2.0
"""What a run says that recording costs it, against what it costs; and what a run loses to that in 100 s under the settings as they are.

First the program runs freely for 100 s (programs/free.py), with gapprobe as it is by itself: what it measures of its own cost is what is *said*, and its
own clock tells what recorded steps took beyond later ones that nobody recorded: what it *paid*. Then several processes of it, equal but for their
profiler, take turns (check/turns.py, as in the suite always_on): `ours` records everything, `closed` has closed its one window, `plain` has no profiler.
What is *true* is `ours` against `closed`; `closed` against `plain` is what an attached CUPTI costs, which is in neither of the two.

A core of a borrowed machine is up to twice as slow for seconds, others beside it are not: so the threads that launch have one core in all players,
which are then slow together, and their blocks are short (equal processes: up to 1.4 % apart, up to 5 before). So have the free run's: a thread of its own
for the backward pass is faster on the same core (steps took 1.3 to 1.7 times as long where it had another).

Parts are programs: said:mlp_graph+cpp. `processes=6`: so many of `ours` and of `closed` (4); `plain=4`: of those without (2); `seconds=100` of the free
run; `rounds=80` at most. Programs share the time that there is. Free runs have the upper half of the cores, turns the lower, so that the one imports beside
the other."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import sys
import threading
import time
import types

from check import native, pairing, turns, victim
from check.plan import FAIL
from suites.always_on import ONE_BY_ONE, number
from suites.always_on_closed import CLOSED, LONGER_S, WITHIN_S, facts_of, is_off, says_off
from suites.always_on_judge import BASE
from suites.said_judge import NAME, OURS, judge_free, judge_turns

__all__ = ("ABOUT", "NAME", "run")

ABOUT = ("what a run says that recording costs it against what it costs, by processes in turns, and what it loses to that in 100 s under the "
         "settings as they are (three minutes a program)")
CPP = "cpp"
PROGRAMS = ("mlp_graph", CPP, "gpt_large", "jax_graphs", "reduce_overhead", "jax", "gpt_small", "compiled", "trainer", "mlp_eager", "decode", "rnn",
            "cupy")
SIDES = {
    BASE: {"ours": False},
    OURS: {"ours": True, "env": victim.WHOLE},
    # One window, and none by an alarm: what waits for its turn is no program that hangs.
    # (GAPPROBE_TEST_FREE_MS opens it again where it cost little.)
    CLOSED: {"ours": True, "env": {"GAPPROBE_WINDOW": "48/1000000", "GAPPROBE_SLOW_STEP": "0"}},
}
# What a step is taken to be changes late there, and its number begins anew: the window opened again
# in three of five. By the budget there is one alone.
CLOSED_BY_BUDGET = {"rnn": {"GAPPROBE_TEST_FREE_MS": "100", "GAPPROBE_SLOW_STEP": "0"}}
PROCESSES, PLAIN, SECONDS, ROUNDS = 4, 2, 100, 80
# Of a block: steps that do not count, for what waited has nothing in its caches, and those that do.
LEAD_S, BLOCK_S, CLOSING_S, MOST_STEPS = 0.1, 0.1, 0.8, 400
IMPORTS_AT_S = 15  # of the free run, or half of it: it has measured its cost by then, and the players import what they need
READY_S = 60
TURNS_S = 45  # less than that for the turns of a program: it is not begun
END_S = 12
LARGE_MIB = 27_000  # what one of ONE_BY_ONE takes of its GPU while it runs
LOOKS_S = 0.5  # from one look at what the free run records to the next


def compiled_once(plan):
    """What compilers find is shared by all processes of a program: they would choose other kernels each time."""
    return {"JAX_COMPILATION_CACHE_DIR": str(plan.scratch / "jax"), "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}


def environment(plan, program):
    return {**compiled_once(plan), **(native.cupti() if program == CPP else {})}


def command(program, script, made):
    """How a program is started by one of the scripts; None where it could not be built."""
    if program == CPP:
        return [made["own_clock"]] if "own_clock" in made else None
    return [sys.executable, victim.PROGRAMS / f"{script}.py", "--program", program]


def halves():
    """(cores of the turns, those of the free run): the same where there are too few."""
    cores = sorted(os.sched_getaffinity(0))
    return (cores[:turns.CORES], cores[turns.CORES:]) if len(cores) >= 2 * turns.CORES else (cores, cores)


def start_free(plan, program, made, seconds, cores):
    """The free run, which imports what it needs and then waits."""
    return victim.Victim(plan, [*turns.pinned(turns.listed(cores)), *command(program, "free", made), "--seconds", seconds, "--out", "clock.json"], ours=True,
                         env=environment(plan, program), gate=True, name=f"free-{program}")


class Looks:
    """Asks `gapprobe ps` now and then whether the free run records, and gives its threads that launch their core, as they come."""

    def __init__(self, plan, free, core):
        self.plan, self.player, self.core, self.found = plan, types.SimpleNamespace(victims=[free]), core, []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look, daemon=True)
        self.thread.start()

    def look(self):
        while not self.over.wait(LOOKS_S):
            if self.core is not None:
                give_a_core([self.player], self.core)
            began = time.monotonic_ns()
            self.found.append((says_off(self.plan, self.player), began, time.monotonic_ns()))

    def spans(self):
        """[(from, to)] in which it recorded nothing for sure, ns."""
        self.over.set()
        self.thread.join()
        found, since = {}, None
        for off, began, ended in self.found:
            since = (since or ended) if off else None
            if since and since != ended:
                found[since] = began
        return list(found.items())


def wait_imported(free, until):
    """Until it has imported what it needs, or is gone."""
    while time.monotonic() < until and free.process.poll() is None and not os.path.exists(os.path.join(free.directory, "ready")):
        time.sleep(0.05)


def clock_of(ended):
    """What the free run's own clock said, or None."""
    try:
        return json.loads((ended.directory / "clock.json").read_text())
    except (OSError, ValueError):
        return None


def start_players(plan, program, made, wanted, cores):
    """Those who are to take turns, held before they touch the GPU."""
    prefix, env = turns.alike(turns.listed(cores)), environment(plan, program)

    def settings(side):
        own = CLOSED_BY_BUDGET.get(program) if side == CLOSED else None
        return {"ours": SIDES[side]["ours"], "env": {**env, **(own or SIDES[side].get("env", {}))}}

    return [turns.Player(plan, program, name, **settings(side), command_prefix=prefix, held=True, command=command(program, "turns", made))
            for side, count in wanted.items() for name in [f"{side}#{n}" for n in range(1, count + 1)]]


def at_once(plan, program, players):
    """How many of the players may have work on the GPU at once."""
    memory = re.search(r"(\d+) MiB", plan.machine.get("gpu") or "")
    return max(1, int(memory[1]) * 3 // 4 // LARGE_MIB if memory else 1) if program in ONE_BY_ONE else max(1, len(players))


def give_a_core(players, core):
    """The threads that launch, the first and PyTorch's of the backward pass (they take turns), have this core from now on."""
    for v in (v for p in players for v in p.victims):
        with contextlib.suppress(OSError):  # (it may be gone, or a thread of it)
            for task in pathlib.Path(f"/proc/{v.process.pid}/task").iterdir():
                if int(task.name) == v.process.pid or (task / "comm").read_text().startswith("pt_autograd"):
                    os.sched_setaffinity(int(task.name), {core})


def close_together(plan, program, players, steps):
    """Has all of them do blocks, side by side where the GPU has room, until nothing is recorded any more: as always_on_closed.close, which is for windows that
    open again while their process waits."""
    found, began, open_ones = {}, time.monotonic(), list(players)
    within = LONGER_S.get(program, WITHIN_S)
    with concurrent.futures.ThreadPoolExecutor(at_once(plan, program, players)) as pool:
        while open_ones and time.monotonic() - began < within and plan.left() > END_S:
            played = [block is not None for block in pool.map(lambda p: p.block(steps), open_ones)]
            for player, goes_on in zip(list(open_ones), played):
                off = goes_on and is_off(plan, player)
                if off or not goes_on:
                    open_ones.remove(player)
                found[player.name] = {"closed": off, "blocks_s": round(time.monotonic() - began, 2), "all_steps": player.all_steps}
    return found


def steps_for(player, block_s):
    """So many steps take that long, by a block of one that has done its first; None where it does not run."""
    first = player.block(8)
    return first and max(4, min(MOST_STEPS, round(block_s * 1e3 / turns.step_ms(first))))


def settled(rounds, lead):
    """The same blocks without so many steps at their begin."""
    def block(b):
        kept = b["steps_ms"][lead:]
        return {**b, "steps": len(kept), "took_ms": sum(kept), "steps_ms": kept}

    return [{n: block(b) for n, b in r.items()} for r in rounds]


def make_ready(plan, program, players):
    """Those that have taken their GPU and done their first steps."""
    found, few = [], at_once(plan, program, players)
    for group in (players[n:n + few] for n in range(0, len(players), few)):
        for p in group:
            if p.wait_start(max(min(READY_S, plan.left()), 1)):
                p.let_go()
        for p in group:
            if p.wait_ready(max(min(READY_S, plan.left()), 1)):
                found.append(p)
            else:
                left = p.end(1)[0]
                plan.row(NAME, f"{program}: {p.name}", FAIL, f"not ready, exit {left.code}: {left.err[-300:]!r}")
    return found


def take_turns(plan, program, players, options, until, importing):
    """(rounds, {name: facts}) of one program; nothing is timed before `importing` is done with that, if it is any."""
    playing = make_ready(plan, program, players)
    plain = next((p for p in playing if p.side == BASE), None)
    steps = steps_for(plain, BLOCK_S) if plain else None
    if not steps:
        for p in playing:
            p.stop()
        return [], {}
    closings = close_together(plan, program, [p for p in playing if p.side == CLOSED], max(4, round(steps * CLOSING_S / BLOCK_S)))
    if importing is not None:
        wait_imported(importing, time.monotonic() + READY_S)
    if options["core"] is not None:
        give_a_core(playing, options["core"])
    lead = round(steps * LEAD_S / BLOCK_S)
    turns.play(playing, lead + steps, 2, time.monotonic() + plan.left(), seed=0)  # not counted: the first seconds of a process are its own
    played, gone = turns.play(playing, lead + steps, options["rounds"], until - END_S)
    rounds = settled(played, lead)
    if gone:
        plan.row(NAME, f"{program}: {gone}", FAIL, f"ended after {len(rounds)} rounds")
    for p in playing:
        p.tell_end()
    ended = {p.name: p.end(20) for p in playing}
    # (of each block, in the order in which they were played, the mean step, the middle one, and the
    # mean with those that do not count, ms)
    def of_block(block, whole):
        return [round(ms, 5) for ms in (turns.step_ms(block), pairing.median(block["steps_ms"]), turns.step_ms(whole))]

    plan.detail(NAME, f"{program} rounds", [{n: of_block(b, whole[n]) for n, b in r.items()} for r, whole in zip(rounds, played)])
    facts = {p.name: facts_of(ended[p.name], p.all_steps, closings.get(p.name)) for p in playing}
    plan.detail(NAME, f"{program} turns", {"steps of a block": steps, "players": facts})
    bad = {n: left[0].err[-300:] for n, left in ended.items() if left[0].code != 0}
    if bad:
        plan.row(NAME, f"{program}: ends well", FAIL, f"exit codes {[ended[n][0].code for n in bad]}: {bad}")
    return rounds, facts


def run_program(plan, program, free, made, wanted, options, import_next):
    """One program: its free run, then its turns, which end at their share of the time. `import_next` starts what the next one imports."""
    until = time.monotonic() + options["share_s"]
    wait_imported(free, time.monotonic() + READY_S)
    free.open()
    players, opened, seconds, looks = [], time.monotonic(), options["seconds"], Looks(plan, free, options["free_core"])
    try:
        while free.process.poll() is None and time.monotonic() < opened + max(IMPORTS_AT_S, seconds / 2):
            time.sleep(0.2)
        players = start_players(plan, program, made, wanted, options["cores"])
        ended = free.wait(min(seconds - (time.monotonic() - opened) + READY_S, max(plan.left() - 5, 1)))
        plan.detail(NAME, f"{program} free", ended.as_detail())
        if ended.code != 0:
            plan.row(NAME, f"{program}: free run", FAIL, f"exit {ended.code}, late {ended.late}: {ended.err[-300:]!r}")
        said, why_none = judge_free(plan, program, clock_of(ended), ended.summary(), looks.spans())
        rounds, facts = take_turns(plan, program, players, options, until, import_next())
    except BaseException:
        for p in players:
            p.stop()
        raise
    judge_turns(plan, program, said, why_none, rounds, facts)


def run(plan, only=None):
    only = list(only or PROGRAMS)
    unknown = [o for o in only if not o.startswith(("processes=", "plain=", "seconds=", "rounds=")) and o not in PROGRAMS]
    if unknown:
        raise ValueError(f"no such program: {', '.join(unknown)}")
    programs = [o for o in only if o in PROGRAMS] or list(PROGRAMS)
    seconds, rounds = number(only, "seconds", SECONDS), number(only, "rounds", ROUNDS)
    processes, plain = number(only, "processes", PROCESSES), number(only, "plain", PLAIN)
    made = native.built(plan, "own_clock") if CPP in programs and not plan.dry else {}
    waiting, left, (cores, free_cores) = [], [p for p in programs if p != CPP or made], halves()

    def import_next():
        """Starts the next one's free run, which waits; None: there is none, or no time for it."""
        while left and not waiting:
            name = left.pop(0)
            if plan.room_for(NAME, name, seconds + TURNS_S):
                waiting.append((name, start_free(plan, name, made, seconds, free_cores)))
        return waiting[0][1] if waiting else None

    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores[:-1] or cores)  # what this process does is not beside what is timed
    try:
        import_next()
        while waiting:
            name, free = waiting.pop(0)
            if plan.left() < seconds + TURNS_S:
                free.stop()
                plan.room_for(NAME, name, seconds + TURNS_S)
                continue
            wanted = {BASE: plain, OURS: processes, CLOSED: processes}
            own = (cores[-1], free_cores[-1]) if cores != free_cores else (None, None)
            options = {"seconds": seconds, "rounds": rounds, "cores": cores, "core": own[0], "free_core": own[1], "share_s": plan.left() / (1 + len(left))}
            run_program(plan, name, free, made, wanted, options, import_next)
    finally:
        os.sched_setaffinity(0, all_cores)
