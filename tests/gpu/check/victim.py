# SPDX-License-Identifier: Apache-2.0
"""Running a program with or without gapprobe preloaded, and everything it left behind.

Programs may be started ahead of time with a gate: they import what they need and then wait for a line on stdin before
they touch the GPU, so that imports cost no quiet machine. Only processes started here are ever signalled, by id.
"""

import contextlib
import gzip
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import time

# Recorded whole, however much it costs, as the first seconds of any run are (GAPPROBE_BUDGET=100
# would tell launches by another way).
WHOLE = {"GAPPROBE_TEST_FREE_MS": "3600000"}
PROGRAMS = pathlib.Path(__file__).resolve().parent.parent / "programs"
_alive = {}
_alive_lock = threading.Lock()


def kill_all():
    """End every process group that this module started and that has not ended yet."""
    with _alive_lock:
        groups = list(_alive)
    for pid in groups:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


class Ended:
    """What a program left: exit code, output, its own truth (its last JSON line), gapprobe's files."""

    def __init__(self, code, out, err, took_s, ended_at, late, directory, pid):
        self.code, self.out, self.err, self.took_s, self.ended_at = code, out, err, took_s, ended_at
        self.late, self.directory, self.pid = late, pathlib.Path(directory), pid

    @property
    def truth(self):
        """The last line of stdout that is a JSON object, or {}."""
        for line in reversed(self.out.splitlines()):
            if line.startswith("{"):
                with contextlib.suppress(ValueError):
                    return json.loads(line)
        return {}

    @property
    def line(self):
        """gapprobe's line on stderr, or ''."""
        return next((x for x in self.err.splitlines() if x.startswith("gapprobe: ") and " [GP" in x), "")

    @property
    def our_lines(self):
        return [x for x in self.err.splitlines() if x.startswith("gapprobe")]

    def files(self, end=""):
        return sorted(p for p in self.directory.iterdir() if p.name.startswith("gapprobe-") and p.name.endswith(end))

    def summary(self):
        """The summary of the program's own process (not of children), or None."""
        found = self.files(".summary.json")
        own = [p for p in found if f"-{self.pid}-" in p.name] or found
        with contextlib.suppress(OSError, ValueError, IndexError):
            return json.loads(own[0].read_text())
        return None

    def trace(self):
        """Path of the trace, or None."""
        found = self.files(".json.gz")
        own = [p for p in found if f"-{self.pid}-" in p.name] or found
        return own[0] if own else None

    def recordings(self):
        """Recordings (.gpr) that are still there."""
        return sorted(self.directory.glob("gapprobe-*/*.gpr"))

    def recover(self, plan, timeout_s=60):
        """`gapprobe recover` for this run: (exit code, stdout, stderr); trace and summary then lie with its files."""
        env = {k: v for k, v in os.environ.items() if not k.startswith("GAPPROBE")}
        env["TMPDIR"] = str(self.directory)
        try:
            done = subprocess.run([plan.build / "gapprobe", "recover", "--dir", self.directory], env=env, text=True,
                                  capture_output=True, timeout=timeout_s)
        except (OSError, subprocess.SubprocessError) as e:
            return -1, "", str(e)
        return done.returncode, done.stdout, done.stderr

    def as_detail(self):
        """For the result file: everything but bulk."""
        return {"exit_code": self.code, "late": self.late, "took_s": round(self.took_s, 2), "line": self.line,
                "truth": self.truth, "summary": self.summary(), "files": [p.name for p in self.files()],
                "stderr": self.err[-1500:]}


