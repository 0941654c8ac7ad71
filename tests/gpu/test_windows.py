# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `windows` without a GPU: the soak's judge is shown right and wrong canned results, and which CUPTI a soak gets."""

import os
import pathlib
import subprocess
import sys
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import native, victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import windows, windows_asked  # noqa: E402
from test_check import CannedRun  # noqa: E402

# As they were on an H200 (39d6f69): 27 of 30 million launches between the two looks, 32 bytes kept
# of each.
KEPT = 961_806_208


class Soak(CannedRun):
    def judged(self, name="machine", *, code=0, late=False, summary=None, losses=None, windows_seen=586, kept=KEPT, cupti=130001, **truth):
        """{row: result} of a soak that ended so."""
        truth = {"rss_start_kb": 289268, "rss_end_kb": 1134316, "gpu_free_start": 1 << 37, "gpu_free_end": 1 << 37, "threads_start": 12, "threads_end": 12,
                 "descriptors_start": 52, "descriptors_end": 52, "true_steps": 600_000, "launches": 30_000_000, "ran_s": 170.9, **truth}
        if summary is None:
            summary = {"totals": {"windows": windows_seen}, "losses": {"zero_timestamp": 0, "unfinished": 0, **(losses or {})},
                       "cost": {"cupti_kept_bytes": kept}, "versions": {"cupti": cupti}, "attributes": {"cupti.path": "/usr/local/cuda/lib/libcupti.so.13"}}
        self.plan.rows.clear()
        windows.judge_soak(self.plan, name, self.ended(truth, summary or None, code=code, late=late, err="gapprobe: x [GP102]"))
        self.values = {r["check"].partition(": ")[2]: r["value"] for r in self.plan.rows}
        return {r["check"].partition(": ")[2]: r["result"] for r in self.plan.rows}

    def flat(self, **other):
        """A soak with a CUPTI that keeps nothing, at whose end there is as much as at its start."""
        return self.judged("13.5", **{"kept": 0, "cupti": 130500, "rss_end_kb": 289268, **other})

    def fails(self, rows, *expected):
        self.assertEqual([k for k, v in rows.items() if v not in (PASS, INFO)], list(expected), rows)

    def test_what_cupti_keeps_of_the_launches_between_the_two_looks_is_not_ours(self):
        self.fails(self.judged())
        self.assertEqual(self.values["host memory"], "282 -> 1108 MB (+825), at most 826 of it CUPTI's")
        self.fails(self.judged(rss_end_kb=1134316 + 20 * 1024), "host memory")
        self.fails(self.judged(kept=0), "host memory")
        self.fails(self.judged(kept=None), "host memory")

    def test_a_cupti_that_keeps_nothing_has_no_more_than_16_mb_whatever_the_summary_says(self):
        self.fails(self.flat())
        self.fails(self.flat(rss_end_kb=289268 + 16 * 1024))
        self.fails(self.flat(rss_end_kb=289268 + 17 * 1024), "host memory")
        self.fails(self.flat(rss_end_kb=289268 + 17 * 1024, kept=KEPT), "host memory")

    def test_a_soak_with_another_cupti_than_it_is_named_for_fails(self):
        self.fails(self.flat(cupti=130001), "CUPTI")
        self.fails(self.flat(cupti=None), "CUPTI")
        self.assertEqual(self.judged()["CUPTI"], INFO)
        self.assertEqual(self.values["CUPTI"], "13.0, /usr/local/cuda/lib/libcupti.so.13")

    def test_nothing_may_be_lost_and_no_timestamp_be_zero(self):
        self.fails(self.flat(losses={"zero_timestamp": 1}), "losses", "zero timestamps")
        self.assertEqual(self.values["zero timestamps"], "1")
        self.fails(self.flat(losses={"unfinished": 2}), "losses")
        self.fails(self.flat(windows_seen=583), "windows")

    def test_no_more_gpu_memory_threads_and_descriptors(self):
        self.fails(self.flat(gpu_free_end=(1 << 37) - (9 << 20)), "GPU memory")
        self.assertEqual(self.values["GPU memory"], "131072 -> 131063 MB free (9 more in use)")
        self.fails(self.flat(threads_end=13), "threads")
        self.fails(self.flat(descriptors_end=53), "descriptors")

    def test_a_soak_that_does_not_end_well_fails(self):
        for odd in ({"code": 9}, {"late": True}, {"summary": {}}):
            self.assertEqual(self.flat(**odd), {"ends well": FAIL}, odd)


