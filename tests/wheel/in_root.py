# SPDX-License-Identifier: Apache-2.0
"""Purpose: what a new user does first, in a system that has nothing but its Python: pip install, doctor, a run, a killed run,
open. scripts/roots runs it there, beside the wheel, a newer pip, the simulated driver and train.py."""

import glob
import gzip
import json
import os
import pathlib
import platform
import re
import signal
import socket
import subprocess
import sys
import time
import unittest
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
BIN = HERE / "env/bin"
TRAIN = [str(BIN / "python"), str(HERE / "train.py"), "--mode", "sync", "--steps"]
UI = "https://ui.perfetto.dev"


def run(*words, code=0, **environment):
    """(stdout, stderr) of a command that must end with `code`."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True, cwd=str(HERE),
                          env=dict(os.environ, **environment))
    if done.returncode != code:
        raise AssertionError("%s: exit %d\n%s%s" % (" ".join(map(str, words)), done.returncode, done.stdout, done.stderr))
    return done.stdout, done.stderr


def states(pid):
    """Those of a process's threads that are there."""
    for file in glob.glob("/proc/%d/task/*/stat" % pid):
        try:
            yield pathlib.Path(file).read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            pass  # gone meanwhile


def setUpModule():
    global PIP
    run(sys.executable, "-m", "venv", BIN.parent)
    PIP = run(BIN / "pip", "--version")[0].split()[1]
    wheel = str(next(HERE.glob("gapprobe-*.whl")))
    if tuple(int(n) for n in PIP.split(".")[:2]) < (20, 3):
        # (that is what docs/limits.md says of it)
        _, said = run(BIN / "pip", "install", "--no-index", wheel, code=1)
        assert "is not a supported wheel on this platform" in said, said
        run(BIN / "pip", "install", "-q", "--no-index", str(next(HERE.glob("pip-*.whl"))))
    run(BIN / "pip", "install", "-q", "--no-index", wheel)
    told = dict(line.split("=", 1) for line in pathlib.Path("/etc/os-release").read_text().splitlines() if "=" in line)
    print("in %s: glibc %s, Python %s, pip %s" % (told["PRETTY_NAME"].strip('"'), platform.libc_ver()[1], platform.python_version(), PIP), flush=True)


class First(unittest.TestCase):
    def folder(self, name):
        folder = HERE / name
        folder.mkdir()
        return folder

    def record(self, folder):
        """A whole run; its line."""
        out, said = run(BIN / "gapprobe", "run", "--dir", folder, *TRAIN, "60", LD_LIBRARY_PATH=str(HERE / "sim"))
        self.assertIn("step   60", out)
        return said

    def ended(self, pid):
        """Waits for all threads of a process that was killed with its parent: nobody else does."""
        until = time.monotonic() + 30
        while any(state not in "ZX" for state in states(pid)):
            self.assertLess(time.monotonic(), until, "%d does not end" % pid)
            time.sleep(0.05)

    def test_doctor_misses_the_gpu_alone(self):
        out, _ = run(BIN / "gapprobe", "doctor", code=1, LD_LIBRARY_PATH=str(HERE / "sim"))
        self.assertEqual(re.findall(r"^problem +(\w+)", out, re.M), ["driver", "device"], out)
        self.assertRegex(out, r"(?m)^ok +library +%s/env/libexec/gapprobe/libgapprobe.so$" % HERE)
        self.assertNotIn("()", out)

    def test_a_run_says_its_line_and_leaves_a_trace(self):
        folder = self.folder("whole")
        self.assertRegex(self.record(folder), r"gapprobe: GPU idle \d+%: .*\(.*train\.py:\d+\).*\[GP101\]")
        trace, = folder.glob("gapprobe-*.json.gz")
        self.assertIn("GP101", run(BIN / "gapprobe", "analyze", trace)[0])

    def test_a_killed_run_is_recovered(self):
        folder = self.folder("killed")
        process = subprocess.Popen([str(BIN / "gapprobe"), "run", "--dir", str(folder), *TRAIN, "1000000"], stdout=subprocess.DEVNULL,
                                   env=dict(os.environ, LD_LIBRARY_PATH=str(HERE / "sim")), start_new_session=True)
        until = time.monotonic() + 60
        while not glob.glob(str(HERE / "gapprobe-0/*.gpr")) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(3)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        recording, = glob.glob(str(HERE / "gapprobe-0/*.gpr"))
        self.ended(int(recording.rsplit("-", 3)[1]))
        out, said = run(BIN / "gapprobe", "recover", "--dir", folder)
        self.assertRegex(out + said, r"\[GP101\]")
        self.assertEqual(len(list(folder.glob("gapprobe-*.json.gz"))), 1)

    def test_open_serves_the_trace_to_the_page(self):
        folder = self.folder("opened")
        self.record(folder)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([str(BIN / "gapprobe"), "open", str(folder), "--print-url", "--port", str(port)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, universal_newlines=True)
        url = process.stdout.readline().strip()
        self.assertTrue(url.startswith(UI + "/#!/?url="), url)
        target = urllib.parse.unquote(re.search("[?&]url=([^&]+)", url).group(1))
        request = urllib.request.Request(target.replace(":9001", ":%d" % port), headers={"Origin": UI, "Host": "127.0.0.1:9001"})
        told = json.loads(gzip.decompress(urllib.request.urlopen(request, timeout=30).read()))
        self.assertGreater(len(told["traceEvents"]), 1000)
        process.communicate(timeout=30)
        self.assertEqual(process.returncode, 0)


if __name__ == "__main__":
    unittest.main()
