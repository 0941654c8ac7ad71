# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `ddp` without a GPU: its judges are shown right and wrong canned results, and a job one rank of which fails."""

import os
import pathlib
import sys
import time
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import ddp  # noqa: E402
from suites.causes import lines_marked  # noqa: E402
from test_check import CannedRun  # noqa: E402

LINE, FUNCTION = next(iter(lines_marked(ddp.PROGRAM).items()))
SITE = {"file": "/job/ddp.py", "line": LINE, "function": FUNCTION}


class Ranks(CannedRun):
    def rows(self, form, rank, cause, then=None, site=SITE, told=None, world=2):
        verdict = {"cause": cause, "then": then and {"cause": then}, "site": site, "confidence": "high", "text": ""}
        summary = {"verdict": verdict, "rank": rank if told is None else told, "world_size": world}
        self.plan.rows.clear()
        ddp.judge_rank(self.plan, form, rank, self.ended({"true_steps": 100}, summary))
        return [r["result"] for r in self.plan.rows]

    def test_who_waits_is_comm_and_never_gpu_bound(self):
        self.assertEqual(self.rows("slow", 0, "COMM"), [PASS, PASS])
        for wrong in ("GPU-BOUND", "INPUT", "MIXED"):
            self.assertEqual(self.rows("slow", 0, wrong), [FAIL, PASS], wrong)
        self.assertEqual(self.rows("slow", 0, "SYNC"), [FAIL, PASS])
        self.assertIn("FALSE ACCUSATION", self.plan.rows[0]["value"])

    def test_who_is_starved_is_input_at_its_line(self):
        self.assertEqual(self.rows("slow", 1, "INPUT-WORKERS"), [PASS] * 3)
        self.assertEqual(self.rows("slow", 1, "COMM"), [FAIL, PASS, PASS])
        self.assertEqual(self.rows("slow", 1, "INPUT", site=dict(SITE, line=LINE + 1)), [PASS, PASS, FAIL])
        self.assertEqual(self.rows("slow", 1, "INPUT", site=None), [PASS, PASS, FAIL])

    def test_fed_ranks_wait_for_nothing_and_not_even_second_for_each_other(self):
        self.assertEqual(self.rows("fixed", 1, "GPU-BOUND"), [PASS, PASS])
        self.assertEqual(self.rows("fixed", 0, "GPU-BOUND", then="COMM"), [FAIL, PASS])
        self.assertEqual(self.rows("fixed", 0, "COMM"), [FAIL, PASS])

    def test_a_rank_that_does_not_know_its_place_fails(self):
        self.assertEqual(self.rows("slow", 0, "COMM", told=1), [PASS, FAIL])
        self.assertEqual(self.rows("slow", 0, "COMM", world=0), [PASS, FAIL])


class Hangs(CannedRun):
    def hung(self, seconds, code=-6, late=False):
        """A rank that ended so long after its last step."""
        run = self.ended(code=code, late=late)
        run.ended_at = 100.0
        (run.directory / "last_step").write_text(str(int((100.0 - seconds) * 1e9)))
        return run

    def test_a_job_that_hangs_ends_as_soon_as_without_us_and_the_same_way(self):
        for ours, expected in ((self.hung(12.0), PASS), (self.hung(13.9), PASS), (self.hung(14.2), FAIL), (self.hung(12.0, code=1), FAIL),
                               (self.hung(12.0, late=True), FAIL)):
            ddp.judge_hang(self.plan, self.hung(12.0), ours)
            self.assertEqual(self.last(), expected)

    def test_a_program_that_does_not_hang_shows_nothing(self):
        for plain in (self.hung(12.0, code=0), self.hung(12.0, late=True), self.ended(code=1)):
            ddp.judge_hang(self.plan, plain, self.hung(12.0))
            self.assertEqual(self.last(), NOT_RUN)

    def test_a_job_that_ends_before_its_first_step_with_us_alone_is_harmed(self):
        ddp.judge_hang(self.plan, self.hung(12.0), self.ended(code=-6))
        self.assertEqual(self.last(), FAIL)

    def test_without_a_trace_the_last_seconds_are_lost(self):
        ddp.judge_hang_trace(self.plan, self.hung(12.0))
        self.assertEqual(self.last(), FAIL)


