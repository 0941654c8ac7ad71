# SPDX-License-Identifier: Apache-2.0
"""Tests of the suite `causes` without a GPU: each judge is shown right and wrong canned results."""

import gzip
import json
import pathlib
import subprocess
import sys
import tarfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

from check import native, victim  # noqa: E402
from check.plan import FAIL, INFO, NOT_RUN, PASS  # noqa: E402
from suites import causes  # noqa: E402
from suites.causes import LABELS  # noqa: E402
from suites.causes_labels import HEALTHY, WINS, WINS_LITTLE  # noqa: E402
from test_check import CannedRun  # noqa: E402


def said(cause, then=None, text="", findings=(), site=None, **verdict):
    v = {"cause": cause, "then": then and {"cause": then, "share": 0.1}, "text": text, "confidence": "high", **verdict}
    if site is not None:
        v["site"] = site
    return {"verdict": v, "findings": [{"cause": f} for f in findings], "steps": {"count": 40}}


class Labels(CannedRun):
    def test_there_are_as_many_programs_as_were_asked_for_and_each_has_its_file(self):
        self.assertGreaterEqual(len(LABELS), 24)
        self.assertGreaterEqual(sum(l.healthy for l in LABELS.values()), 10)
        self.assertGreaterEqual(sum(bool(l.forbidden) for l in LABELS.values()), 3)
        self.assertGreaterEqual(sum(l.both for l in LABELS.values()), 2)
        files = {p.stem for p in causes.PROGRAMS.glob("*.py")} - {"frame", "torchside", "jaxside", "cupyside", "storage", "rankside"}
        self.assertEqual(files, {name for name, label in LABELS.items() if not label.native})
        self.assertTrue(all(causes.source(name).is_file() for name in LABELS))

    def test_a_program_whose_cause_is_a_line_marks_it_and_no_other_does(self):
        for name, label in LABELS.items():
            self.assertEqual(bool(causes.marked_lines(name)), label.site, name)

    def test_every_proof_is_a_form_of_its_program(self):
        for name, label in LABELS.items():
            text = causes.source(name).read_text()
            for form in label.proofs:
                self.assertTrue(f'"{form}"' in text or (form == "fixed" and "forms=" not in text), f"{name} {form}")

    def test_the_halves_are_all_of_them(self):
        first, second, gpu = (causes.chosen([part]) for part in ("1", "2", "gpu"))
        self.assertEqual(sorted(first + second + gpu), sorted(LABELS))
        self.assertEqual(sum(not LABELS[name].healthy for name in gpu), 16)
        self.assertEqual(causes.chosen(["host_gc"]), ["host_gc"])
        with self.assertRaises(ValueError):
            causes.chosen(["host_gx"])

    def test_no_program_tells_gapprobe_anything(self):
        for path in causes.PROGRAMS.glob("*.py"):
            text = path.read_text().lower()
            for word in ("nvtx", "record_function", "gapprobe_", "import gapprobe", "traceannotation"):
                self.assertNotIn(word, text, path.name)


class Proofs(CannedRun):
    def win(self, program, code=0, **rounds):
        ended = self.ended({"rounds_ms": rounds} if rounds else {}, code=code)
        return causes.judge_win(self.plan, program, ended), self.last()

    def test_a_fix_must_win_fifteen_percent(self):
        wins, row = self.win("host_gc", slow=[10, 11, 12], fixed=[8, 8.8, 9.6])
        self.assertAlmostEqual(wins["fixed"], 0.2)
        self.assertEqual(row, PASS)
        self.assertEqual(self.win("host_gc", slow=[10, 11, 12], fixed=[9, 10, 11]), (None, FAIL))

    def test_a_harmless_habit_may_win_little_and_never_much(self):
        self.assertEqual(self.win("ok_synchronize", slow=[10, 10, 10], bare=[9.8, 9.9, 9.7])[1], PASS)
        self.assertEqual(self.win("ok_synchronize", slow=[10, 10, 10], bare=[8, 8, 8]), (None, FAIL))

    def test_all_proofs_of_a_label_must_hold(self):
        good = dict(slow=[10, 10, 10], without=[10, 9.8, 10], fixed=[2, 2, 2])
        self.assertEqual(self.win("ok_item_launch", **good)[1], PASS)
        self.assertEqual(self.win("ok_item_launch", **{**good, "without": [7, 7, 7]}), (None, FAIL))
        self.assertEqual(self.win("ok_item_launch", **{**good, "fixed": [9, 9, 9]}), (None, FAIL))

    def test_a_program_that_fails_proves_nothing(self):
        self.assertEqual(self.win("host_gc"), (None, FAIL))
        self.assertEqual(self.win("host_gc", code=1, slow=[10, 10], fixed=[1, 1]), (None, FAIL))


