# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `always_on` with several processes of a kind, that need no GPU: python3 -m unittest discover -s tests/gpu"""

import importlib.util
import io
import json
import pathlib
import random
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import pairing, turns, victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import always_on, always_on_closed, always_on_judge  # noqa: E402
from test_check import CannedRun  # noqa: E402

# A stand-in for programs/turns.py: answers as that does, and steps take as long as its environment
# says.
PROGRAM = """
import json, os, sys
answers = open(sys.argv[sys.argv.index("--answers") + 1], "w")
def say(**what):
    answers.write(json.dumps(what) + chr(10)); answers.flush()
if "--held" in sys.argv:
    say(held=True)
    sys.stdin.readline()
say(ready=True)
done = 0
for line in sys.stdin:
    if not line.strip().isdigit():
        break
    n, ms = int(line), float(os.environ.get("MS", "10")) + int(os.environ.get("RANK", "0"))
    done += n
    say(steps=n, took_ms=ms * n, steps_ms=[ms] * n, all_steps=done, env=dict(os.environ), pid=os.getpid())
"""


def processes(count, effect=0.0, differ=0.03, noise=0.02, rounds=30, seed=0):
    """(those with the effect, those without): step times of processes that differ, by the round, on a host that drifts."""
    draw = random.Random(seed)
    drift = [draw.uniform(20, 40) for _ in range(rounds)]

    def one(more):
        own = 1 + more + draw.gauss(0, differ)
        return [d * own * (1 + draw.gauss(0, noise)) for d in drift]

    return [one(effect) for _ in range(count)], [one(0.0) for _ in range(count)]


class TwoLevels(unittest.TestCase):
    def test_a_known_effect_is_in_the_interval_where_that_of_the_rounds_alone_misses_it(self):
        held, held_by_rounds, wider = 0, 0, 0
        for seed in range(40):
            mine, theirs = processes(4, 0.05, seed=seed)
            (middle, low, high), alone = pairing.two_level(mine, theirs, pairing.SHARE, draws=200, seed=seed)
            self.assertLessEqual(low, middle)
            self.assertLessEqual(middle, high)
            self.assertLessEqual(low, alone[0])
            self.assertGreaterEqual(high, alone[1])
            _, a, b = pairing.interval([m / t - 1 for m, t in zip(mine[0], theirs[0])], rounds=200)
            held += low <= 0.05 <= high
            held_by_rounds += a <= 0.05 <= b
            wider += high - low > b - a
        self.assertGreaterEqual(held, 34)
        self.assertLessEqual(held_by_rounds, 25)
        self.assertGreaterEqual(wider, 38)

    def test_with_one_process_of_each_kind_it_is_the_median_of_the_ratios(self):
        mine, theirs = processes(1, 0.1, rounds=31, seed=7)
        (middle, low, high), alone = pairing.two_level(mine, theirs, pairing.SHARE)
        expected = pairing.interval([m / t - 1 for m, t in zip(mine[0], theirs[0])])
        self.assertIsNone(alone)
        self.assertAlmostEqual(middle, expected[0])
        for a, b in zip((low, high), expected[1:]):
            self.assertAlmostEqual(a, b, places=2)
        (middle, _, _), _ = pairing.two_level(mine, theirs, pairing.DIFFERENCE)
        self.assertAlmostEqual(middle, pairing.median([m - t for m, t in zip(mine[0], theirs[0])]))

    def test_stalls_of_single_blocks_move_nothing(self):
        draw = random.Random(3)
        kinds = [[[30.0 * (1 + (draw.random() < 0.2) * 0.15) for _ in range(30)] for _ in range(4)] for _ in range(2)]
        (middle, low, high), _ = pairing.two_level(*kinds, pairing.SHARE)
        self.assertAlmostEqual(middle, 0.0)
        self.assertLess(high - low, 0.02)

    def test_the_quietest_blocks_tell_of_a_small_effect_what_medians_do_not(self):
        draw, narrower = random.Random(5), 0
        for seed in range(20):
            def one(more):  # a host that stalls in half of the blocks, for as long as it likes
                own = 30 * (1 + more + draw.gauss(0, 0.003))
                return [own * (1 + abs(draw.gauss(0, 0.005)) + (draw.random() < 0.5) * draw.uniform(0, 0.3)) for _ in range(30)]

            mine, theirs = [one(0.02) for _ in range(4)], [one(0) for _ in range(4)]
            (middle, low, high), _ = pairing.two_level(mine, theirs, pairing.SHARE, draws=200, seed=seed, pick=pairing.quiet)
            self.assertLess(abs(middle - 0.02), 0.015)
            (_, a, b), _ = pairing.two_level(mine, theirs, pairing.SHARE, draws=200, seed=seed)
            narrower += high - low < b - a
        self.assertGreaterEqual(narrower, 18)

    def test_a_quantile_of_resampled_steps_is_that_of_all_of_them(self):
        draw = random.Random(5)
        values = [[[draw.gauss(30, 3) for _ in range(7)] for _ in range(10)] for _ in range(3)]
        ordered = sorted(((t, p, r) for p, rounds in enumerate(values) for r, steps in enumerate(rounds) for t in steps), reverse=True)
        for picked, rows in (([1, 1, 1], [1] * 10), ([2, 0, 1], [0, 3] * 5), ([0, 1, 0], [1] + [0] * 9)):
            pool = [t for p, rounds in enumerate(values) for r, steps in enumerate(rounds) for t in steps * (picked[p] * rows[r])]
            for q in (0.5, 0.99, 1.0):
                self.assertAlmostEqual(pairing.weighed_quantile(ordered, [[n * m for m in rows] for n in picked], q), pairing.quantile(pool, q))
        slower = [[[t * 1.2 for t in steps] for steps in rounds] for rounds in values]
        middle, low, high = pairing.two_level_quantile(slower, values, 0.99)
        self.assertAlmostEqual(middle, 0.2)
        self.assertTrue(low <= 0.2 <= high)

    def test_what_equal_processes_differ_by(self):
        found = pairing.spread([[30.0 * k] * 12 for k in (0.97, 1.0, 1.03)])
        self.assertAlmostEqual(found["half_range"], 0.03)
        self.assertAlmostEqual(found["sd"], 0.03)
        self.assertAlmostEqual(found["noise"], 0.0)
        noisy = pairing.spread(processes(4, differ=0.0, noise=0.1)[1])
        self.assertLess(noisy["sd"], 3 * noisy["noise"])

    def test_a_few_processes_widen_it_and_many_hardly(self):
        self.assertEqual(pairing.student(0), 1.0)
        self.assertAlmostEqual(pairing.student(6), 1.25)
        self.assertLess(pairing.student(30), 1.06)


