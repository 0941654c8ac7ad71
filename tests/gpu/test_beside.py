# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `beside` that need no GPU: python3 -m unittest discover -s tests/gpu"""

import pathlib
import sys
import types
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.append(str(pathlib.Path(__file__).resolve().parent / "programs"))

import profiled  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import beside, used_ncu  # noqa: E402
from test_check import CannedRun  # noqa: E402

FILL = "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<float>, std::array<char*, (unsigned long)1> >(int, FillFunctor<float>)"
MULTIPLY = "void at::native::vectorized_elementwise_kernel<8, at::native::MulFunctor<float>, std::array<char*, (unsigned long)3> >(int, MulFunctor<float>)"
# The same as torch.profiler and as ncu print it.
MULTIPLY_TORCH = "void at::native::vectorized_elementwise_kernel<8, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int, MulFunctor<float>)"
MULTIPLY_NCU = "void at::native::vectorized_elementwise_kernel<(int)8, at::native::MulFunctor<float>, std::array<char *, 3>>(int, T2)"
GEMM = "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"
NORMAL = "_ZN2at6native54_GLOBAL__N__d8ceb000_21_DistributionNormal_cu_0c5b6e8543distribution_elementwise_grid_stride_kernelIfLi4EZNS0_9templatesE"

# 100 steps of 5 ms: a product of 3 ms, twice a kernel of 0.75, and half a millisecond of nothing.
STATS = {
    "cuda_gpu_kern_sum": [
        {"name": GEMM, "instances": 100, "total_ns": 300_000_000}, {"name": MULTIPLY, "instances": 203, "total_ns": 150_000_000},
        {"name": NORMAL, "instances": 1, "total_ns": 340_000}, {"name": FILL, "instances": 4, "total_ns": 4_000},
    ],
    "steps": [{"compute_ns": 9_000_000, "flags": "warm-up"}, *({"compute_ns": ns, "flags": None} for ns in (4_600_000, 4_400_000, 4_500_000))],
}
ANALYZED = {
    "steps": {"count": 99, "mean_ns": 5_000_000},
    "devices": [{"counters": {"tensor_active_share": 0.56, "memory_bandwidth_share": 0.35, "ns": 2_000_000_000},
                 "buckets_ns": {"compute": 4_500}, "steady_wall_ns": 5_000}],
    "gauges": {"counters_missing": None},
}
PROFILED = {"kernels": {GEMM: [1.0, 3_010_000.0], MULTIPLY_TORCH: [2.0, 1_500_000.0]}, "spread": [4_400_000.0, 4_500_000.0, 4_600_000.0]}
# At ncu's clock the product takes 2 ms. Of the cycles tensor cores work in 93 %; 20 % of the
# bandwidth, and 80 % in the other kernels.
KERNELS = [{"kernel": GEMM, "s": 2e-3, "tensor": 93.0, "dram": 20.0}, *({"kernel": MULTIPLY_NCU, "s": 0.75e-3, "tensor": 0.0, "dram": 80.0} for _ in range(2))]


def theirs():
    return beside.theirs_of(PROFILED)


def ours(stats=None, analyzed=None, steps=100, **figures):
    return beside.ours_of(STATS | (stats or {}), ANALYZED | (analyzed or {}), steps) | figures


def ncu(kernels=None, wanted=3):
    return beside.ncu_of(KERNELS if kernels is None else kernels, wanted, theirs()["times"])


