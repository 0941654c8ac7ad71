# SPDX-License-Identifier: Apache-2.0
"""Tests of gpu-check itself that need no GPU: python3 -m unittest discover -s tests/gpu

A check that cannot fail is worth nothing: each judge is shown a right and a wrong canned result.
"""

import array
import gzip
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import pairing, turns, victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS, Plan  # noqa: E402
from check.tracefile import Trace  # noqa: E402
from suites import always_on, around, clock, cost, dataloader, event_cost, exactness, harmless, nvtx, others, outside, records, steps, verdicts  # noqa: E402


def plan_in(directory, **options):
    plan = Plan(directory, directory, options.pop("budget_s", 60), **options)
    plan.scratch = pathlib.Path(tempfile.mkdtemp(dir=directory))
    return plan


class CannedRun(unittest.TestCase):
    """A folder that looks like what a program left."""

    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        self.plan = plan_in(self.folder / "out")
        self.addCleanup(self._folder.cleanup)

    def ended(self, truth=None, summary=None, code=0, err="", late=False):
        left = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        if summary is not None:
            (left / "gapprobe-host-77-a1.summary.json").write_text(json.dumps(summary))
        out = "hello\n" + (json.dumps(truth) + "\n" if truth is not None else "")
        return victim.Ended(code, out, err, 1.0, 0.0, late, left, 77)

    def last(self):
        return self.plan.rows[-1]["result"]


class Statistics(unittest.TestCase):
    def test_a_win_is_the_median_of_pairs_and_its_interval_holds_it(self):
        middle, low, high = pairing.win([(10.0, 8.0), (20.0, 16.0), (10.0, 7.9), (12.0, 9.7)] * 5)
        self.assertAlmostEqual(middle, 0.2, places=3)
        self.assertLessEqual(low, middle)
        self.assertLessEqual(middle, high)

    def test_quantiles_are_interpolated(self):
        self.assertEqual(pairing.median([3, 1, 2]), 2)
        self.assertEqual(pairing.median([4, 1, 2, 3]), 2.5)
        self.assertEqual(pairing.quantile([0, 10], 0.99), 9.9)