class Judged(CannedRun):
    """Rows of sides that have a limit."""

    @staticmethod
    def rounds(count=4, base=30.0, differ=0.0, **sides):
        """Twenty rounds; the processes of a kind are apart by `differ` ms each."""
        def block(ms):
            return {"steps": 10, "took_ms": ms * 10, "steps_ms": [ms] * 10}

        kinds = {"plain": base, **sides}
        return [{name: block(ms * (1 + 0.2 * (k % 2)) + differ * n) for side, ms in kinds.items() for n, name in enumerate(always_on.named(side, count))}
                for k in range(20)]

    @staticmethod
    def facts(count=4, closed=True, windows=1, seen=25, ranks=1):
        one = {"ranks": [{"seen": seen, "all": 560, "windows": windows, "alarms": windows - 1}] * ranks, "processes": ranks,
               "closing": {"closed": closed, "blocks_s": 3.0, "all_steps": 40}}
        return {name: one for name in always_on.named("closed", count)}

    def judge(self, rounds, facts=None, program="mlp_eager"):
        self.plan.rows.clear()
        always_on.judge(self.plan, program, rounds, facts)
        return {r["check"].partition(": ")[2]: r for r in self.plan.rows}

    def test_within_the_limit_over_it_or_not_to_be_seen(self):
        for closed, differ, result in ((30.03, 0.01, PASS), (30.6, 0.01, FAIL), (30.03, 1.0, NOT_RUN), (30.6, 1.0, NOT_RUN)):
            row = self.judge(self.rounds(closed=closed, differ=differ), self.facts())["closed"]
            self.assertEqual(row["result"], result, (closed, differ, row))
            self.assertEqual("cannot be seen within 0.5 %" in row["value"], result == NOT_RUN)
            self.assertIn("recorded 25, 25, 25, 25 of 560 steps, windows: 1", row["value"])
        for budget, differ, result in ((30.03, 0.01, PASS), (30.6, 0.01, FAIL), (30.03, 1.0, NOT_RUN)):
            self.assertEqual(self.judge(self.rounds(budget=budget, differ=differ))["budget"]["result"], result, (budget, differ))

    def test_the_large_gpt_has_a_limit_of_its_own(self):
        for closed, result in ((30.06, PASS), (30.12, FAIL)):
            row = self.judge(self.rounds(closed=closed), self.facts(), "gpt_large")["closed"]
            self.assertEqual((row["result"], row["limit"]), (FAIL if result is FAIL else PASS, "0.3 %"))

    def test_one_process_of_a_kind_passes_nothing_that_another_one_may_not(self):
        row = self.judge(self.rounds(1, closed=30.03), self.facts(1))["closed"]
        self.assertEqual(row["result"], NOT_RUN)
        self.assertEqual(self.judge(self.rounds(1, closed=30.03, again=30.01), self.facts(1))["closed"]["result"], PASS)

    def test_a_window_that_did_not_close_or_opened_again_is_not_judged(self):
        silent = {name: {**f, "ranks": []} for name, f in self.facts().items()}
        for facts, words in ((self.facts(closed=False, windows=0), "4 of 4 did not close in 3 s"), ({}, "did not close"), (silent, "no summary"),
                             (self.facts(windows=2), "another window opened in 4 of 4 (alarms: 4)"),
                             (self.facts(seen=90), "more steps than were done before")):
            row = self.judge(self.rounds(closed=33.0), facts)["closed"]
            self.assertEqual(row["result"], NOT_RUN, words)
            self.assertIn(words, row["value"])

    def test_what_an_attached_cupti_costs_by_itself_is_not_held_against_us(self):
        def rows(attached, closed):
            return self.judge(self.rounds(closed=closed, differ=0.01, **{always_on_judge.ATTACHED: attached}), self.facts())

        above = "closed, above an attached CUPTI"
        for attached, closed, plain, over in ((30.75, 30.78, INFO, PASS), (30.75, 31.5, INFO, FAIL), (30.03, 30.78, FAIL, FAIL), (30.03, 30.06, PASS, PASS)):
            found = rows(attached, closed)
            self.assertEqual((found["closed"]["result"], found[above]["result"]), (plain, over), (attached, closed))
        self.assertNotIn(above, self.judge(self.rounds(closed=30.0), self.facts()))

    def test_another_build_of_ours_may_cost_little_less(self):
        for ours, result in ((30.6, PASS), (33.0, FAIL), (31.5, NOT_RUN)):
            rows = self.judge(self.rounds(ours=ours, differ=0.1, **{"library:/before.so": 30.0}))
            self.assertEqual(rows["ours, above library:/before.so"]["result"], result, ours)

    def test_other_sides_are_for_information_and_equal_processes_say_what_they_differ_by(self):
        rows = self.judge(self.rounds(ours=40.0, differ=0.1))
        self.assertEqual(rows["ours"]["result"], INFO)
        self.assertIn("4 against 4 processes", rows["ours"]["value"])
        self.assertEqual(rows["equal processes"]["result"], INFO)
        self.assertIn("4 differ by", rows["equal processes"]["value"])
        self.assertNotIn("equal processes", self.judge(self.rounds(1, ours=40.0)))

    def test_both_ranks_of_a_job_say_what_was_recorded(self):
        row = self.judge(self.rounds(2, closed=30.0), self.facts(2, ranks=2), "ddp")["closed"]
        self.assertIn("recorded 25 and 25, 25 and 25 of 560 steps", row["value"])