class Judged(CannedRun):
    def judge(self, program, form, summary, holds=True, code=0):
        matrix = causes.Matrix()
        causes.judge_run(self.plan, matrix, program, form, self.ended({"true_steps": 45}, summary, code=code), holds)
        row = next(r["result"] for r in self.plan.rows if "verdict" in r["check"])
        self.plan.rows.clear()
        return row, matrix.points

    def test_right_wrong_silent_and_false(self):
        self.assertEqual(self.judge("host_gc", "slow", said("HOST")), (PASS, 0))
        self.assertEqual(self.judge("host_gc", "slow", said("GPU-BOUND")), (FAIL, 1))
        self.assertEqual(self.judge("host_gc", "slow", said("INCONCLUSIVE")), (FAIL, 1))
        self.assertEqual(self.judge("host_gc", "slow", said("COPY")), (FAIL, 2))
        self.assertEqual(self.judge("host_gc", "slow", said("")), (FAIL, 2))

    def test_a_coarse_cause_is_no_pass_and_no_false_accusation(self):
        self.assertEqual(self.judge("loader_no_workers", "slow", said("INPUT")), (PASS, 0))
        self.assertEqual(self.judge("loader_no_workers", "slow", said("HOST")), (FAIL, 1))
        self.assertEqual(self.judge("loader_no_workers", "slow", said("SYNC")), (FAIL, 2))

    def test_a_healthy_program_may_not_be_accused_of_anything(self):
        for cause, expected in (("GPU-BOUND", (PASS, 0)), ("SMALL-KERNELS", (PASS, 0)), ("MIXED", (FAIL, 1)), ("LAUNCH", (FAIL, 2))):
            self.assertEqual(self.judge("ok_gemm", "slow", said(cause)), expected, cause)

    def test_a_harmless_habit_may_not_even_stand_second(self):
        self.assertEqual(self.judge("ok_item_launch", "slow", said("LAUNCH")), (PASS, 0))
        self.assertEqual(self.judge("ok_item_launch", "slow", said("LAUNCH", then="SYNC")), (FAIL, 2))
        self.assertEqual(self.judge("ok_item_launch", "slow", said("SYNC")), (FAIL, 2))
        self.assertEqual(self.judge("ok_item_launch", "slow", said("MIXED", text="LAUNCH 9 %, SYNC 8 % together")), (FAIL, 2))

    def test_two_causes_must_both_be_known(self):
        self.assertEqual(self.judge("two_copy_host", "slow", said("COPY", then="HOST")), (PASS, 0))
        self.assertEqual(self.judge("two_copy_host", "slow", said("HOST", findings=["COPY", "HOST"])), (PASS, 0))
        self.assertEqual(self.judge("two_copy_host", "slow", said("HOST")), (FAIL, 1))
        self.assertEqual(self.judge("two_copy_host", "slow", said("LAUNCH", findings=["COPY", "HOST"])), (FAIL, 2))

    def test_the_fixed_form_has_nothing_left(self):
        self.assertEqual(self.judge("host_gc", "fixed", said("GPU-BOUND")), (PASS, 0))
        self.assertEqual(self.judge("host_gc", "fixed", said("HOST")), (FAIL, 2))
        self.assertEqual(self.judge("host_gc", "fixed", said("LAUNCH")), (FAIL, 2))
        self.assertEqual(self.judge("sync_timing", "fixed", said("LAUNCH")), (PASS, 0))
        self.assertEqual(self.judge("sync_timing", "fixed", said("SYNC")), (FAIL, 2))

    def test_a_slow_host_may_be_what_is_left_only_beside_launching(self):
        self.assertEqual(self.judge("jax_float", "fixed", said("MIXED", text="LAUNCH + HOST together 19 %")), (PASS, 0))
        self.assertEqual(self.judge("jax_float", "fixed", said("MIXED", text="KERNEL-GAP 9 %, LAUNCH 8 %")), (PASS, 0))
        self.assertEqual(self.judge("jax_float", "fixed", said("MIXED", text="HOST 9 %, COPY 8 %")), (FAIL, 1))
        self.assertEqual(self.judge("jax_float", "fixed", said("MIXED", text="LAUNCH + SYNC together 19 %")), (FAIL, 1))
        self.assertEqual(self.judge("jax_float", "fixed", said("HOST")), (FAIL, 2))
        self.assertEqual(self.judge("sync_timing", "fixed", said("MIXED", text="LAUNCH + HOST together 19 %")), (FAIL, 1))
        self.assertEqual(self.judge("host_gc", "fixed", said("MIXED", text="LAUNCH + HOST together 19 %")), (FAIL, 1))

    def test_without_proof_or_summary_nothing_passes(self):
        self.assertEqual(self.judge("host_gc", "slow", said("HOST"), holds=False), (NOT_RUN, 0))
        self.assertEqual(self.judge("host_gc", "slow", None)[0], FAIL)
        self.assertEqual(self.judge("host_gc", "slow", said("HOST"), code=1)[0], FAIL)