class Verdicts(CannedRun):
    def summary(self, cause, count=100):
        return {"verdict": {"code": "GP101", "cause": cause, "confidence": "high"},
                "steps": {"count": count, "source": "periods"}}

    def judge(self, program, form, cause, wins, found=100):
        verdicts.judge_run(self.plan, program, form, self.ended({"true_steps": 100}, self.summary(cause, found)), wins, {})
        return [r["result"] for r in self.plan.rows[-2:]]

    def test_the_right_label_passes_and_a_wrong_one_fails(self):
        self.assertEqual(self.judge("gpt_item", "slow", "SYNC", {"gpt_item": 0.3}), [PASS, PASS])
        self.assertEqual(self.judge("gpt_item", "slow", "LAUNCH", {"gpt_item": 0.3}), [FAIL, PASS])
        self.assertEqual(self.judge("gpt_item", "fixed", "SYNC", {"gpt_item": 0.3}), [FAIL, PASS])
        self.assertEqual(self.judge("gpt_item", "fixed", "GPU-BOUND", {"gpt_item": 0.3}), [PASS, PASS])

    def test_steps_may_be_off_by_one_and_no_more(self):
        self.assertEqual(self.judge("gpt_item", "slow", "SYNC", {"gpt_item": 0.3}, 101), [PASS, PASS])
        self.assertEqual(self.judge("gpt_item", "slow", "SYNC", {"gpt_item": 0.3}, 98), [PASS, FAIL])
        self.assertEqual(self.judge("gpt_item", "slow", "SYNC", {"gpt_item": 0.3}, None), [PASS, FAIL])

    def test_where_a_window_closed_the_steps_are_those_that_were_counted(self):
        self.assertEqual(verdicts.steps_of({"steps": {"count": 97}, "totals": {"windows": 0}}), 97)
        self.assertEqual(verdicts.steps_of({"steps": {"count": 97}, "totals": {"windows": 1}, "coverage": {"steps_run": 230}}), 230)
        self.assertIsNone(verdicts.steps_of(None))

    def test_where_the_fix_wins_little_the_program_is_wrong_not_the_verdict(self):
        self.assertEqual(self.judge("gpt_item", "slow", "LAUNCH", {"gpt_item": 0.05})[0], NOT_RUN)
        self.assertEqual(self.judge("gpt_bound", "slow", "GPU-BOUND", {"gpt_bound": 0.3})[0], NOT_RUN)
        self.assertEqual(self.judge("gpt_bound", "slow", "GPU-BOUND", {"gpt_bound": 0.03})[0], PASS)

    def test_the_compiled_program_is_labelled_by_its_own_fix(self):
        self.assertEqual(self.judge("compiled", "slow", "LAUNCH", {"compiled": 0.6})[0], PASS)
        self.assertEqual(self.judge("compiled", "slow", "LAUNCH", {"compiled": 0.02})[0], FAIL)
        self.assertEqual(self.judge("compiled", "slow", "SMALL-KERNELS", {"compiled": 0.02})[0], PASS)

    def test_a_promise_is_set_beside_the_real_win(self):
        said = self.summary("SYNC")
        said["verdict"].update(step_ns=20e6, predicted_ns=15e6, error_ns=1e6)
        verdicts.judge_run(self.plan, "gpt_item", "slow", self.ended({"true_steps": 100}, said), {"gpt_item": 0.3}, {})
        self.assertIn("25.0% (±5.0%) said, 30.0% real", [r["value"] for r in self.plan.rows])

    def test_a_graph_may_not_be_accused_of_a_wait(self):
        self.assertEqual(self.judge("mlp_graph", "slow", "KERNEL-GAP", {})[0], FAIL)
        self.assertEqual(self.judge("mlp_graph", "slow", "SMALL-KERNELS", {})[0], PASS)

    def test_a_promise_is_held_against_the_fixed_form_under_the_same_recorder(self):
        def slow(promised, error):
            return {"verdict": {"step_ns": 50e6, "predicted_ns": promised, "error_ns": error}}

        fixed = {"steps": {"mean_ns": 30e6}}
        for promised, error, kept in ((31e6, 0, True), (33.9e6, 0, True), (34.1e6, 0, False), (20e6, 11e6, True), (25.9e6, 1e6, False)):
            self.assertEqual(verdicts.kept_promise(slow(promised, error), fixed)[0], kept, promised)
        self.assertIsNone(verdicts.kept_promise(slow(None, None), fixed))
        self.assertIsNone(verdicts.kept_promise(slow(31e6, 0), {"steps": {"mean_ns": None}}))
        self.assertIsNone(verdicts.kept_promise(None, fixed))

    def test_a_run_without_summary_or_with_an_error_fails(self):
        verdicts.judge_run(self.plan, "gpt_item", "slow", self.ended({"true_steps": 3}), {}, {})
        self.assertEqual(self.last(), FAIL)
        verdicts.judge_run(self.plan, "gpt_item", "slow", self.ended({"true_steps": 3}, self.summary("SYNC"), code=1), {}, {})
        self.assertEqual(self.last(), FAIL)

    def test_the_real_win_is_judged(self):
        why = {"issue_ms": 1.0, "kernels": None, "kernel_ms": None}
        for win, expected in ((0.3, PASS), (0.05, FAIL)):
            truth = {"pairs_ms": [[1.0, 1 - win]] * 6, "slow": why, "fixed": why}
            verdicts.judge_win(self.plan, "gpt_item", self.ended(truth), {})
            self.assertEqual(self.last(), expected)
        verdicts.judge_win(self.plan, "gpt_item", self.ended(code=1), {})
        self.assertEqual(self.last(), FAIL)


def slices(*rows):
    """Chrome events from (category, name, ts, dur, tid, correlation)."""
    return [{"ph": "X", "cat": c, "name": n, "ts": t, "dur": d, "pid": 1, "tid": tid, "args": {"correlation": k}}
            for c, n, t, d, tid, k in rows]


PING = slices(
    ("cuda_runtime", "cudaLaunchKernel", 0, 4, 1, 1), ("kernel", "tick", 8, 2, 9, 1), ("cuda_runtime", "cudaStreamSynchronize", 5, 10, 1, 2),
    ("cuda_runtime", "cudaLaunchKernel", 20, 4, 1, 3), ("kernel", "tick", 29, 2, 9, 3), ("cuda_runtime", "cudaStreamSynchronize", 25, 14, 1, 4))


