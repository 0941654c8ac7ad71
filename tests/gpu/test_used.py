# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `used` that need no GPU: python3 -m unittest discover -s tests/gpu"""

import json
import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent / "programs"))

from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from sm_clock import SmClock, mean_mhz  # noqa: E402
from suites import used, used_ncu, used_phases  # noqa: E402
from test_check import CannedRun  # noqa: E402

# 741 TFLOP/s on an H100 at 1,830 MHz: three quarters of its peak
TRUTH = {"program": "used bf16", "seconds": 14.0, "a_second": 741e12, "multiprocessors": 132, "tensor_a_clock": 4096, "fp32_a_clock": 256,
         "nvml_cpu_ns": 20_000_000, "bandwidth": 3.35e12}


class Judged(CannedRun):
    def judge(self, kind, truth=None, mhz=1830, **counters):
        known = {"tensor_active_share": None, "fp32_active_share": None, "memory_bandwidth_share": None, "pcie_received_bytes_per_s": None,
                 "nvlink_received_bytes_per_s": None}
        analyzed = {"devices": [{"counters": known | counters if counters else None}],
                    "gauges": {"sm_clock_mhz": mhz, "counters_missing": None if counters else "not permitted"}}
        used.judge(self.plan, kind, self.ended(TRUTH | (truth or {})), analyzed, self.periods)
        return self.last()

    periods = ()

    def row(self, check):
        return next((r for r in self.plan.rows if r["check"] == check), None)

    def test_tensor_cores_within_three_points_of_the_clock(self):
        self.assertEqual(self.judge("bf16", tensor_active_share=0.74), PASS)
        self.assertEqual(self.judge("bf16", tensor_active_share=0.70), FAIL)
        self.assertEqual(self.judge("bf16", tensor_active_share=None), FAIL)
        self.assertEqual(self.judge("bf16", mhz=1500, tensor_active_share=0.74), FAIL, "of the peak at the clock it had")

    def test_memory_and_links(self):
        self.assertEqual(self.judge("memory", {"a_second": 2.7e12}, memory_bandwidth_share=0.81), PASS)
        self.assertEqual(self.judge("memory", {"a_second": 2.7e12}, memory_bandwidth_share=0.75), FAIL)

    def test_a_link_carries_payload_and_headers_and_no_more(self):
        most = {"pcie": 55e9, "nvlink": 52e9}
        for link in used.LINKS:
            for read, result in ((most[link] - 1e8, PASS), (50e9, PASS), (49.9e9, FAIL), (most[link] + 1e8, FAIL), (None, FAIL)):
                self.assertEqual(self.judge(link, {"a_second": 50e9}, memory_bandwidth_share=0.01, **{f"{link}_received_bytes_per_s": read}), result, (link, read))
        self.judge("pcie", {"a_second": 50e9}, pcie_received_bytes_per_s=53.9e9)
        self.assertIn("+7.8 %", self.plan.rows[-1]["value"])

    def test_the_clock_that_was_counted_goes_before_what_nvml_read(self):
        truth = {"a_second": 667e12, "sm_mhz": 1345.0}  # 91.7 % of the peak at that clock
        self.assertEqual(self.judge("bf16", truth, mhz=1447, tensor_active_share=0.931), PASS)
        self.assertIn("at 1345 MHz by cycles, NVML reads 1447", self.plan.rows[-1]["value"])
        self.assertEqual((self.row("bf16: NVML's clock")["result"], self.row("bf16: NVML's clock")["value"]), (INFO, "1447 MHz, by cycles 1345: +7.6 %"))
        self.assertEqual(self.judge("bf16", truth, mhz=None, tensor_active_share=0.931), PASS, "NVML is not needed")
        self.assertEqual(self.judge("bf16", truth | {"sm_mhz": 1447.0}, tensor_active_share=0.931), FAIL)

    def test_nvmls_clock_is_named_only_where_it_is_off(self):
        self.judge("bf16", {"sm_mhz": 1800.0}, mhz=1830, tensor_active_share=0.74)
        self.assertIsNone(self.row("bf16: NVML's clock"), "1.7 % is not")

    def test_without_cycles_nvmls_clock_counts_and_the_row_says_so(self):
        truth = {"sm_mhz": None, "sm_mhz_missing": "ModuleNotFoundError: No module named 'cupy'"}
        self.assertEqual(self.judge("bf16", truth, tensor_active_share=0.74), PASS)
        self.assertIn("NVML reads 1830 MHz, cycles not counted (ModuleNotFoundError", self.plan.rows[-1]["value"])
        self.assertEqual(self.judge("bf16", truth, mhz=None, tensor_active_share=0.74), NOT_RUN)

    def test_the_threads_row_says_over_what(self):
        self.periods = [1.0005, 1.0009, 1.0931]
        self.judge("bf16", {"nvml_cpu_before_ns": 8_000_000}, tensor_active_share=0.74)
        self.assertEqual(self.row("bf16: CPU time of the thread")["value"], "1.43 ms a second: 20.0 ms in 14.0 s, 8.0 before; 3 readings, 1.000 to 1.093 s")

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