class Names(unittest.TestCase):
    def test_a_kernels_function_however_it_is_printed(self):
        for name in (MULTIPLY, MULTIPLY_TORCH, MULTIPLY_NCU, "vectorized_elementwise_kernel", "at::native::<unnamed>::vectorized_elementwise_kernel<T1>(T1)",
                     "void at::native::(anonymous namespace)::vectorized_elementwise_kernel<8>(int)", "void (anonymous namespace)::vectorized_elementwise_kernel()"):
            self.assertEqual(beside.base(name), "vectorized_elementwise_kernel", name)
        self.assertEqual(beside.base(NORMAL), "distribution_elementwise_grid_stride_kernel")
        self.assertEqual((beside.base("_Z4tickPj"), beside.base("_Zwhat"), beside.base(GEMM), beside.base("")), ("tick", "_Zwhat", GEMM, ""))

    def test_two_kernels_of_one_function_are_told_apart_where_names_are_whole(self):
        times = {MULTIPLY_TORCH: 2.0, FILL: 9.0}
        self.assertEqual(beside.time_of(MULTIPLY, times), 2.0)
        self.assertEqual(beside.time_of(MULTIPLY_NCU.replace("T2", "T3"), times), 9.0, "else it may be either")
        self.assertIsNone(beside.time_of(GEMM, times))


class Figures(unittest.TestCase):
    def test_ours_are_of_the_kernels_of_every_step(self):
        found = ours()
        self.assertEqual((found["kernels"], found["ns"], found["largest"]), (303, 4_500_000, (GEMM, 3_000_000)))
        self.assertEqual((found["found"], found["steps"], found["spread"]), (99, 100, [4_400_000, 4_500_000, 4_600_000]))
        self.assertEqual((found["tensor"], found["dram"], found["busy"]), (0.56, 0.35, 0.9))

    def test_what_is_missing_is_none(self):
        found = beside.ours_of({}, {}, 100)
        self.assertEqual((found["kernels"], found["ns"], found["found"], found["spread"], found["tensor"], found["busy"]), (0, 0, None, [], None, None))
        self.assertEqual(ours(analyzed={"devices": [], "gauges": {"counters_missing": "not permitted"}})["missing"], "not permitted")

    def test_torch_profilers(self):
        found = theirs()
        self.assertEqual((found["kernels"], found["ns"], found["largest"]), (3.0, 4_510_000.0, (GEMM, 3_010_000.0)))

    def test_ncus_tensor_cores_are_weighted_by_the_loops_times(self):
        found = ncu()
        self.assertEqual((found["kernels"], round(found["ns"]), found["largest"][0]), (3, 3_500_000, GEMM))
        self.assertEqual(found["weights"], "the loop's")
        self.assertAlmostEqual(found["tensor"], 93 * 3.01 / 4.51)
        self.assertAlmostEqual(found["dram_ns"], 0.2 * 2e6 + 0.8 * 1.5e6)

    def test_by_ncus_own_where_the_loop_has_other_kernels(self):
        found = ncu([KERNELS[0] | {"kernel": "cutlass_80_wmma"}, *KERNELS[1:]])
        self.assertEqual(found["weights"], "ncu's")
        self.assertAlmostEqual(found["tensor"], 93 * 2 / 3.5)

    def test_what_ncu_does_not_say_is_not_made_up(self):
        self.assertEqual(ncu(KERNELS[:2]), {"why": "2 of 3 kernels in ncu's table"})
        self.assertEqual(ncu([*KERNELS[:2], KERNELS[2] | {"s": None}]), {"why": "ncu gives some kernels no time"})
        found = ncu([*KERNELS[:2], KERNELS[2] | {"tensor": None}])
        self.assertIsNone(found["tensor"])
        self.assertIsNotNone(found["dram_ns"])
        self.assertIsNone(ncu([*KERNELS[:2], KERNELS[2] | {"dram": None}])["dram_ns"])


