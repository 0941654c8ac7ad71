# SPDX-License-Identifier: Apache-2.0
"""What a run of nextest comes to: what failed twice fails, what passed alone is unsteady, what did not run is no pass."""

import contextlib
import io
import pathlib
import sys
import unittest
import xml.etree.ElementTree
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from runner import rust  # noqa: E402
from runner.part import Part  # noqa: E402


def test(name, failed=False, said=""):
    """A test as JUnit's file has it."""
    suite = xml.etree.ElementTree.Element("testsuite", name="crate::binary")
    case = xml.etree.ElementTree.SubElement(suite, "testcase", name=name, time="1.5")
    if failed:
        xml.etree.ElementTree.SubElement(case, "failure")
    xml.etree.ElementTree.SubElement(case, "system-out").text = said
    return rust.Test(suite, case)


def judged(*runs):
    """The part after nextest gave these (exit code, tests, output), one after the other; and what was printed."""
    (code, tests, output), *again = runs
    runs = [(code, tests, output or f"Starting {len(tests)} tests across 3 binaries"), *again]
    part, printed = Part("rust", 60), io.StringIO()
    with mock.patch.object(rust.needs, "nextest", return_value="nextest"), mock.patch.object(rust, "by_nextest", side_effect=runs), \
            contextlib.redirect_stdout(printed):
        rust.rust_tests(part)
    return part, printed.getvalue()


class Rust(unittest.TestCase):
    def test_what_passed_is_counted_with_its_time(self):
        part, printed = judged((0, [test("a"), test("b", said="x\nSKIPPED: no node\n")], "Starting 2 tests across 1 binary (14 tests skipped)"))
        self.assertEqual((part.passed, part.failed, part.times[0]), (2, 0, (1.5, "crate::binary a")))
        self.assertIn("note rust: SKIPPED: no node", printed)
        self.assertIn("14 tests are left", printed)

    def test_what_passes_alone_is_unsteady(self):
        part, _ = judged((100, [test("a", True), test("b")], ""), (0, [test("a")], ""))
        self.assertEqual((part.passed, part.failed, part.unsteady), (2, 0, ["crate::binary a"]))

    def test_what_fails_again_is_a_failure(self):
        part, printed = judged((100, [test("a", True), test("b", True)], ""), (100, [test("a", True), test("b")], ""))
        self.assertEqual((part.passed, part.failed, part.unsteady), (1, 1, ["crate::binary b"]))
        self.assertIn("FAILED rust: crate::binary a", printed)
        self.assertIn("cargo nextest run --workspace --test binary -E 'binary_id(=crate::binary) and test(=a)'", printed)

    def test_what_does_not_run_again_is_a_failure(self):
        part, _ = judged((100, [test("a", True)], ""), (101, [], "error: no"))
        self.assertEqual((part.passed, part.failed), (0, 1))

    def test_what_runs_again_is_chosen_from_the_same_binaries(self):
        runs = [(100, [test("a", True)], "Starting 1 test across 1 binary"), (0, [test("a")], "")]
        with mock.patch.object(rust.needs, "nextest", return_value="nextest"), contextlib.redirect_stdout(io.StringIO()), \
                mock.patch.object(rust, "by_nextest", side_effect=runs) as ran:
            rust.rust_tests(Part("fast", 60), "--test", "binary")
        self.assertEqual([call.args[2][:2] for call in ran.call_args_list], [["--test", "binary"]] * 2)

    def test_many_failures_are_not_run_again(self):
        part, _ = judged((100, [test(str(n), True) for n in range(rust.FEW + 1)], ""))
        self.assertEqual(part.failed, rust.FEW + 1)

    def test_a_run_that_broke_off_is_no_pass(self):
        self.assertEqual(judged((101, [], "error: could not compile"))[0].failed, 1)
        self.assertEqual(judged((104, [test("a")], ""))[0].failed, 1)
        some = (130, [test("a", True), test("b")], "Starting 902 tests across 44 binaries")
        self.assertGreater(judged(some, (0, [test("a")], ""))[0].failed, 0)


if __name__ == "__main__":
    unittest.main()