class Lines(CannedRun):
    def line(self, program, **change):
        number, function = next(iter(causes.marked_lines(program).items()))
        site = {"file": f"/home/x/{program}.py", "line": number, "function": function, **change}
        causes.judge_site(self.plan, program, said("HOST", site=site))
        return self.last()

    def test_file_line_and_function_must_be_the_marked_ones(self):
        for program in ("host_gc", "sync_timing", "loader_no_workers"):
            self.assertEqual(self.line(program), PASS)
            self.assertEqual(self.line(program, line=1), FAIL)
            self.assertEqual(self.line(program, file="/usr/lib/python3/torch/nn/module.py"), FAIL)
            self.assertEqual(self.line(program, function="main"), FAIL)
        self.assertEqual(self.line("loader_no_workers", function="Images.__getitem__"), PASS)

    def test_every_marked_line_is_right(self):
        for number, function in causes.marked_lines("sync_timing").items():
            self.assertEqual(self.line("sync_timing", line=number, function=function), PASS)

    def test_no_line_is_no_pass(self):
        causes.judge_site(self.plan, "host_gc", said("HOST"))
        self.assertEqual(self.last(), NOT_RUN)

    def test_a_function_is_the_innermost_one(self):
        self.assertEqual(set(causes.marked_lines("sync_timing").values()), {"timed"})
        self.assertEqual(set(causes.marked_lines("loader_no_workers").values()), {"__getitem__"})


