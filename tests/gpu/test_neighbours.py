# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `neighbours` without a GPU: its judges are shown right and wrong canned results."""

import gzip
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import neighbours, neighbours_torch  # noqa: E402
from suites.neighbours_torch import TORN_DOWN, WAYS  # noqa: E402
from test_check import CannedRun  # noqa: E402

SAME = {"kernel a": 5, "cuda_runtime b": 7}
REPORT = "gapprobe: x [GP1]"
SECOND = 1_000_000_000
BASE = 1_795_669_039 * SECOND  # the trace counts from here, ns since 1970


class Torch(CannedRun):
    """Two profiles, each between two seconds of training: 0 to 1, 2 to 3, 4 to 5 s. A profile has five kernels `a`, of 2 us each."""

    def left(self, profiles, us, *, at=None, yielded=0, err="", **truth):
        """An ended run; `us`: what `a` took in each profile; `at`: when the kernels began that we recorded, ms (None: without us)."""
        trained = [(BASE + s * SECOND, BASE + (s + 1) * SECOND) for s in (0, 2, 4)]
        truth = {"profiles": profiles, "kernel_us": [{"a": v} for v in us], "trained_ns": trained, "steps_without": 100, **truth}
        if at is None:
            return self.ended(truth, err=err)
        spans = [{"from_ns": 7, "to_ns": 7 + yielded, "reason": neighbours_torch.YIELDED}]
        run = self.ended(truth, {"verdict": {}, "coverage": {"unobserved": spans}}, err=f"{err}\n{REPORT}")
        events = [{"ph": "X", "cat": "kernel", "name": "a", "ts": ms * 1000.0, "dur": 2, "pid": 1, "tid": 1} for ms in at]
        (run.directory / f"gapprobe-host-{run.pid}-a1.json.gz").write_bytes(
            gzip.compress(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}).encode()))
        return run

    def judge(self, who="torch", profiles=(SAME, SAME), us=(10, 10), at=(500, 2500, 4500), without=None, **left):
        """{row: result}"""
        plain = self.left([SAME, SAME], [10, 10.2], **(left if without is None else without))
        self.plan.rows.clear()
        neighbours.judge(self.plan, who, plain, self.left(list(profiles), us, at=at, **left))
        return {r["check"].partition(": ")[2]: r["result"] for r in self.plan.rows}

    def fails(self, rows, *expected):
        self.assertEqual([k for k, v in rows.items() if v not in (PASS, INFO)], list(expected), rows)

    def test_every_event_counts(self):
        self.assertEqual(len(self.judge()), 9)
        self.fails(self.judge())
        self.fails(self.judge(profiles=[SAME, {**SAME, "kernel a": 4}]), "GPU events, profile 2")
        self.fails(self.judge(profiles=[{**SAME, "cuda_sync x": 2}, SAME]), "API and other events, profile 1")
        self.fails(self.judge(profiles=[SAME], us=[10]), "profiles")

    def test_the_kernels_total_time_is_that_without_us(self):
        for us, right in (([10.4, 10.4], True), ([9.8, 9.8], True), ([10, 90], False), ([20, 20], False), ([5, 5], False), ([], False), ([0, 0], False)):
            self.fails(self.judge(us=us), *([] if right else ["kernel time"]))
        # one profile in which somebody else had the GPU is none of the median of five
        plain, ours = (self.left([SAME] * 5, [10, 10, 10, 10, last]) for last in (10, 40))
        neighbours_torch.judge_kernel_time(self.plan, "s", "torch", plain, ours)
        self.assertEqual(self.last(), PASS)

    def test_we_record_before_between_and_after(self):
        for missing in range(3):
            at = [ms for n, ms in enumerate((500, 2500, 4500)) if n != missing]
            self.fails(self.judge(at=[*at, 1500, 3500]), "recorded around the profiles")

    def test_kernels_that_start_before_their_launch_are_told_by_when(self):
        run = self.left([SAME], [10], at=())
        launches = [(100, 99.9), (600, 600.02), (2900, 2900.005), (2950, 2949)]  # ms: a kernel's start, its launch's begin
        events = [{"ph": "X", "cat": cat, "name": name, "ts": ms * 1000.0, "dur": 2, "pid": 1, "tid": tid, "args": {"correlation": n}}
                  for n, pair in enumerate(launches) for ms, cat, name, tid in ((pair[0], "kernel", "a", 1), (pair[1], "cuda_runtime", "cudaLaunchKernel", 2))]
        (run.directory / f"gapprobe-host-{run.pid}-a1.json.gz").write_bytes(
            gzip.compress(json.dumps({"baseTimeNanoseconds": BASE, "traceEvents": events}).encode()))
        nothing = [None] * 4
        self.assertEqual(neighbours_torch.early(run), [[(0, -100), None, (1, 20), None], [None, None, None, (0.5, 5)], nothing])

    def test_a_part_shows_something_only_where_kineto_goes_its_way(self):
        waits, not_there = {"waits_for_daemon": True}, {"waits_for_daemon": False}
        self.fails(self.judge("torch_daemon", **waits))
        self.fails(self.judge("torch_daemon", without=waits, **not_there), "Kineto goes that way")
        rows = self.judge("torch_daemon", **not_there)
        self.assertEqual(rows["Kineto goes that way"], NOT_RUN)

    def test_after_a_tear_down_the_rest_is_said_not_to_be_observed(self):
        twice, once = {"err": "\n".join([TORN_DOWN] * 2)}, {"err": TORN_DOWN}
        rest = {"at": [500], "yielded": 3 * SECOND}
        row = "recorded up to the first tear-down"
        self.fails(self.judge("torch_teardown", **rest, **twice, without=twice))
        self.fails(self.judge("torch_teardown", **rest, **once, without=twice), "Kineto goes that way")
        self.fails(self.judge("torch_teardown", **{**rest, "at": [2500]}, **twice, without=twice), row)
        self.fails(self.judge("torch_teardown", **{**rest, "yielded": 2 * SECOND}, **twice, without=twice), row)
        self.assertEqual(self.judge("torch_teardown", **rest, **once, without=once)["Kineto goes that way"], NOT_RUN)

    def test_each_way_has_its_program(self):
        self.assertEqual([neighbours.program_of(who)[0] for who in WAYS], ["profiled_torch"] * len(WAYS))
        self.assertEqual(neighbours.program_of("torch_schedule")[1:], ["--schedule"])


