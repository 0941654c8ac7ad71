# SPDX-License-Identifier: Apache-2.0
"""The parts: what they need is known, tests that measure time are run alone, a part that takes too long ends."""

import contextlib
import io
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from runner import ROOT  # noqa: E402
from runner.needs import NEEDS  # noqa: E402
from runner.part import TIMED_OUT, Part, run  # noqa: E402
from runner.parts import FAST, PARTS  # noqa: E402


class Parts(unittest.TestCase):
    def test_all_that_parts_need_can_be_installed(self):
        for name, row in PARTS.items():
            self.assertLessEqual(set(row.needs), set(NEEDS), name)
            self.assertIn(row.tier, ("fast", "middle", "rest"))
            self.assertTrue(row.function.__doc__, name)

    def test_the_fast_ones_install_nothing_and_are_there(self):
        self.assertEqual([row.needs for row in PARTS.values() if row.tier == "fast"], [[]])
        for name in (word for word in FAST if not word.startswith("--")):
            self.assertTrue((ROOT / f"analyzer/cli/tests/{name}.rs").is_file(), name)

    def test_what_measures_time_is_named_so(self):
        """.config/nextest.toml runs tests alone by this name, `cargo test` by the lock."""
        found = 0
        for file in sorted((ROOT / "tests/scenarios/tests").glob("*.rs")):
            for name, body in re.findall(r"^fn (\w+)\([^\n]*\{\n(.*?)^\}", file.read_text(), re.M | re.S):
                if "CORES.write()" in body and file.stem != "dataloader":
                    self.assertTrue(name.startswith("timed_"), f"{file.name}: {name}")
                    found += 1
        self.assertGreaterEqual(found, 10)

    def test_what_a_script_skips_is_counted_and_said(self):
        part, said = Part("roots", 60), io.StringIO()
        with contextlib.redirect_stdout(said):
            part.counted("roots", "sh", "-c", "echo 'skipped focal: no mirror'; echo '4 passed, 0 failed, 1 skipped'")
        self.assertEqual((part.passed, part.failed, part.skipped, said.getvalue()), (4, 0, 1, "skipped focal: no mirror\n"))

    def test_a_command_without_time_is_killed_with_all_it_started(self):
        begin = time.monotonic()
        code, output = run(["sh", "-c", "echo begun; sleep 60 & setsid sleep 30 & sleep 60"], None, 1)
        self.assertEqual(code, TIMED_OUT)
        self.assertIn("begun", output)
        self.assertLess(time.monotonic() - begin, 20)

    def test_it_is_asked_to_end_first(self):
        code, output = run(["sh", "-c", "trap 'echo asked; exit 0' TERM; while :; do sleep 0.1; done"], None, 1)
        self.assertEqual((code, "asked" in output), (TIMED_OUT, True))

    def test_what_is_stopped_takes_its_commands_along(self):
        program = ("from runner.part import end_by_signals, run; end_by_signals(); "
                   "run(['sh', '-c', 'echo $$ > \"$PID\"; sleep 60'], None, 60)")
        numbers = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

        def as_in_a_terminal():  # these tests may run under nohup, or behind a shell's &
            for number in numbers:
                signal.signal(number, signal.SIG_DFL)

        for number in numbers:
            with tempfile.TemporaryDirectory() as folder:
                pid = pathlib.Path(folder, "pid")
                runner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT / "tests", env=dict(os.environ, PID=str(pid)), stderr=subprocess.DEVNULL,
                                          preexec_fn=as_in_a_terminal)
                while not (pid.is_file() and pid.read_text().endswith("\n")):
                    time.sleep(0.02)
                runner.send_signal(number)
                self.assertNotEqual(runner.wait(20), 0)
                with self.assertRaises(ProcessLookupError):
                    os.kill(int(pid.read_text()), 0)

    def test_a_command_that_is_not_there_is_a_failure(self):
        code, output = run(["no-such-program"], None, 5)
        self.assertEqual(code, 127)
        self.assertIn("no-such-program", output)


if __name__ == "__main__":
    unittest.main()
