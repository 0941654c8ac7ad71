# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `said` that need no GPU: python3 -m unittest discover -s tests/gpu"""

import importlib.util
import os
import pathlib
import random
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import turns, victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import said, said_judge  # noqa: E402
from test_always_on import PROGRAM  # noqa: E402
from test_check import CannedRun  # noqa: E402

MS = 1_000_000
BEGAN = 77_000 * MS


def summary(mean=12.3, least=12.2, most=12.5, off=((7.0, 100.0),), windows=1):
    """As a run left it that was not recorded in these seconds of its clock."""
    totals = {"longer_ppm": mean * 1e4, "longer_least_ppm": least * 1e4, "longer_most_ppm": most * 1e4, "windows": windows}
    unobserved = [{"reason": "between two windows", "from_ns": BEGAN + int(a * 1e9), "to_ns": BEGAN + int(b * 1e9)} for a, b in off]
    return {"totals": totals, "coverage": {"unobserved": [*unobserved, {"reason": "capture off", "from_ns": BEGAN, "to_ns": BEGAN + MS}]},
            "attributes": {"windows": "none but those asked for"}}


def clock(step_ms=10.0, longer=0.1, off=((7.0, 100.0),), run_s=100.0, wavers=0.02, first_s=0.0, seed=0):
    """A run's own clock: steps that take `longer` while they are recorded, on a host that wavers by the second; `first_s`: its first step's compiler."""
    draw, at, host = random.Random(seed), [0.0], {}
    while at[-1] < run_s * 1e6:
        now = at[-1] / 1e6
        is_off = any(a <= now < b for a, b in off)
        host.setdefault(int(now), draw.gauss(1, wavers))
        at.append(at[-1] + step_ms * 1e3 * host[int(now)] * (1 if is_off else 1 + longer) + (first_s * 1e6 if len(at) == 1 else 0))
    return {"began_ns": BEGAN, "at_us": at}


def rounds(ours=11.2, closed=10.0, plain=9.9, differ=0.01, count=4, plains=2, number=20, seed=1):
    """Step times of equal processes that differ."""
    draw = random.Random(seed)
    kinds = {"ours": ours, "closed": closed, "plain": plain}
    names = [(f"{side}#{n}", ms * draw.gauss(1, differ)) for side, ms in kinds.items() for n in range(plains if side == "plain" else count)]

    def block(ms):
        steps = [ms * draw.gauss(1, 0.003) for _ in range(20)]
        return {"steps": 20, "took_ms": sum(steps), "steps_ms": steps}

    return [{name: block(ms) for name, ms in names} for _ in range(number)]


def facts(found, windows=1, whole=0, closed=True, seen=40, before=400):
    """What the players left, as always_on_closed.facts_of says it."""
    def one(name):
        is_closed = name.startswith("closed")
        ranks = [{"seen": seen, "all": 2000, "windows": windows if is_closed else whole, "alarms": 0}] if not name.startswith("plain") else []
        return {"ranks": ranks, "processes": 1, "closing": {"closed": closed, "blocks_s": 4.0, "all_steps": before} if is_closed else None}

    return {name: one(name) for name in found[0]}