class Promises(CannedRun):
    def promise(self, promised_ms, fixed_ms):
        slow = self.ended({"step_ms": 20.0}, said("HOST", step_ns=20e6, predicted_ns=promised_ms and promised_ms * 1e6))
        causes.judge_promise(self.plan, "host_gc", [slow], [self.ended({"step_ms": fixed_ms}, said("GPU-BOUND"))])
        return self.plan.rows[-1]

    def test_of_several_runs_the_medians_are_compared_and_each_must_promise(self):
        def judged(promised, fixed):
            slow = [self.ended({"step_ms": 20.0}, said("HOST", step_ns=20e6, predicted_ns=p and p * 1e6)) for p in promised]
            causes.judge_promise(self.plan, "host_gc", slow, [self.ended({"step_ms": f}, said("GPU-BOUND")) for f in fixed])
            return self.plan.rows[-1]

        row = judged((8, 12), (13, 7))  # the first by itself is 71 % over
        self.assertEqual(row["result"], PASS)
        self.assertIn("10.00 ms said, 10.00 ms saved (+0%); 20.00 -> 10.00 ms measured, 2 and 2 runs", row["value"])
        self.assertIn("10.00 ms said, 10.00 ms saved (+0%)", judged((10, 10, 10), (10, 10, 30))["value"], "in one of three the host stood")
        self.assertEqual(judged((8, None), (10, 10))["result"], FAIL)
        self.assertEqual(judged((8, 8), (10, None))["result"], FAIL)

    def test_a_saving_is_held_against_the_measured_one(self):
        for promised, result, flagged in ((10, PASS, False), (9.1, PASS, False), (8.5, PASS, True), (7.9, FAIL, True), (11.9, PASS, False), (12.1, FAIL, False)):
            row = self.promise(promised, 10.0)
            self.assertEqual((row["result"], "OVER-PROMISE" in row["value"]), (result, flagged), promised)

    def test_no_promise_is_a_broken_one(self):
        self.assertEqual(self.promise(None, 10.0)["result"], FAIL)
        self.assertEqual(self.promise(10, None)["result"], FAIL)
        self.assertIn("saved nothing", self.promise(10, 21.0)["value"])

    def test_runs_that_scatter_too_much_are_too_few(self):
        def doubtful(promised, fixed):
            slow = [self.ended({"step_ms": 20.0}, said("HOST", step_ns=20e6, predicted_ns=p * 1e6)) for p in promised]
            return causes.in_doubt({"host_gc": {"slow": slow, "fixed": [self.ended({"step_ms": f}, said("GPU-BOUND")) for f in fixed]}})

        self.assertEqual(doubtful((10, 10.2), (10, 10.2)), [])
        self.assertEqual(doubtful((10, 12), (10, 10)), ["host_gc"])
        self.assertEqual(doubtful((10, 10), (10, 12)), ["host_gc"])
        self.assertEqual(doubtful((10, 10, 10, 10), (10, 12, 10, 10)), [], "more runs make it sure")
        self.assertEqual(doubtful([10, 12] * 3, [10, 12] * 3), [], "six are all it gets")
        self.assertEqual(doubtful([10], [12]), [], "of one run each nothing is known")

    def test_all_together_two_in_24_may_not_be_over(self):
        def kept(*offs):
            result = causes.judge_promises(self.plan, {f"p{n}": off for n, off in enumerate(offs)})
            self.assertEqual(self.plan.rows[-1]["result"], PASS if result else FAIL)
            return result

        self.assertTrue(kept(*[0.0] * 20, -0.5, -0.5, -0.5, 0.11))
        self.assertFalse(kept(*[0.0] * 19, *[-0.5] * 5))
        self.assertFalse(kept(*[0.0] * 22, 0.11, 0.12))
        self.assertTrue(kept(*[0.0] * 4, 0.15))  # a few programs of the suite
        # nothing promised is not within
        self.assertTrue(kept(*[0.0] * 20, *[None] * 4))
        self.assertFalse(kept(*[0.0] * 19, *[None] * 5))
        self.assertFalse(kept(None))
        self.assertTrue(causes.judge_promises(self.plan, {}))


class TheModels(CannedRun):
    """The replay with nothing changed takes as long as what was recorded, in each form alone."""

    def ran(self, **errors):
        class Ended:
            def __init__(self, error):
                self.error = error

            def summary(self):
                return {"model": {"error": self.error}} if self.error is not None else None

        causes.judge_models(self.plan, {tuple(name.rsplit("_", 1)): Ended(error) for name, error in errors.items()})
        return [r["result"] for r in self.plan.rows if "replay" in r["check"]]

    def test_within_three_percent_in_every_form(self):
        self.assertEqual(self.ran(p_slow=0.03, p_fixed=-0.01, q_slow=None), [PASS])

    def test_one_beyond_fails(self):
        self.assertEqual(self.ran(p_slow=-0.031, p_fixed=0.0), [FAIL])

    def test_blocks_in_turn_are_no_programs_steps(self):
        self.assertEqual(self.ran(p_turns=0.5), [])


class TheMatrix(CannedRun):
    def test_a_false_accusation_counts_double(self):
        m = causes.Matrix()
        m.add("HOST", "HOST", "a slow", True, False)
        m.add("HOST", "GPU-BOUND", "b slow", False, False)
        m.add("GPU-BOUND/SMALL-KERNELS", "SYNC", "c slow", False, True)
        self.assertEqual(m.points, 3)
        self.assertEqual(m.cells["HOST"], {"HOST": 1, "GPU-BOUND": 1})
        text = m.text()
        self.assertIn("1 right, 1 wrong, 1 falsely accused: 3 points lost", text)
        head, host = text.splitlines()[1], next(line for line in text.splitlines() if line.startswith("HOST"))
        self.assertEqual(host[head.index("GPU-BOUND"):].split()[0], "1")