class Starts(CannedRun):
    """Which soaks are run, side by side or not, and how each finds its CUPTI."""

    def setUp(self):
        super().setUp()
        self.plan.build = self.folder / "build"
        self.program, self.runtime = self.folder / "window_steps", self.folder / "toolkit/libcudart.so.13"
        self.runtime.parent.mkdir()
        self.runtime.write_text("runtime")
        self.listed = f"\tlibcudart.so.13 => {self.runtime} (0x00007f)\n\tlibc.so.6 => /lib/libc.so.6 (0x00007e)\n"
        self.asked = []

    def fetched(self, release):
        library = self.plan.build / "cupti" / release / "libcupti.so.13"
        library.parent.mkdir(parents=True)
        library.write_text(release)

    def started(self, only, gpus=2):
        """{name: environment} of the soaks that are started, and how many at once."""
        self.plan.machine = {"gpu": "\n".join(["NVIDIA H100"] * gpus)}

        def several(_plan, starts, **options):
            for _, start in starts:
                start()
            self.at_once = options["jobs"]
            return {name: None for name, _ in starts}

        def process(_plan, _command, *, env, name, **_options):
            self.asked.append((name, env))

        answer = subprocess.CompletedProcess([], 0, self.listed, "")
        with mock.patch.object(native, "built", lambda *_: {"window_steps": self.program}), mock.patch.object(subprocess, "run", lambda *_, **__: answer), \
                mock.patch.object(victim, "several_at_once", several), mock.patch.object(victim, "Victim", process):
            windows.soak(self.plan, only)
        return dict(self.asked)

    def test_the_part_soak_is_both_side_by_side_where_there_are_two_gpus(self):
        self.fetched("13.5")
        envs = self.started(["soak"])
        self.assertEqual((list(envs), self.at_once), (["soak_machine", "soak_13.5"], 2))
        self.assertEqual([e.get("CUDA_VISIBLE_DEVICES") for e in envs.values()], ["0", "1"])

    def test_one_after_the_other_where_there_is_one(self):
        self.fetched("13.5")
        envs = self.started(["soak"], gpus=1)
        self.assertEqual((len(envs), self.at_once), (2, 1))
        self.assertFalse(any("CUDA_VISIBLE_DEVICES" in e for e in envs.values()))

    def test_in_a_lane_it_stays_on_the_lanes_gpu(self):
        # (it took the machine's first, and what ran there was found to share its GPU with somebody)
        self.fetched("13.5")
        for named, gpus in (("3", [None]), ("3,2", ["3"])):
            with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=named):
                envs = self.started(["soak_13.5"])
                self.assertEqual([e.get("CUDA_VISIBLE_DEVICES") for e in envs.values()], gpus)
            self.asked.clear()

    def test_a_part_of_it_runs_alone(self):
        self.fetched("13.5")
        self.assertEqual(list(self.started(["soak_13.5"])), ["soak_13.5"])
        self.asked.clear()
        self.assertEqual(list(self.started(["kept", "soak_machine"])), ["soak_machine"])

    def test_a_release_lies_beside_the_runtime_where_cupti_is_looked_for_first(self):
        self.fetched("13.5")
        env = self.started(["soak_13.5"])["soak_13.5"]
        folder = pathlib.Path(env["LD_LIBRARY_PATH"].split(":")[0])
        self.assertEqual({p.name: p.read_text() for p in folder.iterdir()}, {"libcudart.so.13": "runtime", "libcupti.so.13": "13.5"})

    def test_what_is_not_there_is_not_run_and_the_other_is(self):
        self.assertEqual(list(self.started(["soak"])), ["soak_machine"])
        self.assertEqual([(r["check"], r["result"]) for r in self.plan.rows if "13.5" in r["check"]], [("soak 13.5", NOT_RUN)])
        self.plan.rows.clear()
        self.fetched("13.5")
        self.listed = "\tlibcudart.so.13 => not found\n"
        self.started(["soak_13.5"])
        self.assertEqual([(r["check"], r["result"]) for r in self.plan.rows], [("soak 13.5", NOT_RUN)])

    def test_what_there_is_no_time_for_is_said(self):
        self.started(["soak_machine"])
        self.assertEqual([(r["check"], r["result"]) for r in self.plan.rows], [("soak machine", NOT_RUN)])


class Asked(CannedRun):
    """Programs that ask the driver for its launches."""

    def judged(self, name="static", *, code=0, alone_code=0, result="0x1p+1", windows_seen=20, between=50_000, counted=100_000, losses=None, line="gapprobe: x [GP102]"):
        truth = {"true_steps": 100_000, "result": result}
        summary = {"totals": {"windows": windows_seen, "launches_between": between, "clock_steps": counted}, "losses": losses or {"unfinished": 0}}
        self.plan.rows.clear()
        ended = self.ended(truth, summary, code=code, err=line)
        windows_asked.judge(self.plan, "windows", name, ended, self.ended({"true_steps": 100_000, "result": "0x1p+1"}, code=alone_code))
        return [r["check"].partition(": ")[2] for r in self.plan.rows if r["result"] not in (PASS, INFO)]

    def test_right_ones_pass(self):
        self.assertEqual(self.judged(), [])
        self.assertEqual(self.judged(counted=98_000), [])
        self.assertEqual(self.judged("static_threads", counted=0, windows_seen=1), [], "its threads are out of step")

    def test_each_claim_fails_alone(self):
        self.assertEqual(self.judged(result="0x1p+2"), ["results"])
        self.assertEqual(self.judged(windows_seen=2), ["windows"])
        self.assertEqual(self.judged(between=0), ["windows"])
        self.assertEqual(self.judged(line="gapprobe: x [GP102], no recording windows"), ["windows"])
        self.assertEqual(self.judged(counted=90_000), ["steps"])
        self.assertEqual(self.judged(counted=None), ["steps"])
        self.assertEqual(self.judged(losses={"unfinished": 1}), ["losses"])

    def test_what_does_not_end_well_fails_with_us_and_without(self):
        self.assertEqual(self.judged(code=9), ["ends well"])
        self.assertEqual(self.judged(alone_code=9), ["ends well"])


if __name__ == "__main__":
    unittest.main()