class Said(CannedRun):
    """What was said against what is true."""

    def judge(self, said_=(12.3, 12.2, 12.5), found=None, known=None):
        self.plan.rows.clear()
        found = found or rounds()
        said_judge.judge_turns(self.plan, "mlp_graph", said_, "" if said_ else "the run measured nothing", found, known or facts(found))
        return {r["check"].partition(": ")[2]: r for r in self.plan.rows}

    def test_what_is_said_is_right_within_two_points_of_the_interval(self):
        _, low, high = said_judge.more(rounds(), "ours", "closed")
        self.assertLess(high - low, 5)
        for value, result in ((12.0, PASS), (low - 1.9, PASS), (high + 1.9, PASS), (low - 2.1, FAIL), (high + 2.1, FAIL), (3.0, FAIL), (0.0, FAIL),
                              (30.0, FAIL)):
            rows = self.judge((value, 0.0, 99.0))
            self.assertEqual(rows["said"]["result"], result, (value, rows["said"]))

    def test_an_interval_that_is_too_wide_tells_nothing_even_of_what_is_wrong(self):
        found = rounds(differ=0.05)
        self.assertGreater(said_judge.more(found, "ours", "closed")[2] - said_judge.more(found, "ours", "closed")[1], 6)
        for value in (12.0, 60.0):
            row = self.judge((value, 0.0, 99.0), found)["said"]
            self.assertEqual(row["result"], NOT_RUN)
            self.assertIn("points only", row["value"])

    def test_a_run_that_says_nothing_is_not_right(self):
        row = self.judge(None)["said"]
        self.assertEqual(row["result"], NOT_RUN)
        self.assertIn("the run measured nothing", row["value"])

    def test_sides_that_were_not_what_they_are_called_show_nothing(self):
        found = rounds()
        for known, why in ((facts(found, windows=2), "another window opened"), (facts(found, closed=False), "did not close"),
                           (facts(found, seen=900), "more steps than"), (facts(found, whole=1), "closed a window"),
                           ({n: f for n, f in facts(found).items() if "ours" not in n}, "left no summary")):
            row = self.judge(known=known)["said"]
            self.assertEqual(row["result"], NOT_RUN, why)
            self.assertIn(why, row["value"])

    def test_what_an_attached_cupti_costs_stands_apart(self):
        row = self.judge(found=rounds(differ=0.0001))["attached"]
        self.assertEqual(row["result"], INFO)
        self.assertIn("+1.0", row["value"])

    def test_where_no_window_closes_it_is_not_known(self):
        found = [{n: b for n, b in r.items() if not n.startswith("closed")} for r in rounds()]
        rows = self.judge(None, found)
        self.assertEqual(rows["said"]["result"], NOT_RUN)
        self.assertNotIn("attached", rows)
        self.assertEqual(rows["recorded"]["result"], INFO)

    def test_few_rounds_show_nothing(self):
        rows = self.judge(found=rounds(number=9))
        self.assertEqual([r["result"] for r in rows.values()], [NOT_RUN])

    def test_what_the_summary_says(self):
        self.assertEqual(said_judge.said_of(summary())[0], (12.3, 12.2, 12.5))
        for nothing in (None, {}, summary(0, 0, 0)):
            self.assertIsNone(said_judge.said_of(nothing)[0])