class Recordings(CannedRun):
    def recorded(self, size):
        ended = self.ended({"step_ms": 3.0}, said("HOST"))
        folder = ended.directory / "gapprobe-0"
        folder.mkdir()
        (folder / "a.gpr").write_bytes(bytes(size))
        return ended

    def test_they_are_packed_with_what_is_true_of_them(self):
        archive = causes.Archive(self.plan, "x.tar.gz")
        archive.add("host_gc", "slow", self.recorded(1 << 20), True)
        archive.add("host_gc", "fixed", self.ended({}, said("GPU-BOUND")), True)
        archive.close()
        with tarfile.open(self.plan.out / "x.tar.gz") as tar:
            self.assertEqual(tar.getnames(), ["host_gc.slow.gprec.gz", "causes.json"])
            known = json.load(tar.extractfile("causes.json"))["recordings"]
        self.assertEqual(known["host_gc.slow"]["causes"], ["GC", "HOST"])
        self.assertEqual(list(known["host_gc.slow"]["sites"].values()), ["step"])
        self.assertEqual(known["host_gc.fixed"]["causes"], list(HEALTHY))

    def test_what_has_no_room_is_named(self):
        before, causes.ARCHIVE_BYTES = causes.ARCHIVE_BYTES, 10
        self.addCleanup(setattr, causes, "ARCHIVE_BYTES", before)
        archive = causes.Archive(self.plan, "x.tar.gz")
        archive.add("host_gc", "slow", self.recorded(1 << 20), True)
        archive.close()
        self.assertIn("host_gc.slow", self.plan.rows[-1]["value"])


class ReadyTogether(CannedRun):
    READY = ("import json, pathlib, sys, time; time.sleep(float(sys.argv[1])); pathlib.Path('ready').touch(); "
             "ready = time.monotonic(); sys.stdin.readline(); print(json.dumps({'ready': ready, 'at': time.monotonic()})); time.sleep(0.2)")

    def start(self, seconds):
        return lambda: victim.Victim(self.plan, [sys.executable, "-c", self.READY, str(seconds)], ours=False, gate=True)

    def test_all_are_ready_before_the_first_begins_and_then_one_runs_at_a_time(self):
        found = list(victim.ready_together(self.plan, [(0, self.start(0)), (1, self.start(0.6)), (2, self.start(0))], 5, 1, at_once=2))
        self.assertEqual([k for k, _ in found], [0, 1, 2])
        began = [e.truth["at"] for _, e in found]
        self.assertTrue(all(b - a >= 0.19 for a, b in zip(began, began[1:])), began)
        self.assertLessEqual(found[1][1].truth["ready"], began[0])

    def test_one_that_ends_early_holds_nobody_up(self):
        dead = lambda: victim.Victim(self.plan, [sys.executable, "-c", "raise SystemExit(3)"], ours=False, gate=True)  # noqa: E731
        began = time.monotonic()
        found = dict(victim.ready_together(self.plan, [(0, dead), (1, self.start(0))], 5, 1))
        self.assertEqual((found[0].code, found[1].code), (3, 0))
        self.assertLess(time.monotonic() - began, 10)

    def test_without_time_nothing_is_started(self):
        self.assertEqual(list(victim.ready_together(self.plan, [(0, self.start(0))], 1e6, 1)), [(0, None)])


# Stands for a program under gapprobe: the truth of its form, a summary, a recording.
PRETENDER = """
import json, os, pathlib, sys
program, form, cause, site, longer_ms = sys.argv[1], sys.argv[3], sys.argv[4], json.loads(sys.argv[5]), float(sys.argv[6])
pathlib.Path("ready").touch()
sys.stdin.readline()
if form == "win":
    print(json.dumps({"rounds_ms": {"slow": [10, 10], "fixed": [5, 5], "bare": [9.9, 9.9]}}))
elif form == "turns":  # a faster host: of one process by itself both the promise and the fix are other ones
    v = {"cause": cause, "step_ns": 8.6e6, "predicted_ns": 5.8e6, "site": site}
    pathlib.Path(f"gapprobe-host-{os.getpid()}-a1.summary.json").write_text(json.dumps({"verdict": v}))
    print(json.dumps({"rounds_ms": {"recorded": [8.6, 8.6], "slow": [8, 8], "fixed": [5.2, 5.2]}}))
else:
    v = {"cause": cause, "step_ns": 10e6, "predicted_ns": 5.2e6, "site": site}
    pathlib.Path(f"gapprobe-host-{os.getpid()}-a1.summary.json").write_text(json.dumps({"verdict": v}))
    os.mkdir("gapprobe-0")
    pathlib.Path("gapprobe-0/a.gpr").write_bytes(b"GAPPROBE" + form.encode())
    print(json.dumps({"step_ms": {"slow": 10.0, "fixed": 5.0 + longer_ms}[form], "true_steps": 45}))
"""