class Together(CannedRun):
    def test_the_starved_rank_must_stand_out(self):
        for worst, expected in (({"rank": 1, "stands_out": True}, PASS), ({"rank": 0, "stands_out": True}, FAIL),
                                ({"rank": 1, "stands_out": False}, FAIL), (None, FAIL)):
            ddp.judge_together(self.plan, "slow", {"worst": worst, "line": "x"}, "")
            self.assertEqual(self.last(), expected, worst)
        ddp.judge_together(self.plan, "fixed", {"worst": {"rank": 0, "stands_out": False}, "line": "x"}, "")
        self.assertEqual(self.last(), INFO)
        ddp.judge_together(self.plan, "fixed", {}, "no command")
        self.assertEqual(self.last(), FAIL)

    def test_the_fix_must_win(self):
        def form(*times):
            return {r: self.ended({"step_ms": t}) for r, t in enumerate(times)}
        self.assertTrue(ddp.judge_win(self.plan, form(36.0, 36.1), form(11.0, 11.2)))
        self.assertFalse(ddp.judge_win(self.plan, form(12.0, 12.1), form(11.0, 11.2)))
        self.assertEqual([r["result"] for r in self.plan.rows], [PASS, FAIL])


class Jobs(CannedRun):
    def test_one_gpu_is_too_few(self):
        self.plan.machine["gpu"] = "NVIDIA H200, 580.159"
        ddp.run(self.plan)
        self.assertEqual([r["result"] for r in self.plan.rows], [NOT_RUN])
        self.plan.machine["gpu"] = "NVIDIA H200, 580.159\nNVIDIA H200, 580.159"
        self.assertEqual(ddp.gpus(self.plan), ["0", "1"])

    def test_the_gpus_of_a_lane_are_those_it_was_given(self):
        self.plan.machine["gpu"] = "NVIDIA H200, 580.159\nNVIDIA H200, 580.159"
        for named, gpus in (("1", ["1"]), ("1,0", ["1", "0"]), ("", [])):
            with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=named):
                self.assertEqual(ddp.gpus(self.plan), gpus)

    def test_a_rank_whose_partner_fails_is_not_waited_for_long(self):
        self.addCleanup(setattr, ddp, "LEFT_BEHIND_S", ddp.LEFT_BEHIND_S)
        ddp.LEFT_BEHIND_S = 0.2
        programs = {0: "import time; time.sleep(60)", 1: "raise SystemExit(3)"}
        ranks = {r: victim.Victim(self.plan, [sys.executable, "-c", p], ours=False) for r, p in programs.items()}
        began = time.monotonic()
        left = ddp.ended(self.plan, ranks)
        self.assertLess(time.monotonic() - began, 20)
        self.assertEqual((left[0].late, left[1].code), (True, 3))

    def test_the_ranks_are_told_their_place_and_multicast_stays_off(self):
        seen = {}

        def python(plan, program, *options, ours, env):
            seen[env["RANK"]] = env
            return program

        self.addCleanup(setattr, victim, "python", victim.python)
        victim.python = python
        ddp.started(self.plan, "slow")
        self.assertEqual(sorted(seen), ["0", "1"])
        self.assertEqual(seen["0"]["MASTER_PORT"], seen["1"]["MASTER_PORT"])
        for rank, env in seen.items():
            self.assertEqual((env["LOCAL_RANK"], env["WORLD_SIZE"], env["NCCL_NVLS_ENABLE"]), (rank, "2", "0"))


if __name__ == "__main__":
    import unittest
    unittest.main()