class Parts(CannedRun):
    def test_processes_of_each_side(self):
        for parts, expected in ((["side=ours"], {"plain": 1, "ours": 1}), (["side=ours*2"], {"plain": 1, "ours": 2}),
                                (["processes=4", "side=closed", "side=torch_cuda"], {"plain": 4, "closed": 4, "torch_cuda": 1}),
                                (["processes=4", "side=torch_cuda*2", "side=plain*3"], {"plain": 3, "torch_cuda": 2}),
                                (["side=with:WINDOW=16/256:SAMPLE_HZ=0*3"], {"plain": 1, "with:WINDOW=16/256:SAMPLE_HZ=0": 3}),
                                ([], {s: 1 for s in always_on.DEFAULT_SIDES})):
            self.assertEqual(always_on.counts(parts), expected)
        self.assertNotIn("again", always_on.counts(["processes=3"]))
        self.assertEqual((always_on.named("ours", 1), always_on.named("ours", 2)), (["ours"], ["ours#1", "ours#2"]))

    def test_what_is_no_side_no_number_and_no_program_is_an_error(self):
        for wrong in ("side=our", "side=our*2", "side=ours*0", "side=ours*x", "processes=0", "processes=x", "mlp"):
            with self.assertRaises(ValueError, msg=wrong):
                always_on.run(self.plan, ["mlp_eager", wrong])

    def test_closed_is_gapprobe_as_it_is_by_itself_and_the_others_record_all(self):
        sides = always_on.sides(self.plan, ("with:WINDOW=16/256", "with:SAMPLE_HZ=0"), 8)
        self.assertEqual(sides["closed"], {"ours": True, "env": {"GAPPROBE_TEST_FREE_MS": "100"}, "held": True})
        self.assertEqual(sides["ours"]["env"], victim.WHOLE)
        self.assertEqual(sides["budget"]["env"]["GAPPROBE_BUDGET"], "0.062")
        self.assertEqual(sides["with:WINDOW=16/256"]["env"], {"GAPPROBE_WINDOW": "16/256"})
        self.assertEqual(sides["with:SAMPLE_HZ=0"]["env"], {**victim.WHOLE, "GAPPROBE_SAMPLE_HZ": "0"})

    def test_two_ranks_need_two_gpus(self):
        self.plan.machine = {"gpu": "one"}
        always_on.run(self.plan, ["ddp", "side=closed"])
        self.assertEqual([(r["check"], r["result"]) for r in self.plan.rows], [("ddp", NOT_RUN)])

    def test_where_windows_are_to_stay_closed_no_process_waits_for_long(self):
        player = mock.Mock(side="plain")
        player.block.return_value = {"steps": 4, "took_ms": 4 * 57.0}
        self.assertEqual(always_on.steps_of_a_block(player, [player] * 8), 7)
        closed = [player] * 6 + [mock.Mock(side="closed")] * 6
        steps = always_on.steps_of_a_block(player, closed)
        self.assertLess((steps + always_on.LEAD) * 0.057 * 2 * 11, 8.5)
        player.block.return_value = None
        self.assertIsNone(always_on.steps_of_a_block(player, closed))