class Paid(CannedRun):
    """What being recorded cost a free run."""

    def judge(self, clock_, summary_):
        self.plan.rows.clear()
        said_judge.judge_free(self.plan, "jax", clock_, summary_)
        return self.plan.rows[-1]

    def test_recorded_steps_are_held_against_those_that_nobody_recorded(self):
        found = said_judge.paid(clock(seed=1), summary())
        middle, low, high = found["s"]
        self.assertTrue(low < 7.0 * 0.1 / 1.1 < high, found)
        self.assertTrue(low <= middle <= high)
        self.assertAlmostEqual(found["limit_s"], 2.5, places=2)
        self.assertAlmostEqual(found["recorded_s"], 7.1, delta=0.1)

    def test_within_the_limit_over_it_or_not_to_be_told(self):
        for longer, off, wavers, result in ((0.1, ((7.0, 100.0),), 0.02, PASS), (0.6, ((9.0, 100.0),), 0.02, FAIL), (0.1, ((7.0, 10.0),), 0.0, FAIL),
                                            (0.01, ((7.0, 10.0),), 0.001, PASS), (0.2, ((14.0, 100.0),), 0.15, NOT_RUN)):
            row = self.judge(clock(longer=longer, off=off, wavers=wavers), summary(off=off))
            self.assertEqual(row["result"], result, (longer, off, wavers, row))

    def test_several_recorded_stretches_are_summed_up(self):
        off = ((7.0, 12.0), (30.0, 100.0))
        middle, _, _ = said_judge.paid(clock(off=off, wavers=0), summary(off=off))["s"]
        self.assertAlmostEqual(middle, (7.0 + 18.0) * 0.1 / 1.1, delta=0.05)

    def test_a_compiler_in_the_first_step_was_not_paid_for_recording(self):
        off = ((27.0, 100.0),)
        middle, _, _ = said_judge.paid(clock(off=off, first_s=20, wavers=0), summary(off=off))["s"]
        self.assertAlmostEqual(middle, 7 * 0.1 / 1.1, delta=0.05)

    def test_a_pause_at_a_switch_was(self):
        told = clock(wavers=0)
        at = next(i for i, t in enumerate(told["at_us"]) if t > 7.0e6)
        told["at_us"][at + 1:] = [t + 5e6 for t in told["at_us"][at + 1:]]
        self.assertGreater(said_judge.paid(told, summary())["s"][0], 5)

    def test_a_window_that_ended_is_paid_for_until_a_flush_is_over(self):
        ran = clock(off=((11.0, 100.0),), wavers=0)
        told = summary(off=((7.0, 100.0),))
        told["totals"]["longest_flush_ns"] = int(6e9)
        self.assertAlmostEqual(said_judge.paid(ran, told)["s"][0], 11 * 0.1 / 1.1, delta=0.03)

    def test_what_was_seen_meanwhile_counts_where_the_recording_does_not_go_back_so_far(self):
        ran, told = clock(off=((7.0, 100.0),), wavers=0), summary(off=())
        self.assertIsNone(said_judge.paid(ran, told)["s"])
        seen = [(BEGAN + int(7.4e9), BEGAN + int(20e9))]
        self.assertAlmostEqual(said_judge.paid(ran, told, seen)["s"][0], 7 * 0.1 / 1.1, delta=0.03)

    def test_a_run_that_was_recorded_whole_tells_nothing(self):
        row = self.judge(clock(off=()), summary(off=()))
        self.assertEqual(row["result"], NOT_RUN)
        self.assertEqual(self.judge(None, summary())["result"], FAIL)
        self.assertEqual(self.judge(clock(), None)["result"], FAIL)


