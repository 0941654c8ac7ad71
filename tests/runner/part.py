# SPDX-License-Identifier: Apache-2.0
"""One part of the tests while it runs: its commands, and what passed, failed and was skipped."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time

from . import ROOT

SKIPPED = 3  # exit code of a script that could not run here
TIMED_OUT = 124
ENDS_WITHIN_S = 12  # nextest gives its tests 10


class Part:
    """A named part. `seconds`: after so long its command is killed, and that is a failure."""

    def __init__(self, name, seconds):
        self.name, self.passed, self.failed, self.skipped = name, 0, 0, 0
        self.unsteady = []  # tests that failed beside others and passed alone
        self.times = []  # (seconds, name of a test)
        self.until = time.monotonic() + seconds

    def ok(self, count=1):
        self.passed += count

    def fail(self, text, count=1):
        self.failed += count
        print(f"FAILED {self.name}: {text}", flush=True)

    def skip(self, text, count=1):
        self.skipped += count
        print(f"skipped {self.name}: {text}", flush=True)

    def run(self, *command, environment=None, log=True):
        """Runs a command to its end; (exit code, all its output). The output's end is shown where it fails."""
        code, output = run(command, environment, self.until - time.monotonic())
        if log and code not in (0, SKIPPED):
            print("\n".join(output.splitlines()[-120:]), flush=True)
        return code, output

    def check(self, what, *command, **more):
        """One test: the command ends with 0 (or says that it cannot run here)."""
        code, output = self.run(*command, **more)
        if code == 0:
            self.ok()
        elif code == SKIPPED:
            self.skip(last_line(output) or what)
        else:
            self.fail(f"{what}: exit {code}")
        return code == 0

    def counted(self, what, *command, **more):
        """A script whose last line is "N passed, N failed"."""
        code, output = self.run(*command, **more)
        self.unsteady += re.findall(r"^UNSTEADY: (.+)$", output, re.M)
        for line in re.findall(r"^skipped .+", output, re.M):
            print(line, flush=True)
        last = re.findall(r"^(\d+) passed, (\d+) failed(?:, (\d+) skipped)?$", output, re.M)
        if code == SKIPPED:
            self.skip(last_line(output) or what)
        elif not last or (code != 0) != (last[-1][1] != "0"):
            self.fail(f"{what}: exit {code}, no count")
        else:
            self.passed += int(last[-1][0])
            self.skipped += int(last[-1][2] or 0)
            if last[-1][1] != "0":
                self.fail(what, int(last[-1][1]))


def run(command, environment, seconds):
    """(exit code, output) of a command; it and all that it started are killed after so many seconds."""
    try:
        process = subprocess.Popen([str(word) for word in command], cwd=ROOT, env=dict(os.environ, **(environment or {})),
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
    except OSError as error:
        return 127, str(error)
    try:
        output, _ = process.communicate(timeout=max(seconds, 1))
        return process.returncode, output.decode(errors="replace")
    except subprocess.TimeoutExpired:
        output = stop(process)
        return TIMED_OUT, output.decode(errors="replace") + f"\nkilled: no time is left (after {seconds:.0f} s)"
    except BaseException:  # Ctrl-C: nothing of ours goes on
        stop(process)
        raise


def end_by_signals():
    """SIGTERM and SIGHUP end this process as Ctrl-C does: with what it started. (Not one that is ignored, as under nohup.)"""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda number, _: sys.exit(128 + number))


def stop(process):
    """Ends a command and all that it started; what it said. Nextest's tests have process groups of their own: it ends them
    itself, where it is asked to."""
    output = b""
    for number, seconds in ((signal.SIGTERM, ENDS_WITHIN_S), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            try:
                return process.communicate(timeout=0.5)[0]
            except subprocess.TimeoutExpired as late:
                output = late.stdout or b""
            if process.poll() is not None:  # what left the group holds the pipe
                break
    process.stdout.close()
    process.wait()
    return output


def last_line(text):
    """The last line of a text, or ""."""
    return (text.strip().splitlines() or [""])[-1]
