# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `switched` that need no GPU: python3 -m unittest discover -s tests/gpu"""

import pathlib
import random
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import switched  # noqa: E402
from test_check import CannedRun  # noqa: E402


def pairs(effect, count=600, noise=0.02, seed=0):
    """Steps of about 10 ms on a host that drifts and stalls, one with what costs and one without; the first of each pair takes so much longer."""
    draw = random.Random(seed)

    def step(level, more):
        return level * (1 + more) * (1 + draw.gauss(0, noise)) + (draw.random() < 0.05) * draw.uniform(0, 20)

    return [[[step(level, effect)], [step(level, 0.0)]] for level in (10 * draw.uniform(0.7, 1.4) for _ in range(count))]


def truth(effect=0.0, **more):
    return {"pairs": pairs(effect), "slots": 7, "closed": True, "closing_s": 3.0, **more}


# Says who answers before, how many slots there are and whose, who answers with gapprobe's code off, and on again.
PROGRAM = """
#include <stdio.h>
int cudaLaunchKernel(void), slots_find(char *, size_t);
void slots_lead(int);
int main(void) {
    char names[64];
    printf("%d ", cudaLaunchKernel());
    printf("%d ", slots_find(names, sizeof names));
    slots_lead(0);
    printf("%s %d ", names, cudaLaunchKernel());
    slots_lead(1);
    printf("%d", cudaLaunchKernel());
}
"""
SUMMARY = {"totals": {"windows": 1}, "coverage": {"steps_seen": 96}}


class Switched(CannedRun):
    def rows(self, check):
        return [r["result"] for r in self.plan.rows if r["check"] == check]

    def left(self, truth, summary=SUMMARY, code=0):
        return self.ended(truth, summary, code)

    def own(self, run, program="mlp_eager"):
        more = switched.judge(self.plan, program, switched.OWN, run)
        return self.rows(f"{program}: gapprobe's own code"), more

    def test_a_known_effect_is_in_the_interval(self):
        held = 0
        for seed in range(12):
            _, low, high = switched.added(pairs(0.02, count=400, seed=seed))["percent"]
            held += low <= 2.0 <= high
            self.assertLess(high - low, 1.2)
        self.assertGreaterEqual(held, 10)

    def test_what_scatters_much_is_not_taken_for_a_cost(self):
        middle, low, high = switched.added(pairs(0.0, count=4000, noise=0.12))["percent"]
        self.assertLess(abs(middle), 0.6)
        self.assertTrue(low <= 0 <= high)

    def test_within_the_limit_over_it_and_not_to_be_seen(self):
        self.assertEqual(self.own(self.left(truth(0.0)))[0], [PASS])
        self.assertEqual(self.own(self.left(truth(0.02)), "trainer")[0], [FAIL])
        wide = truth() | {"pairs": pairs(0.0, count=25, noise=0.1)}
        self.assertEqual(self.own(self.left(wide), "compiled")[0], [NOT_RUN])

    def test_what_does_not_show_it_is_not_run(self):
        for odd, summary in ((truth(slots=0), SUMMARY), (truth(closed=False), SUMMARY), (truth(), None),
                             (truth(), {"totals": {"windows": 2}}), (truth() | {"pairs": pairs(0.0, count=5)}, SUMMARY)):
            self.plan.rows.clear()
            result, more = self.own(self.left(odd, summary))
            self.assertEqual((result, more), ([NOT_RUN], None))
        self.plan.rows.clear()
        self.assertEqual(self.own(self.left({}, code=-11)), ([FAIL], None))

    def test_cuptis_own_cost_is_for_information_and_its_errors_are_named(self):
        fine = {"pairs": pairs(0.02), "codes": {"cuptiSubscribe 0": 60, "cuptiFinalize 0": 60}}
        self.assertIsNotNone(switched.judge(self.plan, "gpt_small", switched.CUPTI, self.left(fine, None)))
        self.assertIsNone(switched.judge(self.plan, "gpt_small", switched.CUPTI, self.left({**fine, "codes": {"cuptiSubscribe 39": 60}}, None)))
        self.assertEqual(self.rows("gpt_small: an attached CUPTI"), [INFO, NOT_RUN])

    def test_both_are_judged_only_where_cupti_leaves_room(self):
        def more(*percent):
            return {"percent": percent}

        for cupti, expected in (((0.1, 0.0, 0.2), PASS), ((0.3, 0.1, 0.6), NOT_RUN), ((0.2, 0.1, 0.3), PASS), ((2.0, 1.5, 2.5), INFO)):
            self.plan.rows.clear()
            switched.judge_both(self.plan, "trainer", more(0.05, 0.0, 0.1), more(*cupti))
            self.assertEqual(self.rows("trainer: both"), [expected])
        self.plan.rows.clear()
        switched.judge_both(self.plan, "trainer", more(2.0, 1.5, 2.5), more(0.1, 0.0, 0.2))
        self.assertEqual(self.rows("trainer: both"), [FAIL])

    def test_slots_that_lead_into_gapprobe_lead_to_cuda_and_back(self):
        def build(name, source, *options):
            path = self.folder / name
            subprocess.run(["gcc", "-o", path, f"-Wl,--no-as-needed,-rpath,{self.folder}", "-x", "c", "-", "-x", "none", *options], input=source, text=True, check=True)
            return path

        answer = "int cudaLaunchKernel(void) { return %d; }"
        ours = build("libgapprobe.so", answer % 1, "-shared", "-fPIC")
        cuda = build("libcudart.so.13", answer % 2, "-shared", "-fPIC", "-Wl,-soname,libcudart.so.13")
        program = build("program", PROGRAM, switched.library(self.plan), ours, cuda)
        bare = build("bare", PROGRAM, switched.library(self.plan), cuda)
        seen = [subprocess.run([p], capture_output=True, text=True, timeout=20).stdout.split() for p in (program, bare)]
        self.assertEqual(seen, [["1", "1", "cudaLaunchKernel", "2", "1"], ["2", "0", "2", "2"]])

    def test_unknown_parts_are_named(self):
        with self.assertRaisesRegex(ValueError, "nosuch"):
            switched.run(self.plan, ["nosuch"])


if __name__ == "__main__":
    unittest.main()