class Rows(unittest.TestCase):
    def row(self, check, ours_=None, theirs_=None, ncu_=None):
        found = {name: (result if isinstance(result, str) else PASS if result else FAIL, value)
                 for name, result, value, _ in beside.rows(ours_ or ours(), theirs_ or theirs(), ncu() if ncu_ is None else ncu_)}
        return found[check]

    def test_everything_passes_where_all_agree(self):
        results = [result for _, result, _, _ in beside.rows(ours(), theirs(), ncu())]
        self.assertEqual(results, [True, True, True, INFO, True, True, True])

    def test_kernel_time_within_two_percent_of_torch_profilers(self):
        right = theirs()["ns"]
        for ns, result in ((1.019, PASS), (0.981, PASS), (1.021, FAIL), (0.979, FAIL)):
            self.assertEqual(self.row("kernel time a step", ours(ns=ns * right))[0], result, ns)
        self.assertEqual(self.row("kernel time a step")[1], "4.50 ms (-0.2 %), torch.profiler 4.51, ncu 3.50 (-22.4 %)")
        self.assertEqual(self.row("kernel time a step", theirs_=theirs() | {"ns": 0.0})[0], FAIL)
        self.assertIn("ncu -", self.row("kernel time a step", ncu_={"why": "no ncu"})[1])

    def test_kernels_are_those_of_torch_profiler_and_of_what_was_before(self):
        for kernels, result in ((300, PASS), (320, PASS), (299, FAIL), (321, FAIL)):
            self.assertEqual(self.row("kernels a step", ours(kernels=kernels))[0], result, kernels)

    def test_steps_within_two_percent(self):
        for found, result in ((98, PASS), (102, PASS), (97, FAIL), (400, FAIL), (None, FAIL)):
            self.assertEqual(self.row("steps", ours(found=found))[0], result, found)

    def test_the_largest_kernel_is_torch_profilers_or_as_large(self):
        self.assertEqual(self.row("largest kernel", ours(largest=(MULTIPLY, 3_100_000)))[0], FAIL)
        tied = theirs()
        tied["times"] = tied["times"] | {MULTIPLY_TORCH: 2_900_000}
        self.assertEqual(self.row("largest kernel", ours(largest=(MULTIPLY, 3_100_000)), tied)[0], PASS)
        self.assertEqual(self.row("largest kernel", ours(largest=("another", 3_100_000)))[0], FAIL)
        self.assertEqual(self.row("largest kernel", ours(largest=("", 0)))[0], FAIL)
        self.assertEqual(self.row("largest kernel")[1], f"{GEMM} 3.00 ms, torch.profiler {GEMM} 3.01, ncu {GEMM} 2.00")

    def test_tensor_cores_within_five_points_of_ncus_times_the_busy_share(self):
        self.assertAlmostEqual(beside.by_ncu("tensor", ours(), ncu()), 93 * 3.01 / 4.51 * 0.9)  # 55.9
        for share, result in ((0.56, PASS), (0.515, PASS), (0.605, PASS), (0.50, FAIL), (0.62, FAIL)):
            self.assertEqual(self.row("tensor cores", ours(tensor=share))[0], result, share)
        self.assertEqual(self.row("tensor cores", ours(busy=0.5))[0], FAIL, "kernels ran half of the time only")

    def test_memory_by_bytes_that_no_clock_changes(self):
        self.assertAlmostEqual(beside.by_ncu("dram", ours(), ncu()), 100 * 1.6 / 4.5 * 0.9)  # 32.0
        for share, result in ((0.32, PASS), (0.275, PASS), (0.365, PASS), (0.26, FAIL), (0.38, FAIL)):
            self.assertEqual(self.row("memory bandwidth", ours(dram=share))[0], result, share)

    def test_without_counters_or_ncu_it_is_not_run_and_says_why(self):
        result, value = self.row("tensor cores", ours(tensor=None, missing="not permitted"))
        self.assertEqual((result, value), (NOT_RUN, "no counters: not permitted"))
        result, value = self.row("memory bandwidth", ncu_={"why": "no ncu on this machine"})
        self.assertEqual((result, value), (NOT_RUN, "35.0 % by the counters; no ncu on this machine"))
        self.assertEqual(self.row("tensor cores", ours(busy=None))[0], NOT_RUN)
        result, value = self.row("tensor cores", ncu_=ncu() | {"tensor": None})
        self.assertEqual(result, NOT_RUN)
        self.assertIn("sm__pipe_tensor_cycles_active", value)

    def test_an_ncu_that_failed_fails(self):
        self.assertEqual(self.row("ncu", ncu_={"why": "ncu: exit 1", "failed": True}), (FAIL, "ncu: exit 1"))