class Closing(CannedRun):
    """Driving processes until nothing is recorded."""

    def close(self, closes_after, block_s=1.0, program="mlp_eager", ready=True):
        """(what was found, blocks of each): windows of the n-th player that close after so many of its blocks, by a clock that only blocks move."""
        clock, done, players = [0.0], {}, []

        def player(name):
            p = mock.Mock(all_steps=0, side="closed")
            p.name = name
            done[name] = 0

            def block(_steps):
                clock[0] += block_s
                done[name] += 1
                p.all_steps += 10
                return {}

            p.block.side_effect = block
            p.wait_ready.return_value = ready
            p.is_gone.return_value = not ready
            return p

        players = [player(f"closed#{n + 1}") for n in range(len(closes_after))]
        self.plan.budget_s = 1e9
        with mock.patch.object(always_on_closed, "is_off", lambda _plan, p: done[p.name] >= closes_after[int(p.name[-1]) - 1]), \
                mock.patch.object(always_on_closed.time, "monotonic", lambda: clock[0]):
            return always_on_closed.close(self.plan, program, players, 12), done

    def test_each_is_driven_until_its_window_is_closed(self):
        found, done = self.close([3, 2])
        self.assertEqual(found, {"closed#1": {"closed": True, "blocks_s": 3.0, "all_steps": 30},
                                 "closed#2": {"closed": True, "blocks_s": 2.0, "all_steps": 20}})
        self.assertEqual(done, {"closed#1": 3, "closed#2": 2})

    def test_one_that_does_not_close_is_given_up_and_said_to_be_open(self):
        found, done = self.close([999])
        self.assertEqual(found["closed#1"]["closed"], False)
        self.assertEqual(done["closed#1"], always_on_closed.WITHIN_S)
        self.assertTrue(self.close([30], program="gpt_large")[0]["closed#1"]["closed"])

    def test_those_that_are_closed_are_kept_awake_meanwhile(self):
        _, done = self.close([1, 14])
        self.assertEqual(done, {"closed#1": 1 + 2, "closed#2": 14})

    def test_one_that_ends_before_it_is_ready_is_left_out(self):
        self.assertEqual(self.close([1], ready=False)[0], {})

    def test_nothing_is_recorded_where_all_of_its_processes_say_so(self):
        player = mock.Mock(victims=[mock.Mock(directory="/tmp", process=mock.Mock(pid=n)) for n in (7, 8)])

        def asked(*standings):
            said = json.dumps({"processes": [{"pid": 7 + n, "standing": s} for n, s in enumerate(standings)]})
            with mock.patch.object(subprocess, "run", return_value=mock.Mock(stdout=said)):
                return always_on_closed.is_off(self.plan, player)

        self.assertTrue(asked("off", "off"))
        for standings in (("off", "on"), ("off",), (), ("stalled", "off")):
            self.assertFalse(asked(*standings), standings)
        with mock.patch.object(subprocess, "run", side_effect=OSError):
            self.assertFalse(always_on_closed.is_off(self.plan, player))

    def test_what_the_summaries_say(self):
        summary = {"totals": {"windows": 1, "alarms": 0}, "coverage": {"steps_seen": 25}}
        facts = always_on_closed.facts_of([self.ended({}, summary), self.ended()], 560, None)
        self.assertEqual(facts, {"ranks": [{"seen": 25, "all": 560, "windows": 1, "alarms": 0}], "processes": 2, "closing": None})
        self.assertEqual(always_on_judge.recorded([always_on_closed.facts_of([self.ended()], 5, None)]), "")