class TheWholeSuite(CannedRun):
    def run_with(self, causes_said, *parts, longer_ms=()):
        """`longer_ms`: by which each run of a fixed form is longer, in their order."""
        self.started = []
        longer_ms = list(longer_ms)
        line, function = next(iter(causes.marked_lines("host_gc").items()))
        site = {"file": "host_gc.py", "line": line, "function": function}

        def python(plan, program, *options, ours, env, gate):
            name, form = program.split("/")[1], options[1]
            self.started.append((name, form))
            self.assertEqual((ours, gate), (form != "win", True))
            self.assertEqual((env.get("GAPPROBE_TEST_KEEP"), env.get("GAPPROBE_CAPTURE")), (None, "profiler") if form == "turns" else ("1", None))
            said = causes_said.get((name, form), causes_said.get((name, "slow"), ""))
            longer = longer_ms.pop(0) if form == "fixed" and longer_ms else 0
            command = [sys.executable, "-c", PRETENDER, name, "--form", form, said, json.dumps(site), str(longer)]
            return victim.Victim(plan, command, ours=False, gate=gate, name=name)

        self.addCleanup(setattr, victim, "python", victim.python)
        victim.python = python
        causes.run(self.plan, ["host_gc", "ok_gemm", *parts])
        return {r["check"]: r["result"] for r in self.plan.rows}

    def test_a_program_of_two_ranks_is_not_run_on_one_gpu(self):
        self.plan.machine = {"gpu": "NVIDIA H200"}
        causes.run(self.plan, ["comm_late"])
        rows = {r["check"]: (r["result"], r["value"]) for r in self.plan.rows}
        self.assertEqual(rows["comm_late"], (NOT_RUN, "needs 2 GPUs, 1 here"))

    def test_all_right(self):
        self.plan.budget_s = 1000
        rows = self.run_with({("host_gc", "slow"): "HOST", ("host_gc", "fixed"): "GPU-BOUND", ("ok_gemm", "slow"): "GPU-BOUND"})
        self.assertEqual(rows, {
            "host_gc: real win": PASS, "host_gc slow: verdict": PASS, "host_gc: line": PASS, "host_gc fixed: verdict": PASS,
            "host_gc slow again: verdict": PASS, "host_gc fixed again: verdict": PASS, "host_gc: promise": PASS, "promises": PASS, "ok_gemm: real win": PASS, "ok_gemm slow: verdict": PASS, "recordings kept": INFO, "points lost": PASS})
        with tarfile.open(self.plan.out / "causes-host_gc-ok_gemm.tar.gz") as tar:
            self.assertEqual(tar.getnames(), ["host_gc.slow.gprec.gz", "host_gc.fixed.gprec.gz", "ok_gemm.slow.gprec.gz", "causes.json"])
            self.assertEqual(gzip.decompress(tar.extractfile("host_gc.fixed.gprec.gz").read()), b"GAPPROBEfixed")
        self.assertIn("5 right, 0 wrong, 0 falsely accused: 0 points lost", self.plan.closing[0])
        forms = [form for program, form in self.started if program == "host_gc"]
        self.assertEqual(forms, ["win", "slow", "fixed", "slow", "fixed"])  # a drift of the machine meets both
        kept = json.loads((self.plan.out / "results.json").read_text())["details"]["causes"]["confusion matrix"]
        self.assertEqual(kept["points lost"], 0)

    def test_a_promise_is_held_against_both_forms_recorded_and_turns_are_told_beside_it(self):
        self.plan.budget_s = 1000
        said = {("host_gc", "slow"): "HOST", ("host_gc", "turns"): "SYNC", ("host_gc", "fixed"): "GPU-BOUND", ("ok_gemm", "slow"): "GPU-BOUND"}
        self.run_with(said, "turns")
        rows = {r["check"]: r["value"] for r in self.plan.rows}
        self.assertIn("4.80 ms said, 5.00 ms saved (-4%); 10.00 -> 5.00 ms measured, 2 and 2 runs", rows["host_gc: promise"])
        self.assertIn("48.0% said, 35.0% [35.0%, 35.0%] saved (+37%) of 8.00 ms, 8.60 recorded; there it says SYNC", rows["host_gc: in turns"])

    def test_a_program_whose_runs_scatter_runs_until_its_promise_is_sure(self):
        self.plan.budget_s = 1000
        said = {("host_gc", "slow"): "HOST", ("host_gc", "fixed"): "GPU-BOUND", ("ok_gemm", "slow"): "GPU-BOUND"}
        self.run_with(said, longer_ms=[0, 1.5] * 3)
        rows = {r["check"]: r["value"] for r in self.plan.rows}
        self.assertEqual([form for program, form in self.started if program == "host_gc"], ["win", *["slow", "fixed"] * 6])
        self.assertIn("4.80 ms said, 4.25 ms saved (+13%); 10.00 -> 5.75 ms measured, 6 and 6 runs, known to 13.4%", rows["host_gc: promise"])
        self.assertIn("13 right", self.plan.closing[0])
        with tarfile.open(self.plan.out / "causes-host_gc-ok_gemm.tar.gz") as tar:
            self.assertEqual(len(tar.getnames()), 4, "of each form the first")
            known = json.load(tar.extractfile("causes.json"))["recordings"]
        self.assertEqual((known["host_gc.slow"]["runs_ms"], known["host_gc.fixed"]["runs_ms"]), ([10.0] * 6, [5.0, 6.5] * 3))

    def test_one_false_accusation_is_counted_double_and_fails(self):
        self.plan.budget_s = 1000
        rows = self.run_with({("host_gc", "slow"): "HOST", ("host_gc", "fixed"): "GPU-BOUND", ("ok_gemm", "slow"): "SYNC"})
        self.assertEqual((rows["ok_gemm slow: verdict"], rows["points lost"]), (FAIL, FAIL))
        self.assertIn("2 points lost", self.plan.closing[0])

    def test_what_has_no_time_is_not_right(self):
        self.plan.budget_s = 5
        rows = self.run_with({})
        self.assertEqual(rows["points lost"], NOT_RUN)
        self.assertEqual(set(rows.values()), {NOT_RUN, INFO})


