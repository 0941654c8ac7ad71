# SPDX-License-Identifier: Apache-2.0
"""Traces, and the verdict of the running process, as Python objects: what the command says, by its versioned JSON."""

import json
import os
import subprocess
import tempfile

from gapprobe._find import command
from gapprobe._marks import preloaded


class Failed(RuntimeError):
    """The command could not do it; the message is its own."""


class Site:
    """The line of Python, or the function, that a verdict names. What is not known is None."""

    def __init__(self, told):
        self.file, self.line, self.function = told.get("file"), told.get("line"), told.get("function")

    def __repr__(self):
        return "%s:%s in %s" % (self.file, self.line, self.function) if self.file else str(self.function)


class Verdict:
    """Why the GPU was idle. Times are ms, shares 0 to 1; None where nothing is promised or known."""

    def __init__(self, told):
        verdict = told["verdict"]
        #: "GP101"; its name, "SYNC"; "high", "medium" or "low"
        self.code, self.cause, self.confidence = verdict["code"], verdict["cause"], verdict["confidence"]
        #: the sentence, as the line has it
        self.text = told["line"]
        #: what it rests on, a statement each
        self.evidence = list(told["evidence"])
        #: of the steps' time, what is lost to this cause
        self.share = verdict["share"]
        self.site = Site(verdict["site"]) if verdict["site"] else None
        #: the mean step, and the step after the fix
        self.step_ms = _ms(verdict["step_ns"])
        self.predicted_step_ms = _ms(verdict["predicted_ns"])

    def metrics(self):
        """Its numbers for an experiment tracker, by names like gapprobe/share; the code as a number."""
        numbers = {"code": int(self.code[2:]), "share": self.share, "step_ms": self.step_ms, "predicted_step_ms": self.predicted_step_ms}
        return {"gapprobe/" + name: number for name, number in numbers.items() if number is not None}

    def __str__(self):
        return self.text

    def __repr__(self):
        return "<Verdict %s %s: %s>" % (self.code, self.cause, self.text)


class Table:
    """Rows as dicts, in a sequence; for more than a look, as Arrow, pandas or polars."""

    def __init__(self, rows):
        self._rows = rows

    def __len__(self):
        return len(self._rows)

    def __getitem__(self, index):
        return self._rows[index]

    def __iter__(self):
        return iter(self._rows)

    @property
    def columns(self):
        """The names of the columns; none where there are no rows."""
        return list(self._rows[0]) if self._rows else []

    def to_arrow(self):
        """A pyarrow.Table."""
        import pyarrow

        return pyarrow.Table.from_pylist(self._rows)

    def to_pandas(self):
        """A pandas.DataFrame."""
        import pandas

        return pandas.DataFrame(self._rows)

    def to_polars(self):
        """A polars.DataFrame."""
        import polars

        return polars.DataFrame(self._rows, infer_schema_length=None)

    def __repr__(self):
        return "<Table of %d rows: %s>" % (len(self), ", ".join(self.columns))


class Events:
    """All events of a trace, typed and compressed; read when they are asked for."""

    def __init__(self, path):
        self._path = path

    def to_arrow(self):
        """A pyarrow.Table."""
        import pyarrow.parquet

        return self._through(pyarrow.parquet.read_table)

    def to_pandas(self):
        """A pandas.DataFrame (needs pyarrow or fastparquet beside pandas)."""
        import pandas

        return self._through(pandas.read_parquet)

    def to_polars(self):
        """A polars.DataFrame."""
        import polars

        return self._through(polars.read_parquet)

    def _through(self, read):
        with tempfile.TemporaryDirectory(prefix="gapprobe-") as folder:
            file = os.path.join(folder, "events.parquet")
            run_command("export", self._path, "--to", "parquet", "-o", file)
            return read(file)


#: What has a property of its own.
_USUAL = ("steps", "gaps", "cuda_gpu_kern_sum")


class Run:
    """A trace that was read. Tables are made when they are asked for first."""

    def __init__(self, path):
        self.path = path
        #: all of `gapprobe analyze --json` (docs/schemas/analyze.schema.json)
        self.analysis = json.loads(run_command("analyze", path, "--json"))
        self.verdict = Verdict(self.analysis)
        #: kernels, copies, calls, ranges, idle time: an event each
        self.events = Events(path)
        self._tables = {}

    @property
    def steps(self):
        """Each step's time, split; times are ns (`gapprobe steps`)."""
        return self.table("steps")

    @property
    def gaps(self):
        """Each stretch of idle time with its cause, longest first (`gapprobe gaps`)."""
        return self.table("gaps")

    @property
    def kernels(self):
        """Kernels by name: calls, total and mean time."""
        return self.table("cuda_gpu_kern_sum")

    def table(self, report):
        """Any report of `gapprobe stats --list`."""
        if report not in self._tables:
            # (a trace is read anew each time: the usual ones come together)
            reports = _USUAL if report in _USUAL else (report,)
            asked = [word for name in reports for word in ("-r", name)]
            told = json.loads(run_command("stats", self.path, *asked, "--format", "json", "--limit", "0"))
            self._tables.update((name, Table(told[name])) for name in reports)
        return self._tables[report]

    def __repr__(self):
        return "<Run %s: %s>" % (self.path, self.verdict)


def load(path):
    """Reads a trace or a recording: whatever `gapprobe analyze` takes. Raises Failed, with what to do, where it cannot."""
    return Run(os.fspath(path))


def verdict():
    """The verdict of this process so far, at a run's end say; None where gapprobe does not record it. Takes a second or so."""
    if not preloaded():
        return None
    # (9: there is none)
    told = json.loads(run_command("ps", "--json", exits=(0, 9)))
    for process in told["processes"]:
        if process["pid"] == os.getpid() and process["recording"]:
            return load(process["recording"]).verdict
    return None


def _ms(ns):
    return None if ns is None else ns / 1e6


def run_command(*words, exits=(0,)):
    """stdout of the command, which is not recorded itself; Failed, with what it says, where it ends with another code."""
    environment = {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "CUDA_INJECTION64_PATH")}
    done = subprocess.run([command()] + list(words), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode not in exits:
        raise Failed(done.stderr.decode("utf-8", "replace").strip() or "gapprobe %s: exit %d" % (words[0], done.returncode))
    return done.stdout.decode("utf-8")
