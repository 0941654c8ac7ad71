# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/gpu-lanes and of the plans beside it, that need no GPU: python3 -m unittest discover -s tests/gpu"""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tarfile
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from suites import always_on  # noqa: E402


def script(name):
    """A script without a suffix, as a module."""
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), str(HERE.parents[1] / "scripts" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


class Plans(unittest.TestCase):
    def setUp(self):
        self.lanes = script("gpu-lanes").lanes

    def test_a_line_that_is_none_is_named(self):
        for text, words in (("", "no line"), ("1 0 0-3 60 a\n", "line 1"), ("1 0 0-3 60 a x\none 0 0-3 60 b y\n", "line 2"),
                            ("1 0 0-3 60 a x\n2 0 0-3 60 a y\n", "a is there already")):
            with self.assertRaisesRegex(ValueError, words):
                self.lanes(text)

    def test_phases_follow_one_another_in_order(self):
        found = self.lanes("# a plan\n2 1 4-7 30 b y  # behind\n\n1 0,1 0-3 60 a x:p+q,z\n")
        self.assertEqual(found, [(1, "0,1", "0-3", 60, "a", "x:p+q,z"), (2, "1", "4-7", 30, "b", "y")])

    def test_what_suites_keep_does_not_take_the_results_with_it(self):
        lanes = script("gpu-lanes")
        lanes.MOST_BYTES, lanes.MOST_FILES = 1000, 2
        with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryDirectory() as out:
            folder, out = pathlib.Path(scratch), pathlib.Path(out)
            (folder / "a.log").write_text("rows")
            (folder / "a").mkdir()
            (folder / "a" / "results.json").write_text("{}" * 2000)
            for n, size in enumerate((600, 300, 700, 400, 900, 5000)):
                (folder / "a" / f"kept{n}").write_bytes(bytes(size))
            left_out = lanes.pack(folder, out)
            held = {}
            for path in sorted(out.iterdir()):
                with tarfile.open(path) as archive:
                    held[path.name] = archive.getnames()
        self.assertEqual(held, {"results.tar.gz": ["a.log", "a/results.json"], "files-1.tar.gz": ["a/kept1", "a/kept3"], "files-2.tar.gz": ["a/kept0"]})
        self.assertEqual(left_out, ["a/kept2", "a/kept4", "a/kept5"])

    def test_the_plans_here_name_suites_and_parts_that_there_are_and_fit_into_ten_minutes(self):
        suites, plans = script("gpu-check").SUITES, sorted((HERE / "plans").iterdir())
        self.assertTrue(plans)
        for plan in plans:
            phases = {}
            for phase, _, _, seconds, _, only in self.lanes(plan.read_text()):
                phases[phase] = max(phases.get(phase, 0), seconds)
                for item in only.split(","):
                    suite, _, parts = item.partition(":")
                    self.assertIn(suite, suites, plan)
                    if suite == "always_on":
                        always_on.counts(parts.split("+"))
            self.assertLessEqual(sum(phases.values()), 590, plan)


if __name__ == "__main__":
    unittest.main()