class Table(unittest.TestCase):
    def test_it_has_a_row_for_each_figure_and_dashes_for_what_is_not_known(self):
        found = {"gpu_norm.slow": (ours(), theirs(), ncu()), "gpu_width.slow": (ours(tensor=None, dram=None), theirs(), {"why": "no ncu"})}
        lines = beside.markdown(found, "NVIDIA H200").splitlines()
        self.assertTrue(lines[0].startswith("NVIDIA H200. "))
        self.assertEqual(lines[2:4], ["| program | a step | gapprobe | torch.profiler | ncu |", "|---|---|---|---|---|"])
        self.assertEqual(lines[4:], [
            "| gpu_norm slow | kernels | 3 | 3 | 3 |",
            "|  | kernel time, ms | 4.50 | 4.51 | 3.50 |",
            f"|  | largest kernel, ms | `{GEMM}` 3.00 | `{GEMM}` 3.01 | `{GEMM}` 2.00 |",
            "|  | tensor cores, % | 56.0 | - | 55.9 |",
            "|  | memory bandwidth, % | 35.0 | - | 32.0 |",
            "| gpu_width slow | kernels | 3 | 3 | - |",
            "|  | kernel time, ms | 4.50 | 4.51 | - |",
            f"|  | largest kernel, ms | `{GEMM}` 3.00 | `{GEMM}` 3.01 | - |",
            "|  | tensor cores, % | - | - | - |",
            "|  | memory bandwidth, % | - | - | - |",
        ])


class Profiled(unittest.TestCase):
    EVENTS = [*({"ph": "X", "cat": "kernel", "name": "b" if ts % 2 else "a", "ts": ts, "dur": dur} for ts, dur in enumerate((10.0, 1.5, 12.0, 1.5, 11.0, 1.5))),
              {"ph": "X", "cat": "gpu_memcpy", "name": "copy", "ts": 1, "dur": 99}, {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 9},
              {"ph": "M", "name": "process_name"}]

    def test_kernels_by_name_a_step(self):
        self.assertEqual(profiled.by_name(self.EVENTS, 3), {"a": [1.0, 11_000.0], "b": [1.0, 1_500.0]})
        self.assertEqual(profiled.by_name([], 3), {})

    def test_the_spread_of_steps(self):
        self.assertEqual(profiled.spread(self.EVENTS[1::2] + self.EVENTS[::2], 3), [11_500.0, 12_500.0, 13_500.0])
        self.assertIsNone(profiled.spread(self.EVENTS, 4), "six kernels are not so many a step")
        self.assertIsNone(profiled.spread([], 3))


def raw(kernels):
    """What ncu --csv --page raw prints of our metrics."""
    heads = ["ID", "Kernel Name", *beside.METRICS]
    lines = [heads, ["", "", "nsecond", "%", "%"]]
    lines += [[str(i), k["kernel"], f"{1e9 * k['s']:,.0f}", str(k["tensor"]), str(k["dram"])] for i, k in enumerate(kernels)]
    return "\n".join(["==PROF== Connected", '{"true_steps": 17}', *(",".join(f'"{cell}"' for cell in line) for line in lines)])