class Phases(CannedRun):
    def results(self, rollout, forward, **truth):
        known = {"a_second": {"rollout": 3.2e12, "forward": 741e12}, "multiprocessors": 132, "tensor_a_clock": 4096, "sm_mhz": 1830, "bandwidth": 4e12}
        row = ("memory_bandwidth_pct", "tensor_active_pct")
        rows = {"rollout": dict(zip(row, rollout)), "forward": dict(zip(row, forward))}
        used_phases.judge(self.plan, "used", self.ended(known | truth), rows, used.expected)
        return [r["result"] for r in self.plan.rows[-3:]]

    def test_each_phase_has_its_own(self):
        self.assertEqual(self.results((79.0, 0.3), (30.0, 75.5)), [PASS, PASS, PASS])
        self.assertEqual(self.results((55.0, 37.0), (55.0, 37.0)), [FAIL, FAIL, FAIL], "the means of the whole")
        self.assertEqual(self.results((None, None), (None, None)), [FAIL, FAIL, FAIL])
        self.assertEqual(self.results((79.0, 0.3), (30.0, 75.5), sm_mhz=None), [PASS, NOT_RUN, PASS])


class Readings(unittest.TestCase):
    def test_times_between_readings_are_those_of_the_counter_track(self):
        text = """{"traceEvents": [
        {"ph": "C", "pid": 1, "ts": 1000.5, "name": "GPU 0 multiprocessors %", "args": {"value": 95}},
        {"ph": "C", "pid": 1, "ts": 1000.5, "name": "GPU 0 tensor cores %", "args": {"value": 95}},
        {"ph": "C", "pid": 1, "ts": 1001500.5, "name": "GPU 0 multiprocessors %", "args": {"value": 96}},
        {"ph": "C", "pid": 1, "ts": 2001500.5, "name": "GPU 0 multiprocessors %", "args": {"value": 0}}]}"""
        self.assertEqual(used.periods_of(text), [1.0005, 1.0])
        self.assertEqual(used.periods_of('{"traceEvents": []}'), [])

    def test_busy_is_the_kernels_share_of_the_steady_time(self):
        devices = [{"buckets_ns": {"compute": 900, "sync": 100}, "steady_wall_ns": 1000}]
        self.assertEqual(used.busy({"devices": devices, "gauges": {"utilization_pct": 50}}), 0.9)
        self.assertEqual(used.busy({"devices": [], "gauges": {"utilization_pct": 50}}), 0.5)
        self.assertIsNone(used.busy({}))


class Clock(unittest.TestCase):
    def test_the_median_of_multiprocessors_that_were_seen_both_times(self):
        before = {0: (1000, 0), 1: (9000, 0), 2: (0, 0), 7: (5, 5)}
        after = {0: (1000 + 20_000_000, 10_000_000), 1: (9000 + 15_000_000, 10_000_000), 2: (14_000_000, 10_000_000), 8: (7, 7)}
        self.assertEqual(mean_mhz(before, after), 1500.0)

    def test_what_is_no_clock_is_none(self):
        self.assertIsNone(mean_mhz({}, {}))
        self.assertIsNone(mean_mhz({0: (0, 0)}, {1: (1_500_000, 1_000_000)}), "none seen twice")
        for cycles, ns in ((99_000, 1_000_000), (3_001_000, 1_000_000), (1_500_000, 0), (-1_500_000, 1_000_000), (-1_500_000, -1_000_000)):
            self.assertIsNone(mean_mhz({0: (0, 0)}, {0: (cycles, ns)}), (cycles, ns))

    def measured(self, *readings):
        """A clock whose kernel finds these."""
        left = [readings[0], *readings]  # (the first one loads it)
        rows = types.SimpleNamespace(reshape=lambda *_: types.SimpleNamespace(tolist=lambda: left.pop(0)))
        cupy = types.SimpleNamespace(int64=int, empty=lambda n, dtype: n, asnumpy=lambda _: rows, RawKernel=lambda code, name: lambda grid, block, args: None)
        with mock.patch.dict(sys.modules, {"cupy": cupy}):
            clock = SmClock(2)
            clock.begin()
            clock.end()
        return clock

    def test_it_is_read_at_the_beginning_and_at_the_end(self):
        clock = self.measured([[0, 100, 50], [1, 300, 50], [0, 110, 55]], [[1, 300 + 1_400_000, 1_000_050], [0, 110 + 1_600_000, 1_000_055]])
        self.assertEqual((clock.mhz, clock.missing), (1500.0, None))
        clock = self.measured([[0, 100, 50]], [[0, 200, 1_000_050]])
        self.assertIsNone(clock.mhz)
        self.assertIn("senseless", clock.missing)

    def test_without_cupy_there_is_none_and_it_says_why(self):
        with mock.patch.dict(sys.modules, {"cupy": None}):
            clock = SmClock(132)
            clock.begin()
            clock.end()
        self.assertIsNone(clock.mhz)
        self.assertIn("cupy", clock.missing)


