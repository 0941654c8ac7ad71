# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python package, with and without a preloaded library. No GPU, no dependency."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
REPOSITORY = PACKAGE.parent
LIBRARY = REPOSITORY / "build" / "libgapprobe.so"

# Stands in for the library: writes down what it is told.
RECORDER = r"""
#include <stdio.h>
void gapprobe_step(void) { puts("step"); fflush(stdout); }
void gapprobe_range_push(const char *name) { printf("push %s\n", name); fflush(stdout); }
void gapprobe_range_pop(void) { puts("pop"); fflush(stdout); }
void gapprobe_capture(int on) { printf("capture %d\n", on); fflush(stdout); }
int gapprobe_version(void) { return 10203; }
"""

SCRIPT = r"""
import gapprobe
gapprobe.step()
with gapprobe.range("forward") as inside:
    gapprobe.range_push("n\u00e4he")
    gapprobe.range_pop()
@gapprobe.range("f")
def f(x):
    "doc"
    return x + 1
assert f(1) == 2 and f.__doc__ == "doc" and f.__name__ == "f"
try:
    with gapprobe.range("fails"):
        raise KeyError("through")
except KeyError:
    pass
gapprobe.capture(False)
gapprobe.capture(True)
print(gapprobe.preloaded(), gapprobe.version())
"""

TOLD = ["step", "push forward", "push n\u00e4he", "pop", "pop", "push f", "pop", "push fails", "pop", "capture 0", "capture 1"]


def run(script, **environment):
    """Runs a script with the package on its path; its standard output, line by line."""
    full = dict(os.environ, PYTHONPATH=str(PACKAGE), PYTHONIOENCODING="utf-8", **environment)
    done = subprocess.run([sys.executable, "-c", script], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return done.stdout.decode("utf-8").splitlines()


class Marks(unittest.TestCase):
    def test_without_the_library_nothing_happens(self):
        self.assertEqual(run(SCRIPT, LD_PRELOAD=""), ["False None"])

    def test_the_library_hears_every_call_in_order(self):
        with tempfile.TemporaryDirectory() as folder:
            source, library = os.path.join(folder, "recorder.c"), os.path.join(folder, "recorder.so")
            with open(source, "w") as file:
                file.write(RECORDER)
            subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
            self.assertEqual(run(SCRIPT, LD_PRELOAD=library), TOLD + ["True (1, 2, 3)"])

    def test_a_name_with_a_zero_byte_or_half_a_character_is_no_error(self):
        self.assertEqual(run("import gapprobe; gapprobe.range_push('a\\0b'); gapprobe.range_push('\\ud800')"), [])

    @unittest.skipUnless(LIBRARY.is_file(), "scripts/build was not run")
    def test_the_real_library_takes_the_same_calls(self):
        self.assertEqual(run(SCRIPT, LD_PRELOAD=str(LIBRARY)), ["True (0, 1, 0)"])


class Files(unittest.TestCase):
    def test_home_comes_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("libgapprobe.so", "gapprobe"):
                open(os.path.join(folder, name), "w").close()
            found = run("import gapprobe; print(gapprobe.library()); print(gapprobe.command())", GAPPROBE_HOME=folder)
            self.assertEqual(found, [os.path.join(folder, "libgapprobe.so"), os.path.join(folder, "gapprobe")])

    def test_a_missing_file_is_named_with_every_place_looked_at(self):
        script = "import gapprobe._find as f\ntry: f._find('libnothing.so', 'lib/libnothing.so')\nexcept f.NotFound as e: print(e)"
        text = "\n".join(run(script, GAPPROBE_HOME="/nowhere"))
        for place in ("/nowhere/libnothing.so", "build/libnothing.so", "hint: scripts/build"):
            self.assertIn(place, text)

    def test_the_module_becomes_the_command(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "gapprobe")
            with open(script, "w") as file:
                file.write("#!/bin/sh\necho \"$@\"\nexit 5\n")
            os.chmod(script, 0o755)
            full = dict(os.environ, PYTHONPATH=str(PACKAGE), GAPPROBE_HOME=folder)
            done = subprocess.run([sys.executable, "-m", "gapprobe", "explain", "GP101"], env=full, stdout=subprocess.PIPE)
            self.assertEqual((done.returncode, done.stdout), (5, b"explain GP101\n"))

    def test_the_usual_tables_come_with_one_reading(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "gapprobe")
            analysis = '{"line": "", "evidence": [], "verdict": {"code": "GP190", "cause": "GPU-BOUND", "confidence": "high", "share": 0, "site": null, "step_ns": null, "predicted_ns": null}}'
            tables = '{"steps": [{"step": 0}], "gaps": [], "cuda_gpu_kern_sum": [{"name": "k"}]}'
            with open(script, "w") as file:
                file.write("#!/bin/sh\necho $1 >> %s/calls\n[ $1 = stats ] && echo '%s' || echo '%s'\n" % (folder, tables, analysis))
            os.chmod(script, 0o755)
            code = "import gapprobe; r = gapprobe.load('t'); print(len(r.steps), len(r.gaps), r.kernels[0]['name'], r.table('steps') is r.steps)"
            full = dict(os.environ, PYTHONPATH=str(PACKAGE), GAPPROBE_HOME=folder)
            done = subprocess.run([sys.executable, "-c", code], env=full, stdout=subprocess.PIPE)
            self.assertEqual(done.stdout, b"1 0 k True\n")
            with open(os.path.join(folder, "calls")) as file:
                self.assertEqual(file.read(), "analyze\nstats\n")


if __name__ == "__main__":
    unittest.main()