class Native(CannedRun):
    """A program of CUDA C++ is built on the machine; here a script stands for what nvcc makes."""

    def run_with(self, built):
        self.addCleanup(setattr, native, "built", native.built)
        native.built = built
        self.plan.budget_s = 1000
        causes.run(self.plan, ["native_sync"])
        return {r["check"]: r["result"] for r in self.plan.rows}

    def test_it_runs_as_the_others_do_and_has_no_line(self):
        def built(_plan, *programs):
            self.assertEqual(programs, ("native_sync",))
            path = self.folder / "native_sync"
            insert = "sys.argv[1:1] = ['native_sync']; sys.argv[4:] = ['SYNC', 'null', '0'] if sys.argv[3] == 'slow' else ['GPU-BOUND', 'null', '0']"
            path.write_text(f"#!{sys.executable}\nimport sys\n{insert}\n{PRETENDER}")
            path.chmod(0o700)
            return {"native_sync": path}

        self.assertEqual(self.run_with(built), {
            "native_sync: real win": PASS, "native_sync slow: verdict": PASS, "native_sync fixed: verdict": PASS, "native_sync slow again: verdict": PASS,
            "native_sync fixed again: verdict": PASS, "native_sync: promise": PASS, "promises": PASS,
            "recordings kept": INFO, "points lost": PASS})
        with tarfile.open(self.plan.out / "causes-native_sync.tar.gz") as tar:
            self.assertEqual(json.load(tar.extractfile("causes.json"))["recordings"]["native_sync.slow"]["sites"], {})

    def test_without_a_compiler_it_is_not_right(self):
        self.assertEqual(self.run_with(lambda _plan, *_programs: {})["points lost"], NOT_RUN)