class Runs(CannedRun):
    """Real processes, of stand-ins."""

    def test_spans_that_ps_told_of_are_those_between_two_looks_that_say_so(self):
        looks = said.Looks.__new__(said.Looks)
        looks.over, looks.thread = mock.Mock(), mock.Mock()
        looks.found = [(off, 10 * n, 10 * n + 1) for n, off in enumerate((False, True, True, True, False, True, False, True, True))]
        self.assertEqual(looks.spans(), [(11, 30), (71, 80)])

    def test_what_a_block_begins_with_does_not_count(self):
        block = {"steps": 4, "took_ms": 26.0, "steps_ms": [9.0, 7.0, 5.0, 5.0], "all_steps": 90}
        self.assertEqual(said.settled([{"ours#1": block}], 2), [{"ours#1": {**block, "steps": 2, "took_ms": 10.0, "steps_ms": [5.0, 5.0]}}])

    def test_as_many_of_a_large_program_at_once_as_the_gpu_holds(self):
        for gpu, count in (("NVIDIA H200, 580.1, 143771 MiB", 3), ("NVIDIA H100, 580.1, 81559 MiB", 2), (None, 1)):
            self.plan.machine = {"gpu": gpu}
            self.assertEqual(said.at_once(self.plan, "gpt_large", [1] * 10), count)
            self.assertEqual(said.at_once(self.plan, "jax", [1] * 10), 10)

    def test_the_thread_that_launches_has_a_core(self):
        mine = os.sched_getaffinity(0)
        child = subprocess.Popen(["sleep", "20"])
        self.addCleanup(child.kill)
        said.give_a_core([mock.Mock(victims=[mock.Mock(process=child)])], max(mine))
        self.assertEqual(os.sched_getaffinity(child.pid), {max(mine)})
        child.kill()
        child.wait()
        said.give_a_core([mock.Mock(victims=[mock.Mock(process=child)])], max(mine))  # gone: nothing

    def test_a_program_whose_window_would_open_again_closes_it_by_its_budget(self):
        with mock.patch.object(turns, "Player") as made:
            for program, key in (("rnn", "GAPPROBE_TEST_FREE_MS"), ("jax", "GAPPROBE_WINDOW")):
                said.start_players(self.plan, program, {}, {"plain": 1, "closed": 1}, [0])
                (_, plain), (_, closed) = (call for call in made.call_args_list[-2:])
                self.assertIn(key, closed["env"])
                self.assertEqual(closed["env"]["GAPPROBE_SLOW_STEP"], "0")
                self.assertFalse([k for k in plain["env"] if k.startswith("GAPPROBE_W")])

    FREE = """
import json, sys, time, pathlib
if "--gate" in sys.argv:
    pathlib.Path("ready").touch()
    sys.stdin.readline()
out = sys.argv[sys.argv.index("--out") + 1]
json.dump({"began_ns": 0, "at_us": list(range(0, 3_000_000, 10_000))}, open(out, "w"))
"""

    def setUp(self):
        super().setUp()
        (self.folder / "turns.py").write_text(PROGRAM)
        (self.folder / "free.py").write_text(self.FREE)
        patch = mock.patch.object(victim, "PROGRAMS", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def test_two_programs_one_after_the_other(self):
        self.plan.budget_s = 300
        sides = {"plain": {"ours": False, "env": {"MS": "10"}}, "ours": {"ours": False, "env": {"MS": "14"}}, "closed": {"ours": False, "env": {"MS": "10"}}}
        with mock.patch.object(said, "SIDES", sides), mock.patch.object(said, "is_off", lambda _plan, p: p.all_steps > 100), \
                mock.patch.object(said, "says_off", lambda *_: False), \
                mock.patch.object(said, "END_S", 0.1):
            said.run(self.plan, ["jax", "decode", "processes=2", "seconds=1", "rounds=10"])
        rows = {r["check"]: r for r in self.plan.rows}
        for program in ("jax", "decode"):
            self.assertIn("true +40.00 % [+40.00, +40.00]", rows[f"{program}: said"]["value"])
            self.assertEqual(rows[f"{program}: said"]["result"], NOT_RUN)  # no summary
            self.assertEqual(rows[f"{program}: paid"]["result"], FAIL)
        self.assertNotIn("jax: ends well", rows)

    def test_what_is_no_program_is_an_error(self):
        for wrong in (["jaxx"], ["jax", "processes=0"], ["jax", "seconds=x"]):
            with self.assertRaises(ValueError, msg=wrong):
                said.run(self.plan, wrong)

    def test_all_close_side_by_side_until_nothing_is_recorded(self):
        players = [mock.Mock(all_steps=0) for _ in range(3)]
        self.plan.budget_s = 1e9
        for n, p in enumerate(players):
            p.name, p.done = f"closed#{n}", 0

            def block(_steps, p=p):
                p.done += 1
                return None if p.name == "closed#2" and p.done == 3 else {}

            p.block.side_effect = block
        with mock.patch.object(said, "is_off", lambda _plan, p: p.done >= 2 + 3 * (p.name == "closed#1") and p.name != "closed#2"):
            found = said.close_together(self.plan, "jax", players, 10)
        self.assertEqual([(n, f["closed"]) for n, f in sorted(found.items())], [("closed#0", True), ("closed#1", True), ("closed#2", False)])
        self.assertEqual([p.done for p in players], [2, 5, 3])

    def test_programs_are_those_that_there_are(self):
        sys.path.append(str(pathlib.Path(said.__file__).resolve().parents[1] / "programs"))
        loops = importlib.import_module("loops")
        self.assertEqual(set(said.PROGRAMS) - {said.CPP}, set(said.PROGRAMS) & set(loops.PROGRAMS))


class Free(unittest.TestCase):
    def test_the_clock_has_a_step_more_than_there_are_and_ends_in_time(self):
        sys.path.append(str(victim.PROGRAMS))
        spec = importlib.util.spec_from_file_location("free_program", victim.PROGRAMS / "free.py")
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        told, steps = program.Clock(3.0), 0
        with mock.patch.object(program.time, "perf_counter", side_effect=[5.0, 6.0, 7.0, 8.0]):
            while told.before():
                steps += 1
        self.assertEqual((steps, told.began, told.at), (3, 5.0, [5.0, 6.0, 7.0, 8.0]))


if __name__ == "__main__":
    unittest.main()