class Others(CannedRun):
    def test_where_proton_is_loaded_first_one_line_says_that_nothing_is_recorded(self):
        plain = self.ended({"profiles": [{"a": 5}]})

        def judged(summary, err):
            self.plan.rows.clear()
            neighbours.judge(self.plan, "proton", plain, self.ended({"profiles": [{"a": 5}]}, summary, err=err))
            return [r["result"] for r in self.plan.rows]

        self.assertEqual(judged(None, "gapprobe: not recording: Triton's Proton is loaded"), [PASS, PASS])
        self.assertEqual(judged(None, ""), [PASS, FAIL])
        self.assertEqual(judged({"verdict": {}}, "gapprobe: x [GP1]"), [PASS, FAIL])

    def test_proton_that_comes_late_gets_its_events_and_we_report_with_one_more_line_at_most(self):
        report, word = "gapprobe: x [GP1]", "gapprobe: another copy of libcupti"
        spans = [{"from_ns": 0, "to_ns": 2_000_000_000, "reason": neighbours.YIELDED}, {"from_ns": 0, "to_ns": 9, "reason": "between two windows"}]
        summary = {"losses": {"unfinished": 3, "cupti_dropped": 0}, "coverage": {"unobserved": spans}}
        same = {"a": 5}
        for who in neighbours.LATE:
            plain = self.ended({"profiles": [same] * 3})
            for profiles, left, err, expected in (
                    ([same] * 3, summary, report, [PASS] * 3 + [INFO, PASS]), ([same] * 3, summary, f"{word}\n{report}", [PASS] * 3 + [INFO, PASS]),
                    ([{}, same, same], summary, report, [FAIL, PASS, PASS, INFO, PASS]),
                    ([same, same, {"a": 6}], summary, report, [PASS, PASS, FAIL, INFO, PASS]),
                    ([same] * 3, None, report, [PASS] * 3 + [INFO, FAIL]), ([same] * 3, summary, word, [PASS] * 3 + [INFO, FAIL]),
                    ([same] * 3, summary, f"{word}\n{word}\n{report}", [PASS] * 3 + [INFO, FAIL]),
                    ([same] * 3, summary, f"{report}\n{report}", [PASS] * 3 + [INFO, FAIL])):
                self.plan.rows.clear()
                neighbours.judge(self.plan, who, plain, self.ended({"profiles": profiles}, left, err=err))
                self.assertEqual([r["result"] for r in self.plan.rows], expected, (who, profiles, err))
        self.assertEqual(self.plan.rows[3]["value"], "{'unfinished': 3}; 1 spans yielded, 2.0 s")
        self.plan.rows.clear()
        neighbours.judge(self.plan, "proton_late", plain, self.ended({"profiles": [same] * 3}, summary, err=report, code=-11))
        self.assertEqual([r["result"] for r in self.plan.rows], [FAIL])
        one = {"profiles": [{"a": 1}]}
        neighbours.judge(self.plan, "jax", self.ended(one), self.ended(one, summary, err=f"{word}\n{report}"))
        self.assertEqual(self.last(), FAIL, "others get the report alone")

    def test_proton_is_imported_when_its_part_says(self):
        words = {who: neighbours.program_of(who) for who in ("torch", "torch_daemon", "jax", "proton", "proton_forced", "proton_late", "proton_late_rest")}
        self.assertEqual(words["proton"], words["proton_forced"])
        self.assertEqual([w[0] for w in words.values()], ["profiled_torch"] * 2 + ["profiled_jax"] + ["profiled_proton"] * 4)
        self.assertEqual([w[1:] for w in words.values()], [[]] * 5 + [["--late", "0"], ["--late", "1"]])
        self.assertTrue(all((victim.PROGRAMS / f"{w[0]}.py").is_file() for w in words.values()))

    def told(self, calls, answer=0):
        """An ended run whose trace holds these calls."""
        run = self.ended({"subscribed": answer}, {"verdict": {}})
        events = [{"ph": "X", "cat": "cuda_runtime", "name": n, "ts": i, "dur": 1, "pid": 1, "tid": 1} for i, n in enumerate(calls)]
        path = run.directory / f"gapprobe-host-{run.pid}-a1.json.gz"
        path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode()))
        return run

    def test_a_call_that_is_untold_beside_a_subscriber_fails(self):
        both = ["cudaLaunchKernel", "cudaMemcpyAsync"] * 4
        for calls, answer, result in ((both, 0, PASS), (both[:-1], 0, FAIL), (both, 39, FAIL)):
            neighbours.judge_subscriber(self.plan, self.told(both), self.told(calls, answer))
            self.assertEqual(self.last(), result)