class Traces(CannedRun):
    def trace(self, events, form="array"):
        path = self.folder / "t.json.gz"
        body = json.dumps(events) if form == "array" else json.dumps({"baseTimeNanoseconds": 5, "traceEvents": events})
        path.write_bytes(gzip.compress(body.encode()))
        return Trace(path)

    def test_both_json_forms_are_read_exactly(self):
        for form in ("array", "object"):
            t = self.trace(PING, form)
            self.assertEqual([(k.start, k.end) for k in t.kernels], [(8000, 10000), (29000, 31000)])
        self.assertEqual(t.base_ns, 5)
        t = self.trace(slices(("kernel", "k", 604800000000.123, 0.001, 9, 1)))
        self.assertEqual(t.kernels[0][:2], (604800000000123, 604800000000124))

    def test_clock_distances(self):
        t = self.trace(PING)
        self.assertEqual(t.starts_before_launch(), (2, 0))
        self.assertEqual(t.launch_to_start_on_empty_queue(), [8000, 9000])
        self.assertEqual(t.synchronize_distances(), [5000, 8000])

    def test_a_clock_that_cannot_be_true_fails(self):
        wrong = [dict(e, ts=e["ts"] - 9) if e["cat"] == "kernel" else e for e in PING]
        exactness.judge_clock(self.plan, self.trace(wrong), "x")
        self.assertEqual(self.plan.rows[0]["result"], FAIL)
        late = [dict(e, ts=e["ts"] + 9) if e["cat"] == "kernel" else e for e in PING]
        exactness.judge_clock(self.plan, self.trace(late), "x")
        self.assertEqual([r["result"] for r in self.plan.rows[3:5]], [PASS, FAIL])

    def test_slices_that_perfetto_would_drop_are_counted(self):
        nested = slices(("kernel", "a", 0, 10, 9, 1), ("kernel", "b", 2, 3, 9, 2), ("kernel", "c", 10, 1, 9, 3))
        self.assertEqual(self.trace(nested).dropped_by_perfetto(), 0)
        crossing = slices(("kernel", "a", 0, 10, 9, 1), ("kernel", "b", 5, 10, 9, 2), ("kernel", "c", 5, 10, 8, 3))
        self.assertEqual(self.trace(crossing).dropped_by_perfetto(), 1)