class Players(CannedRun):
    """Real processes, of the stand-in."""

    def setUp(self):
        super().setUp()
        (self.folder / "turns.py").write_text(PROGRAM)
        patch = mock.patch.object(victim, "PROGRAMS", self.folder)
        patch.start()
        self.addCleanup(patch.stop)

    def test_one_that_is_held_begins_when_it_is_let_go(self):
        player = turns.Player(self.plan, "x", "closed#1", ours=False, env={"MS": "12"}, command_prefix=turns.alike(), held=True)
        self.assertEqual((player.side, player.wait_start(20), player.ready), ("closed", True, False))
        self.assertIsNone(player.answer(0.2))
        self.assertTrue(player.wait_ready(20) and player.wait_ready(1))
        block = player.block(5)
        self.assertEqual((turns.step_ms(block), player.all_steps), (12.0, 5))
        self.assertEqual((block["env"]["PYTHONHASHSEED"], block["pid"]), ("0", player.victim.process.pid))
        player.tell_end()
        self.assertEqual([e.code for e in player.end()], [0])

    def test_ranks_take_their_turn_together_and_one_that_is_gone_ends_it(self):
        job = turns.Job(self.plan, "ddp", "plain", world=2, ours=False, env={"MASTER_PORT": "1"})
        self.assertTrue(job.wait_start(20) and job.ready)
        block = job.block(4)
        self.assertEqual((turns.step_ms(block), block["steps_ms"], job.all_steps), (10.5, [10.0] * 4, 4))
        self.assertEqual((block["env"]["RANK"], block["env"]["LOCAL_RANK"], block["env"]["MASTER_PORT"]), ("0", "0", "1"))
        job.ranks[1].victim.process.kill()
        job.ranks[1].victim.process.wait()
        self.assertIsNone(job.block(4))
        self.assertEqual(job.end()[1].code, -9)

    def test_a_whole_run_of_several_processes(self):
        self.plan.quick, self.plan.dry = True, False
        self.plan.budget_s = 120
        with mock.patch.object(always_on, "sides", lambda *_: {s: {"ours": False, "env": {"MS": ms}, "held": s == "closed"}
                                                               for s, ms in (("plain", "10"), ("ours", "14"), ("closed", "10"))}), \
                mock.patch.object(always_on_closed, "is_off", lambda _plan, p: p.all_steps > 100):
            always_on.run(self.plan, ["mlp_eager", "processes=2", "side=closed", "side=ours*1"])
        rows = {r["check"]: r for r in self.plan.rows}
        self.assertEqual(list(rows), ["mlp_eager: equal processes", "mlp_eager: ours", "mlp_eager: closed"])
        self.assertIn("+40.00 % [+40.00, +40.00]", rows["mlp_eager: ours"]["value"])
        self.assertIn("no summary says what was recorded", rows["mlp_eager: closed"]["value"])

    def test_equal_processes_have_their_cores_and_addresses_alike(self):
        prefix = turns.alike("0-0")
        self.assertEqual(turns.alike(count=1)[:2], prefix[:2])
        if "setarch" in prefix:
            ask = [*prefix, sys.executable, "-c", "print(open('/proc/self/personality').read())"]
            self.assertEqual(int(subprocess.run(ask, capture_output=True, text=True).stdout, 16) & 0x40000, 0x40000)


class TheProgram(unittest.TestCase):
    def test_one_that_gives_its_memory_back_takes_a_step_more_to_begin(self):
        sys.path.append(str(victim.PROGRAMS))
        spec = importlib.util.spec_from_file_location("turns_program", victim.PROGRAMS / "turns.py")
        program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(program)
        answers, done = io.StringIO(), 0
        loop = program.Turns(mock.Mock(on_gpu=False), answers, gives_back=True)
        with mock.patch.object(sys, "stdin", io.StringIO("3\n2\n")):
            while loop.before():
                done += 1
        said = [json.loads(line) for line in answers.getvalue().splitlines()]
        self.assertEqual([(s.get("steps"), s.get("all_steps")) for s in said], [(None, None), (3, program.WARM_UP + 6), (2, program.WARM_UP + 11)])
        self.assertEqual(done, said[-1]["all_steps"])
        self.assertLessEqual(loop.lead, always_on.LEAD)


if __name__ == "__main__":
    unittest.main()