def table(*kernels, units=None):
    """What ncu --csv --page raw prints, what it and the program say included; a kernel: (name, [value of each metric])."""
    names = [*used_ncu.METRICS.values()]
    units = units or ["%"] * 7 + ["byte/s", "hz", "ns"]
    heads = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size", "Device", "CC"]
    lines = [[*heads, *names], [""] * len(heads) + units]
    lines += [[str(i), "715", "python3.12", "127.0.0.1", name, "1", "7", "(384, 1, 1)", "(2, 66, 1)", "0", "9.0", *values] for i, (name, values) in enumerate(kernels)]
    return "\n".join(["==WARNING== Note: Running with unmodified GPU clocks.", "==PROF== Connected to process 715 (/usr/bin/python3.12)",
                      '{"program": "used bf16", "seconds": 2.0}', "==PROF== Disconnected from process 715",
                      *(",".join(f'"{value}"' for value in line) for line in lines)]) + "\n"


GEMM = ["93.36", "93.30", "1.2", "1.3", "0.7", "0.5", "21.06", "1,013,900,000,000", "1,625,000,000", "1,361,472"]


class Ncu(CannedRun):
    def judge(self, kind, out, share=0.931, busy=0.995, code=0):
        ended = self.ended({}, code=code)
        ended.out = out
        used_ncu.judge(self.plan, kind, ended, share, busy, 3.0)
        return self.last()

    def test_the_table_is_read_with_its_units(self):
        read = used_ncu.parse(table(("nvjet_sm90<a, b>", GEMM), ("other", ["n/a"] * 10)))
        self.assertEqual([k["kernel"] for k in read], ["nvjet_sm90<a, b>", "other"])
        self.assertEqual((read[0]["tensor"], read[0]["dram"], read[0]["dram B/s"]), (93.36, 21.06, 1.0139e12))
        self.assertAlmostEqual(read[0]["s"], 1.361472e-3)
        self.assertIsNone(read[1]["tensor"])
        scaled = used_ncu.parse(table(("k", [*GEMM[:7], "1.01", "1.62", "1.36"]), units=["%"] * 7 + ["Tbyte/s", "Ghz", "ms"]))
        self.assertEqual((scaled[0]["dram B/s"], scaled[0]["clock"]), (1.01e12, 1.62e9))
        self.assertAlmostEqual(scaled[0]["s"], 1.36e-3)

    def test_units(self):
        for unit, factor in (("%", 1), ("nsecond", 1e-9), ("usecond", 1e-6), ("second", 1), ("Gbyte/second", 1e9), ("cycle/nsecond", 1e9), ("byte", 1), ("GHz", 1e9)):
            self.assertAlmostEqual(used_ncu.factor(unit) / factor, 1, msg=unit)
        for unit in ("warp", "byte/s/s", "xs", "/s"):
            self.assertIsNone(used_ncu.factor(unit), unit)

    def test_what_is_no_table_has_no_kernels(self):
        for text in ("", "==ERROR== Failed to find metric", table(), '"ID","Kernel Name"\n'):
            self.assertEqual(used_ncu.parse(text), [])

    def test_short_kernels_do_not_count(self):
        short = ["0", "0", "0", "0", "0", "0", "90", "1", "1", "5,000"]
        self.assertEqual(used_ncu.typical(used_ncu.parse(table(("fill", short), ("fill", short), ("gemm", GEMM))))["tensor"], 93.36)
        self.assertEqual(used_ncu.typical([]), {})

    def test_within_three_points_of_ncu_by_the_busy_share(self):
        out = table(("gemm", GEMM), ("gemm", GEMM))
        self.assertEqual(self.judge("bf16", out), PASS)
        self.assertEqual(self.judge("bf16", out, share=0.89), FAIL)
        self.assertEqual(self.judge("bf16", out, share=0.467, busy=0.5), PASS, "half of the time no kernel ran")
        self.assertEqual(self.judge("memory", out, share=0.21), PASS)
        self.assertEqual(self.judge("fp32", out, share=0.01), PASS)
        self.assertEqual(self.judge("fp32", out, share=0.76), FAIL)
        told = self.plan.rows[-2]
        self.assertEqual(told["result"], INFO)
        self.assertEqual(told["value"], "tensor 93.4, hmma 93.3, fma 1.2, fma cycles 1.3, fma heavy 0.7, fma lite 0.5, dram 21.1, 1013.9 GB/s, 1625.0 MHz, 1.4 ms, 2 of gemm")

    def test_what_ncu_cannot_say_is_not_judged_and_an_ncu_that_fails_is(self):
        out = table(("gemm", GEMM))
        self.assertEqual(self.judge("bf16", table(("gemm", ["n/a", *GEMM[1:]]))), NOT_RUN)
        self.assertEqual(self.judge("bf16", out, share=None), NOT_RUN)
        self.assertEqual(self.judge("bf16", out, busy=None), NOT_RUN)
        self.assertEqual(self.judge("bf16", "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", code=1), NOT_RUN)
        self.assertEqual(self.judge("bf16", out, code=1), FAIL)
        self.assertEqual(self.judge("bf16", "==PROF== Disconnected"), FAIL)

    def run_suite(self, only, tool="/usr/bin/ncu"):
        """Kinds that ran with us and under ncu."""
        ours, theirs = [], []
        counters = {"tensor_active_share": 0.931, "fp32_active_share": 0.012, "memory_bandwidth_share": 0.21}
        analyzed = {"devices": [{"counters": counters, "buckets_ns": {"compute": 995}, "steady_wall_ns": 1000}]}

        def under(_plan, _tool, kind):
            theirs.append(kind)
            ended = self.ended({})
            ended.out = table(("gemm", GEMM))
            return ended

        with mock.patch.object(used, "measure", lambda _plan, kind: ours.append(kind) or analyzed), \
                mock.patch.object(used_ncu, "installed", lambda: tool), mock.patch.object(used_ncu, "run", under):
            used.run(self.plan, only)
        return ours, theirs

    def test_ncu_comes_last_and_what_it_is_held_against_runs_once(self):
        self.assertEqual(self.run_suite(["ncu", "bf16"]), (["bf16", "fp32", "memory"], ["bf16", "fp32", "memory"]))
        self.assertEqual([r["result"] for r in self.plan.rows if ": all" not in r["check"]], [PASS] * 3)
        self.assertEqual(self.run_suite(None)[0], ["bf16", "half", "fp32", "memory", "pcie"], "NVLink takes two GPUs")

    def test_without_ncu_it_is_not_run(self):
        self.assertEqual(self.run_suite(["ncu"], tool=None), ([], []))
        self.assertEqual(self.last(), NOT_RUN)