class Exactness(CannedRun):
    def judge(self, kernels, launches, events):
        ended = self.ended({"kernels": 2, "ran": 2, "launches": 2}, {"totals": {"kernels": kernels, "launches": launches}})
        (ended.directory / "gapprobe-host-77-a1.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
        exactness.judge_count(self.plan, ended, "x")
        return [r["result"] for r in self.plan.rows[-3:]]

    def test_every_count_must_be_the_same(self):
        self.assertEqual(self.judge(2, 2, PING), [PASS, PASS, PASS])
        self.assertEqual(self.judge(1, 2, PING), [FAIL, PASS, PASS])
        self.assertEqual(self.judge(2, 3, PING), [PASS, FAIL, PASS])
        self.assertEqual(self.judge(2, 2, PING[:3]), [PASS, PASS, FAIL])

    def test_kernel_time_is_compared_a_step(self):
        for factor, expected in ((1.005, PASS), (1.02, FAIL)):
            ours = self.ended({"steps": 40}, {"totals": {"kernels": 4000, "kernel_ns": int(40 * 5e6 * factor)}})
            theirs = self.ended({"steps": 40, "kernels": 100.0, "kernel_ms": 5.0})
            exactness.judge_kernel_time(self.plan, [(ours, theirs)] * 3)
            self.assertEqual([r["result"] for r in self.plan.rows[-2:]], [expected, PASS])


class Cost(CannedRun):
    def test_a_launch_may_cost_little_more_than_bare_cupti(self):
        for added, expected in ((60, PASS), (400, FAIL)):
            blocks = [[4000.0 + added + n % 7, 100, 4000.0 + n % 5, 100] for n in range(220)]
            cost.judge_launch(self.plan, self.ended({"switch": True, "blocks": blocks}), [3000.0])
            self.assertEqual(self.last(), expected)
        cost.judge_launch(self.plan, self.ended({"switch": False, "blocks": blocks}), [3000.0])
        self.assertEqual(self.last(), FAIL)

    def test_a_step_too_and_its_tail(self):
        good = [[[15.0, 15.1, 15.0], [15.0, 15.1, 15.0]]] * 210
        cost.judge_step(self.plan, self.ended({"switch": True, "pairs_ms": good}))
        self.assertEqual([r["result"] for r in self.plan.rows[-2:]], [PASS, PASS])
        tail = [[[15.0, 15.1, 15.0 + (k % 20 == 0) * 3], [15.0, 15.1, 15.0]] for k in range(210)]
        cost.judge_step(self.plan, self.ended({"switch": True, "pairs_ms": tail}))
        self.assertEqual([r["result"] for r in self.plan.rows[-2:]], [PASS, FAIL])
        few = good[:50]
        cost.judge_step(self.plan, self.ended({"switch": True, "pairs_ms": few}))
        self.assertEqual(self.plan.rows[-2]["result"], FAIL)

    def test_memory_beyond_the_limits_fails(self):
        def run(rss_mb, gpu_mb):
            return self.ended({"rss_start_kb": rss_mb << 10, "rss_end_kb": rss_mb << 10, "launches": 5,
                               "gpu_free_start": (9000 - gpu_mb) << 20, "gpu_free_end": (9000 - gpu_mb) << 20})
        cost.judge_memory(self.plan, run(100, 0), run(150, 20), run(110, 10))
        self.assertEqual([r["result"] for r in self.plan.rows[-4:]], [PASS] * 4)
        cost.judge_memory(self.plan, run(100, 0), run(900, 90), run(110, 10))
        self.assertEqual([r["result"] for r in self.plan.rows[-4:]], [FAIL] * 4)


class EventCost(CannedRun):
    TAIL = "bare p50 40 p99.9 45 p99.99 {bare} max 9000 ns calls 300000 late 9\nours p50 90 p99.9 120 p99.99 {ours} max 9000 ns calls 300000 late 9\n"

    def judged(self, **figures):
        plan = plan_in(self.folder / "out")
        late = self.TAIL.format(bare=23000, ours=25000)
        event_cost.judge_tail(plan, "disk idle", [late, self.TAIL.format(**figures), late])
        return plan.rows[-1]["result"]

    def test_our_tail_is_judged_whatever_that_of_bare_cupti_is(self):
        self.assertEqual(self.judged(bare=900, ours=1200), PASS)
        self.assertEqual(self.judged(bare=900, ours=5200), FAIL)
        self.assertEqual(self.judged(bare=23000, ours=25000), FAIL)

    def test_on_a_machine_that_interrupts_loops_too_we_are_late_no_more_often(self):
        text = "ours p50 230 p99.99 {0} max 90000 ns calls 100000 late {1}\nloop p50 230 p99.99 {2} max 90000 ns calls 100000 late {3}\n"
        for ours, loops, right in [((20000, 30), (25000, 28), PASS), ((20000, 90), (25000, 28), FAIL), ((20000, 30), (900, 28), FAIL)]:
            event_cost.judge_tail(self.plan, "disk idle", [text.format(*ours, *loops)])
            self.assertEqual(self.plan.rows[-1]["result"], right, (ours, loops))

    def test_without_figures_nothing_passes(self):
        event_cost.judge_tail(self.plan, "disk idle", ["", "", ""])
        self.assertEqual(self.plan.rows[-1]["result"], FAIL)

    def test_the_best_of_three_counts(self):
        event_cost.judge_cost(self.plan, ["event 70.0 (quarter 40.0, clock 25.0)", "event 59.0 (quarter 40.0, clock 25.0)"])
        event_cost.judge_cost(self.plan, ["event 70.0 (quarter 40.0, clock 25.0)"])
        self.assertEqual([r["result"] for r in self.plan.rows[-2:]], [PASS, FAIL])

    def test_a_walk_is_judged_by_the_best_of_three(self):
        for texts, result in ((["walk 120.0 (quarter 99.0)", "walk 99.0 (quarter 90.0)"], PASS), (["walk 120.0 (quarter 99.0)"], FAIL), ([""], FAIL)):
            event_cost.judge_walk(self.plan, texts)
            self.assertEqual(self.last(), result)


class Harmless(CannedRun):
    def left(self, *, died_s, ended_s, code=0, out="loss 1\n", err="gapprobe: x [GP101]", ticks=(), kernels=0, idle_after=False):
        """A run that died at `died_s` (CLOCK_MONOTONIC) and ended at `ended_s`, with its files."""
        e = self.ended({}, {"verdict": {}}, code=code, err=err)
        e.out, e.ended_at = out, ended_s
        (e.directory / "death").write_text(str(int(died_s * 1e9)))
        offset = 1_000_000
        words = array.array("q", [len(ticks), offset, 100, 0] + [int(t * 1e9) - offset if t else 0 for t in ticks])
        (e.directory / "ticks").write_bytes(words.tobytes())
        events = slices(*[("kernel", "spin_tick", 10 * i, 5, 9, i) for i in range(kernels)])
        if idle_after:
            events += slices(("idle", "HOST", 10 * kernels + 100, 900, 3, None))
        (e.directory / "gapprobe-host-77-a1.json.gz").write_bytes(gzip.compress(json.dumps(events).encode()))
        return e

    def test_the_same_end_within_two_seconds(self):
        plain = self.left(died_s=100, ended_s=100.3)
        for change, expected in (({}, PASS), ({"ended_s": 103.0}, FAIL), ({"code": 1}, FAIL), ({"out": "loss 2\n"}, FAIL),
                                 ({"err": "gapprobe: a\ngapprobe: b"}, FAIL)):
            ours = self.left(**{"died_s": 100, "ended_s": 100.9, **change})
            harmless.judge_same(self.plan, "x", plain, ours)
            self.assertEqual(self.last(), expected, change)

    def test_kernels_that_ended_a_second_before_must_be_there_and_none_may_be_invented(self):
        ticks = (97.0, 98.0, 99.5, 0)  # two must be in, one may, one never ran
        for kernels, expected in ((1, FAIL), (2, PASS), (4, PASS), (5, FAIL)):
            ours = self.left(died_s=100, ended_s=100.1, ticks=ticks, kernels=kernels)
            harmless.judge_recording(self.plan, "x", ours, killed=False)
            self.assertEqual([r["result"] for r in self.plan.rows[-3:]], [expected, PASS, PASS])

    def test_a_tail_called_idle_fails_and_so_does_a_recording_left_behind(self):
        ours = self.left(died_s=100, ended_s=100.1, ticks=(97.0,), kernels=1, idle_after=True)
        (ours.directory / "gapprobe-0").mkdir()
        (ours.directory / "gapprobe-0" / "a.gpr").write_text("x")
        harmless.judge_recording(self.plan, "x", ours, killed=False)
        self.assertEqual([r["result"] for r in self.plan.rows[-3:]], [PASS, FAIL, FAIL])

    def test_a_death_that_only_we_bring_fails_and_too_few_runs_decide_nothing(self):
        def runs(number, dead):
            return [self.ended(code=1 if n < dead else 0) for n in range(number)]

        for plain, ours, expected in ((runs(30, 0), runs(30, 0), PASS), (runs(30, 0), runs(30, 1), FAIL), (runs(9, 0), runs(9, 1), FAIL),
                                      (runs(29, 0), runs(29, 0), NOT_RUN), (runs(30, 1), runs(30, 0), NOT_RUN), ([None], [None], NOT_RUN)):
            harmless.judge_deaths(self.plan, plain, ours)
            self.assertEqual(self.last(), expected)

    def test_what_cannot_be_recovered_fails(self):
        ours = self.left(died_s=100, ended_s=100.1, ticks=(97.0,), kernels=1)
        harmless.judge_recording(self.plan, "x", ours, killed=True)  # there is no gapprobe command in this folder
        self.assertEqual(self.last(), FAIL)


class Workers(CannedRun):
    def test_a_file_of_a_worker_fails(self):
        plain, ours = self.ended(), self.ended({}, {"verdict": {}}, err="gapprobe: x [GP1]")
        (ours.directory / "gapprobe-host-77-a1.json.gz").write_text("")
        plain.out = ours.out
        dataloader.judge(self.plan, "fork", plain, ours)
        self.assertEqual([r["result"] for r in self.plan.rows], [PASS, PASS, PASS])
        (ours.directory / "gapprobe-host-78-b1.summary.json").write_text("{}")
        dataloader.judge(self.plan, "fork", plain, ours)
        self.assertEqual([r["result"] for r in self.plan.rows[3:]], [PASS, FAIL, PASS])


class Outside(CannedRun):
    def judge(self, code=0, count=20, losses=None, cause="LAUNCH", kernels=20 * 2766):
        self.plan.rows.clear()
        summary = {"steps": {"count": count}, "losses": losses or {}, "verdict": {"cause": cause}, "devices": [{"steady_kernels": kernels}]}
        outside.judge(self.plan, "mlp_eager", 1, code, summary if code == 0 else None, "no process 4")
        return [r["result"] for r in self.plan.rows]

    def test_what_was_asked_for_comes_whole_and_right(self):
        self.assertEqual(self.judge(), [PASS] * 4)
        self.assertEqual(self.judge(count=12), [FAIL, PASS, PASS, PASS])
        self.assertEqual(self.judge(losses={"dropped": 3}), [PASS, FAIL, PASS, PASS])
        self.assertEqual(self.judge(kernels=153), [PASS, PASS, FAIL, PASS])
        self.assertEqual(self.judge(cause="SYNC"), [PASS, PASS, PASS, FAIL])
        self.assertEqual(self.judge(code=9), [FAIL])

    def test_a_program_that_does_not_end_as_without_us_is_harmed(self):
        plain = self.ended({"true_steps": 90})
        for ours, expected in ((self.ended({"true_steps": 88}), PASS), (self.ended({"true_steps": 90}, code=-11), FAIL), (self.ended(late=True), FAIL)):
            self.plan.rows.clear()
            outside.judge_end(self.plan, "graph", plain, ours)
            self.assertEqual(self.plan.rows[0]["result"], expected)


class Around(CannedRun):
    TOOL = around.Tool("compute-sanitizer", "/opt/it", ("--flag",), r"ERROR SUMMARY: .*")
    LINE = "gapprobe: not recording: compute-sanitizer seems to be around (NV_SANITIZER_INJECTION_PORT_BASE); GAPPROBE_FORCE=1 records all the same"

    def ended_under(self, kernels=8000, code=0, says="ERROR SUMMARY: 0 errors", err=""):
        run = self.ended({"kernels": kernels}, code=code, err=err)
        run.out = f"========= {says}\n{run.out}"
        return run

    def test_the_tools_command_stands_in_front(self):
        self.assertEqual(self.TOOL.command(["./a", "1"]), ["/opt/it", "--flag", "./a", "1"])

    def test_program_and_tool_see_nothing_of_us_and_one_line_says_that_we_stay_off(self):
        plain = self.ended_under()
        for ours, expected in ((self.ended_under(err=self.LINE), [PASS, PASS, PASS]), (self.ended_under(kernels=7999, err=self.LINE), [FAIL, PASS, PASS]),
                               (self.ended_under(code=1, err=self.LINE), [FAIL, PASS, PASS]),
                               (self.ended_under(says="ERROR SUMMARY: 1 error", err=self.LINE), [PASS, FAIL, PASS]),
                               (self.ended_under(), [PASS, PASS, FAIL]), (self.ended_under(err=f"{self.LINE}\n{self.LINE}"), [PASS, PASS, FAIL])):
            self.plan.rows.clear()
            around.judge(self.plan, self.TOOL, plain, ours)
            self.assertEqual([r["result"] for r in self.plan.rows], expected)

    def test_a_program_that_fails_under_the_tool_alone_shows_nothing(self):
        around.judge(self.plan, self.TOOL, self.ended_under(code=2), self.ended_under(err=self.LINE))
        self.assertEqual(self.last(), NOT_RUN)
        around.judge(self.plan, self.TOOL, self.ended_under(says=""), self.ended_under(says="", err=self.LINE))
        self.assertEqual([r["result"] for r in self.plan.rows[-3:]], [PASS, FAIL, PASS])


class Steps(CannedRun):
    def judge(self, shape, truth, count):
        summary = {"steps": {"count": count, "source": "periods"}}
        steps.judge(self.plan, shape, False, self.ended(truth, summary))
        return self.last()

    def test_shapes(self):
        self.assertEqual(self.judge("layers", {"true_steps": 250}, 250), PASS)
        self.assertEqual(self.judge("layers", {"true_steps": 250}, 3000), FAIL)
        self.assertEqual(self.judge("generate", {"true_steps": 25, "tokens": 600}, 600), PASS)
        self.assertEqual(self.judge("generate", {"true_steps": 25, "tokens": 600}, 7200), FAIL)
        self.assertEqual(self.judge("unstable", {"true_steps": None}, None), PASS)
        self.assertEqual(self.judge("unstable", {"true_steps": None}, 12), FAIL)


class OthersAndRecords(CannedRun):
    def test_other_programs_need_every_kernel(self):
        for kernels, expected in ((2, PASS), (3, FAIL)):
            e = self.ended({"kernels": kernels}, {"totals": {"kernels": 2}}, err="gapprobe: x [GP1]")
            (e.directory / "gapprobe-host-77-a1.json.gz").write_bytes(gzip.compress(json.dumps(PING).encode()))
            others.judge(self.plan, "plain", e)
            self.assertEqual(self.last(), expected)

    def test_records_need_the_same_counts_and_bytes(self):
        truth = {"kernels": 2, "copies": 3, "memsets": 1}
        for totals, raw, expected in ((truth, b"x", PASS), (truth, b"", FAIL), (dict(truth, copies=2), b"x", FAIL)):
            records.judge(self.plan, "12.4", self.ended(truth, {"totals": totals}), raw)
            self.assertEqual(self.last(), expected)

    def test_the_clock_is_judged_before_and_after_the_pause(self):
        clock.PINGS, before = 2, clock.PINGS
        self.addCleanup(setattr, clock, "PINGS", before)
        after = [dict(e, ts=e["ts"] + 60e6) for e in PING]
        path = self.folder / "t.json.gz"
        path.write_bytes(gzip.compress(json.dumps(PING + [dict(e, args={"correlation": e["args"]["correlation"] + 10}) for e in after]).encode()))
        clock.judge(self.plan, path, 60)
        clear = [r["result"] for r in self.plan.rows]
        self.assertEqual(clear[:3], [PASS, PASS, PASS])
        self.assertEqual(clear[4:6], [PASS, PASS])


class Nvtx(CannedRun):
    def test_names_counts_and_domains_must_be_the_programs(self):
        truth = {"ranges": {"train": 2, "training:phase": 1}, "moments": {"a moment": 1}, "operators": {"aten::mm": 1}}
        right = [("train", {}), ("train", {}), ("phase", {"domain": "training", "payload": 3}), ("a moment", {"style": "Mark"}),
                 ("aten::mm, seq = 3, op_id = 4", {})]
        for wrong, row in ((None, None), (0, 0), (2, 0), (3, 1), (4, 2)):
            made = [r for n, r in enumerate(right) if n != wrong]
            e = self.ended(truth, {"losses": {}})
            found = [{"ph": "X", "cat": "user_annotation", "name": name, "args": args, "ts": 1, "dur": 1} for name, args in made]
            (e.directory / "gapprobe-host-77-a1.json.gz").write_bytes(gzip.compress(json.dumps(found).encode()))
            before = len(self.plan.rows)
            nvtx.judge(self.plan, e)
            expected = [FAIL if n == row else PASS for n in range(4)]
            self.assertEqual([r["result"] for r in self.plan.rows[before:]], expected, wrong)
        lossy = self.ended(truth, {"losses": {"host_ring_full": 1}})
        (lossy.directory / "gapprobe-host-77-a1.json.gz").write_bytes(gzip.compress(b"[]"))
        nvtx.judge(self.plan, lossy)
        self.assertEqual([r["result"] for r in self.plan.rows[-4:]], [FAIL] * 4)


class ThePlan(CannedRun):
    def test_results_are_kept_after_every_row_and_failures_stand_last(self):
        self.plan.row("a", "first", False, "bad", "good")
        self.plan.row("a", "second", True, 1)
        self.plan.row("a", "third", INFO, 2)
        kept = json.loads((self.folder / "out" / "results.json").read_text())
        self.assertEqual([r["result"] for r in kept["rows"]], [FAIL, PASS, INFO])
        lines = self.plan.table().splitlines()
        self.assertTrue(lines[-2].startswith("FAIL"))
        self.assertIn("1 passed, 1 failed", lines[-1])
        self.assertTrue(self.plan.failed)

    def test_what_there_is_no_time_for_is_said(self):
        short = plan_in(self.folder / "short", budget_s=5)
        self.assertFalse(short.room_for("cost", "blocks", 100))
        self.assertEqual(short.rows[-1]["result"], NOT_RUN)


class RunningVictims(CannedRun):
    def test_a_gated_program_waits_and_its_truth_is_its_last_json_line(self):
        program = "import sys, json; sys.stdin.readline(); print('x'); print(json.dumps({'n': 3}))"
        v = victim.Victim(self.plan, [sys.executable, "-c", program], ours=False, gate=True)
        self.assertIsNone(v.process.poll())
        ended = v.wait(20)
        self.assertEqual((ended.code, ended.truth), (0, {"n": 3}))

    def test_a_hung_program_is_killed_and_called_late(self):
        ended = victim.Victim(self.plan, [sys.executable, "-c", "import time; time.sleep(60)"], ours=False).wait(0.3)
        self.assertTrue(ended.late)

    def test_the_queues_give_every_key_back(self):
        start = lambda: victim.Victim(self.plan, [sys.executable, "-c", "print('{}')"], ours=False, gate=False)  # noqa: E731
        keys = [k for k, e in victim.one_by_one(self.plan, [(i, start) for i in range(4)], 5) if e is not None]
        self.assertEqual(keys, [0, 1, 2, 3])
        self.assertEqual(set(victim.several_at_once(self.plan, [(i, start) for i in range(4)], 5)), {0, 1, 2, 3})
        short = plan_in(self.folder / "none", budget_s=1)
        self.assertEqual([e for _, e in victim.one_by_one(short, [(1, start)], 5)], [None])


class Turns(CannedRun):
    """Processes that take turns: what one adds to another, and what the budget may add."""

    @staticmethod
    def rounds(**step_ms):
        """Thirty rounds, the machine half as fast in every second one."""
        return [{name: {"steps": 10, "took_ms": ms * 10 * (1 + k % 2), "steps_ms": [ms * (1 + k % 2)] * 10} for name, ms in step_ms.items()}
                for k in range(30)]

    def test_what_a_machine_that_halves_its_speed_does_is_not_added(self):
        more = turns.added(self.rounds(plain=30.0, ours=42.0), "ours", "plain")
        for value in more["percent"]:
            self.assertAlmostEqual(value, 40.0)
        self.assertAlmostEqual(more["p99_percent"][0], 40.0)

    def test_the_budget_is_judged_where_so_little_can_be_seen(self):
        for budget, again, result in ((30.05, 30.01, PASS), (30.3, 30.01, FAIL), (33.0, 32.0, FAIL), (30.05, 32.0, NOT_RUN), (30.05, None, NOT_RUN)):
            sides = {"plain": 30.0, "ours": 42.0, "budget": budget} | ({"again": again} if again else {})
            always_on.judge(self.plan, "mlp_eager", self.rounds(**sides))
            rows = {r["check"]: r["result"] for r in self.plan.rows[-3:]}
            self.assertEqual((rows["mlp_eager: ours"], rows["mlp_eager: budget"]), (INFO, result), (budget, again))

    def test_few_rounds_show_nothing(self):
        always_on.judge(self.plan, "gpt_small", self.rounds(plain=30.0, budget=30.0)[:5])
        self.assertEqual(self.last(), FAIL)

    def test_a_program_does_as_many_steps_as_it_is_told(self):
        sys.path.append(str(victim.PROGRAMS))
        spec = importlib.util.spec_from_file_location("turns_program", victim.PROGRAMS / "turns.py")
        turns_program = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(turns_program)
        answers, told = io.StringIO(), io.StringIO("3\n2\nend\n")

        class Nothing:
            on_gpu = False

            def sync(self):
                pass

        loop, done = turns_program.Turns(Nothing(), answers), 0
        with mock.patch.object(sys, "stdin", told):
            while loop.before():
                done += 1
        said = [json.loads(line) for line in answers.getvalue().splitlines()]
        self.assertEqual([s.get("steps") for s in said], [None, 3, 2])
        self.assertEqual([len(s["steps_ms"]) for s in said[1:]], [3, 2])
        self.assertEqual(done, turns_program.WARM_UP + 3 + 2 + 2 * turns_program.LEAD)


if __name__ == "__main__":
    unittest.main()