class Victim:
    """One program, started. `open()` lets a gated one go, `wait()` gives what it left."""

    def __init__(self, plan, command, *, ours, env=None, gate=False, name=None):
        self.directory = tempfile.mkdtemp(prefix=(name or "run") + "-", dir=plan.scratch)
        self._out = open(os.path.join(self.directory, "stdout"), "w+b")
        self._err = open(os.path.join(self.directory, "stderr"), "w+b")
        full = {k: v for k, v in os.environ.items() if not k.startswith("GAPPROBE") and k != "LD_PRELOAD"}
        full.update(PYTHONUNBUFFERED="1", TORCHINDUCTOR_CACHE_DIR=str(plan.scratch / "inductor"))
        if ours and not plan.dry:
            full.update(LD_PRELOAD=str(plan.build / "libgapprobe.so"), GAPPROBE_DIR=self.directory,
                        TMPDIR=self.directory)  # the recording too: each run finds its own
        full.update((env or {}) if ours else {k: v for k, v in (env or {}).items() if not k.startswith("GAPPROBE")})
        self.gate = gate
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [str(c) for c in command] + (["--gate"] if gate else []), env=full, start_new_session=True, cwd=self.directory,
            stdin=subprocess.PIPE if gate else subprocess.DEVNULL, stdout=self._out, stderr=self._err)
        with _alive_lock:
            _alive[self.process.pid] = self.process

    def open(self):
        if self.gate:
            self.gate = False
            with contextlib.suppress(OSError):
                self.process.stdin.write(b"go\n")
                self.process.stdin.close()
            self.started = time.monotonic()
        return self

    def stop(self):
        """Give it up: kill its process group and collect it."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        return self.wait(5)

    def wait(self, timeout_s):
        """Open the gate if need be, wait; after `timeout_s` the process group is killed and `late` is set."""
        self.open()
        late = False
        try:
            self.process.wait(max(timeout_s, 0.1))
        except subprocess.TimeoutExpired:
            late = True
            with contextlib.suppress(OSError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        ended = time.monotonic()
        with _alive_lock:
            _alive.pop(self.process.pid, None)
        with contextlib.suppress(OSError):  # children that outlived it must not disturb what runs next
            os.killpg(self.process.pid, signal.SIGKILL)
        texts = []
        for f in (self._out, self._err):
            f.seek(0)
            texts.append(f.read().decode(errors="replace"))
            f.close()
        return Ended(self.process.returncode, texts[0], texts[1], ended - self.started, ended, late, self.directory,
                     self.process.pid)


def python(plan, program, *options, ours, env=None, gate=False):
    """Start programs/<program>.py."""
    command = [sys.executable, PROGRAMS / f"{program}.py", *options] + (["--device", "cpu", "--tiny"] if plan.dry else [])
    return Victim(plan, command, ours=ours, env=env, gate=gate, name=pathlib.Path(program).name)


def jax_program(plan, program, *options, ours, env=None):
    """Start a JAX or CuPy program: it takes none of the frame's options."""
    env = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", **(env or {})}
    return Victim(plan, [sys.executable, PROGRAMS / f"{program}.py", *options], ours=ours, env=env, name=program)


def one_by_one(plan, starts, seconds_each, ahead=2):
    """Run gated victims one after the other, the next `ahead` of them already importing. Yields (key, Ended or None).

    `starts` is a list of (key, function that starts the victim). None: no time was left for it.
    """
    waiting = []
    pending = list(starts)
    while waiting or pending:
        while pending and len(waiting) <= ahead and plan.left() > seconds_each:
            key, start = pending.pop(0)
            waiting.append((key, start()))
        if not waiting:
            for key, _ in pending:
                yield key, None
            return
        key, victim = waiting.pop(0)
        if plan.left() < seconds_each:
            victim.stop()
            yield key, None
            continue
        yield key, victim.wait(min(plan.left() - 2, 6 * seconds_each))


def ready_together(plan, starts, setup_s, seconds_each, at_once=10):
    """Run gated victims that write a file `ready` when all but their work is done: a batch of them is made ready side by
    side (imports, contexts, models, workers), then each has the machine to itself. Yields (key, Ended or None) in order.

    `starts` is a list of (key, function that starts the victim). None: no time was left for it.
    """
    pending = list(starts)
    while pending:
        batch, pending = pending[:at_once], pending[at_once:]
        if plan.left() < setup_s + seconds_each:
            for key, _ in batch + pending:
                yield key, None
            return
        waiting = [(key, start()) for key, start in batch]
        deadline = time.monotonic() + min(4 * setup_s, plan.left() - seconds_each)
        while time.monotonic() < deadline and not all(
                v.process.poll() is not None or os.path.exists(os.path.join(v.directory, "ready")) for _, v in waiting):
            time.sleep(0.05)
        for key, victim in waiting:
            if plan.left() < seconds_each:
                victim.stop()
                yield key, None
            else:
                yield key, victim.wait(min(plan.left() - 2, 8 * seconds_each))


def several_at_once(plan, starts, seconds_each, jobs=None):
    """Run victims that need no quiet machine, a few at a time. Returns {key: Ended or None}."""
    results, pending, running = {}, list(starts), []
    jobs = jobs or plan.jobs
    while pending or running:
        while pending and len(running) < jobs and plan.left() > seconds_each:
            key, start = pending.pop(0)
            running.append((key, start().open(), time.monotonic() + min(6 * seconds_each, plan.left() - 2)))
        if not running:
            results.update({key: None for key, _ in pending})
            return results
        for item in list(running):
            key, victim, deadline = item
            if victim.process.poll() is not None or time.monotonic() > deadline:
                results[key] = victim.wait(0.2)
                running.remove(item)
        time.sleep(0.02)
    return results


def keep(plan, path, name):
    """Copy a small file into the results (gzip it unless it is already)."""
    data = pathlib.Path(path).read_bytes()
    if not str(path).endswith(".gz"):
        data, name = gzip.compress(data, 6), name + ".gz"
    if len(data) <= 12 << 20:
        (plan.out / name).write_bytes(data)
        return name
    return None