class Steps(CannedRun):
    """What a reading adds to the step in which it falls."""

    @staticmethod
    def trace(added, readings=30, each=20):
        lines, at = [], 0
        for n in range(readings * each):
            took = 50_000 + (n % 3) * 10 + (added if n % each == 10 else 0)
            lines.append({"ph": "X", "cat": "step", "ts": at, "dur": took, "name": f"step {n}"})
            if n % each == 10:
                lines.append({"ph": "C", "name": used.READING, "ts": at + 100, "args": {"value": 90}})
            at += took
        return json.dumps({"traceEvents": lines})

    def judged(self, text):
        used.judge_steps(self.plan, text)
        return self.last()

    def test_the_step_is_held_against_those_around_it(self):
        added, period = used.around_readings(self.trace(400))
        self.assertEqual(len(added), 30)
        self.assertTrue(all(385 <= us <= 415 for us in added), added)
        self.assertAlmostEqual(period, 1_000_600, delta=1_000)

    def test_what_costs_a_thousandth_is_too_much(self):
        self.assertEqual(self.judged(self.trace(400)), PASS)
        self.assertEqual(self.judged(self.trace(1_500)), FAIL)
        self.assertEqual(self.judged(self.trace(-1_500)), FAIL)
        self.assertEqual(self.judged(self.trace(400, readings=5)), NOT_RUN)


if __name__ == "__main__":
    unittest.main()