class Runs(CannedRun):
    def told(self, out, **left):
        ended = self.ended({}, **left)
        ended.out = out
        return beside.told_by(ended, 3, theirs()["times"])

    def test_ncus_table_is_read(self):
        found = self.told(raw(KERNELS))
        self.assertEqual((found["kernels"], round(found["ns"])), (3, 3_500_000))
        self.assertAlmostEqual(found["tensor"], ncu()["tensor"])

    def test_an_ncu_that_may_not_or_has_no_time_has_no_figures(self):
        self.assertEqual(self.told("==ERROR== ERR_NVGPUCTRPERM", code=1), {"why": "ncu may not read counters here (ERR_NVGPUCTRPERM)"})
        late = self.told(raw(KERNELS), late=True, code=-9)
        self.assertIn("longer than", late["why"])
        self.assertNotIn("failed", late)
        self.assertTrue(self.told(raw(KERNELS), code=1)["failed"])
        self.assertEqual(self.told("nothing"), {"why": "0 of 3 kernels in ncu's table"})

    def run_suite(self, only=None, tool="/usr/bin/ncu"):
        """Runs it with canned programs; what they were started with."""
        started = []

        def python(_plan, program, *options, ours, env=None):
            started.append((program, *options, ours))
            truth = {"true_steps": 100} if ours else PROFILED
            ended = self.ended(truth)
            (ended.directory / "gapprobe-host-77-a1.json.gz").write_bytes(b"")
            return types.SimpleNamespace(wait=lambda _: ended)

        def under(_plan, command, **_options):
            started.append([str(word) for word in command])
            ended = self.ended({})
            ended.out = raw(KERNELS)
            return types.SimpleNamespace(wait=lambda _: ended)

        with mock.patch.object(beside.victim, "python", python), mock.patch.object(beside.victim, "Victim", under), \
                mock.patch.object(used_ncu, "installed", lambda: tool), mock.patch.object(beside, "stats_of", lambda *_: STATS), \
                mock.patch.object(beside.used, "analysis", lambda *_: ANALYZED):
            beside.run(self.plan, only)
        return started

    def results(self):
        return [r["result"] for r in self.plan.rows]

    def test_all_three_run_for_three_seconds_and_one_step_under_ncu(self):
        ours_, theirs_, ncu_ = self.run_suite(["gpu_width.fixed"])
        self.assertEqual(ours_, ("causes/gpu_width", "--form", "fixed", "--steps", "600", True))
        self.assertEqual(theirs_, ("profiled", "gpu_width", "fixed", "600", False))
        self.assertEqual([ncu_[ncu_.index(o) + 1] for o in ("--launch-skip", "--launch-count", "--steps", "--metrics")],
                         ["24", "3", "12", "gpu__time_duration.sum,sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed,"
                          "dram__throughput.avg.pct_of_peak_sustained_elapsed"])
        self.assertEqual(self.results(), [PASS, PASS, PASS, INFO, PASS, PASS, PASS])
        self.assertIn("| gpu_width fixed | kernels | 3 | 3 | 3 |", self.plan.details["beside"]["table"])

    def test_without_ncu_the_rest_is_judged(self):
        self.assertEqual(len(self.run_suite(["gpu_norm.slow"], tool=None)), 2)
        self.assertEqual(self.results(), [PASS, PASS, PASS, INFO, PASS, NOT_RUN, NOT_RUN])

    def test_what_there_is_no_time_for_is_not_run(self):
        self.plan.budget_s = 0
        self.assertEqual(self.run_suite(), [])
        self.assertEqual(self.results(), [NOT_RUN] * len(beside.PARTS))
        self.assertNotIn("beside", self.plan.details)

    def test_a_run_without_figures_fails_and_nothing_is_judged(self):
        with mock.patch.dict(STATS, cuda_gpu_kern_sum=[]):
            self.assertEqual(len(self.run_suite(["gpu_norm.slow"])), 1)
        with mock.patch.dict(PROFILED, kernels={}):
            self.assertEqual(len(self.run_suite(["gpu_norm.slow"])), 2)
        self.assertEqual(self.results(), [FAIL, FAIL])

    def test_a_part_that_is_none_is_named(self):
        self.assertEqual(self.run_suite(["gpu_norm"]), [])
        self.assertEqual(self.last(), FAIL)


if __name__ == "__main__":
    unittest.main()
