# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `used` that need no GPU: python3 -m unittest discover -s tests/gpu"""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check.plan import FAIL, NOT_RUN, PASS  # noqa: E402
from suites import used  # noqa: E402
from test_check import CannedRun  # noqa: E402

# 741 TFLOP/s on an H100 at 1,830 MHz: three quarters of its peak
TRUTH = {"program": "used bf16", "seconds": 14.0, "a_second": 741e12, "multiprocessors": 132, "tensor_a_clock": 4096, "fp32_a_clock": 256,
         "nvml_cpu_ns": 20_000_000, "bandwidth": 3.35e12}


class Judged(CannedRun):
    def judge(self, kind, truth=None, mhz=1830, **counters):
        known = {"tensor_active_share": None, "fp32_active_share": None, "memory_bandwidth_share": None, "pcie_received_bytes_per_s": None}
        analyzed = {"devices": [{"counters": known | counters if counters else None}],
                    "gauges": {"sm_clock_mhz": mhz, "counters_missing": None if counters else "not permitted"}}
        used.judge(self.plan, kind, self.ended(TRUTH | (truth or {})), analyzed)
        return self.last()

    def test_tensor_cores_within_three_points_of_the_clock(self):
        self.assertEqual(self.judge("bf16", tensor_active_share=0.74), PASS)
        self.assertEqual(self.judge("bf16", tensor_active_share=0.70), FAIL)
        self.assertEqual(self.judge("bf16", tensor_active_share=None), FAIL)
        self.assertEqual(self.judge("bf16", mhz=1500, tensor_active_share=0.74), FAIL, "of the peak at the clock it had")

    def test_memory_and_links(self):
        self.assertEqual(self.judge("memory", {"a_second": 2.7e12}, memory_bandwidth_share=0.81), PASS)
        self.assertEqual(self.judge("memory", {"a_second": 2.7e12}, memory_bandwidth_share=0.75), FAIL)
        self.assertEqual(self.judge("pcie", {"a_second": 50e9}, pcie_received_bytes_per_s=51e9), PASS)
        self.assertEqual(self.judge("pcie", {"a_second": 50e9}, pcie_received_bytes_per_s=40e9), FAIL)

    def test_products_in_fp32_leave_the_tensor_cores_idle(self):
        truth = {"a_second": 50e12}
        self.assertEqual(self.judge("fp32", truth, fp32_active_share=0.81, tensor_active_share=0.0), PASS)
        self.judge("fp32", truth, fp32_active_share=0.81, tensor_active_share=0.3)
        self.assertEqual(self.plan.rows[-2]["result"], FAIL)

    def test_what_is_not_known_is_not_judged_and_what_is_missing_fails(self):
        self.assertEqual(self.judge("bf16", {"tensor_a_clock": None}, tensor_active_share=0.74), NOT_RUN)
        self.assertEqual(self.judge("bf16"), FAIL)
        self.assertIn("not permitted", self.plan.rows[-1]["value"])
        self.judge("bf16", {"nvml_cpu_ns": 40_000_000}, tensor_active_share=0.74)
        self.assertEqual(self.plan.rows[-2]["result"], FAIL, "the thread took too long")


if __name__ == "__main__":
    unittest.main()