# Stands for build/gapprobe: its `analyze --json` says what a file beside it says of each recording.
ANALYZER = """#!/bin/sh
exec cat "$(dirname "$0")/$(basename "$3" .gprec.gz).json"
"""


class Replay(CannedRun):
    def replay(self, then, now, *options, proven=True):
        """`then`: what was said on the machine, `now`: what the analyzer says; of each recording."""
        archive = causes.Archive(self.plan, "x.tar.gz")
        command = self.folder / "gapprobe"
        command.write_text(ANALYZER)
        command.chmod(0o700)
        for (program, form), cause in then.items():
            step = {"slow": 20.0, "fixed": 10.0}[form]
            ended = self.ended({"step_ms": step}, said(cause, site=self.site if cause == "HOST" else None))
            (ended.directory / "gapprobe-0").mkdir()
            (ended.directory / "gapprobe-0" / "a.gpr").write_bytes(b"x")
            archive.add(program, form, ended, proven)
            (self.folder / f"{program}.{form}.json").write_text(json.dumps(now[program, form]))
        archive.close()
        script = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "causes-replay"
        done = subprocess.run([sys.executable, script, "--gapprobe", command, *options, self.plan.out / "x.tar.gz"],
                              capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout

    THEN = {("host_gc", "slow"): "HOST", ("host_gc", "fixed"): "GPU-BOUND"}

    @property
    def site(self):
        line, function = next(iter(causes.marked_lines("host_gc").items()))
        return {"file": "host_gc.py", "line": line, "function": function}

    def test_right_again(self):
        now = {("host_gc", "slow"): said("HOST", site=self.site, step_ns=20e6, predicted_ns=10.5e6), ("host_gc", "fixed"): said("GPU-BOUND")}
        code, out = self.replay(self.THEN, now, "--same")
        self.assertEqual((code, out.splitlines()[-1]), (0, "3 passed, 0 failed"), out)
        code, out = self.replay(self.THEN, {**now, ("host_gc", "fixed"): said("SYNC")})
        self.assertEqual((code, out.splitlines()[-1]), (1, "2 passed, 1 failed"), out)
        self.assertIn("2 points lost", out)

    def test_a_broken_promise_and_another_line_fail(self):
        now = {("host_gc", "slow"): said("HOST", site=self.site, step_ns=20e6, predicted_ns=2e6), ("host_gc", "fixed"): said("GPU-BOUND")}
        for order in (self.THEN, dict(reversed(self.THEN.items()))):
            code, out = self.replay(order, now)
            self.assertEqual((code, out.splitlines()[-1]), (1, "2 passed, 1 failed"), out)
            self.assertIn("OVER-PROMISE", out)
        now = {("host_gc", "slow"): said("HOST", site={"file": "x.py", "line": 1, "function": "f"}), ("host_gc", "fixed"): said("GPU-BOUND")}
        self.assertEqual(self.replay(self.THEN, now)[0], 1)
        now = {("host_gc", "slow"): said("HOST"), ("host_gc", "fixed"): said("GPU-BOUND")}
        self.assertEqual(self.replay(self.THEN, now)[0], 1)

    def test_another_verdict_than_on_the_machine_fails_if_asked(self):
        then = {("ok_gemm", "slow"): "SMALL-KERNELS"}
        now = {("ok_gemm", "slow"): said("GPU-BOUND")}
        self.assertEqual(self.replay(then, now)[0], 0)
        self.assertEqual(self.replay(then, now, "--same")[0], 1)

    def test_another_line_than_on_the_machine_fails_if_asked(self):
        then = {("ok_gemm", "slow"): "GPU-BOUND"}
        now = {("ok_gemm", "slow"): said("GPU-BOUND", site=self.site)}
        self.assertEqual(self.replay(then, now)[0], 0)
        self.assertEqual(self.replay(then, now, "--same")[0], 1)

    def test_what_was_not_proven_is_not_judged(self):
        code, out = self.replay(self.THEN, {k: said("COPY") for k in self.THEN}, proven=False)
        self.assertEqual((code, out.splitlines()[-1]), (2, "0 passed, 0 failed"), out)


class Proof(CannedRun):
    def test_the_claims_are_two(self):
        for name, label in LABELS.items():
            self.assertTrue(set(label.proofs.values()) <= {WINS, WINS_LITTLE}, name)
