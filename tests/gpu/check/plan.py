# SPDX-License-Identifier: Apache-2.0
"""The plan of one gpu-check run: which suites, how much time is left, the rows of the table, the result file.

Rows are facts with a limit. PASS and FAIL count; INFO is a number without a limit; NOT RUN says what time or the
machine did not allow. The result file is written anew after every row, so a killed run keeps what it has seen.
"""

import json
import pathlib
import threading
import time

PASS, FAIL, INFO, NOT_RUN = "PASS", "FAIL", "INFO", "NOT RUN"


class Plan:
    """State of one run; suites get it and add rows. Safe to use from several threads."""

    def __init__(self, out, build, budget_s, quick=False, jobs=3, began=None, dry=False):
        self.out = pathlib.Path(out).absolute()
        self.build = pathlib.Path(build).absolute()
        self.quick = quick
        self.jobs = jobs
        self.dry = dry
        self.began = time.monotonic() if began is None else began
        self.budget_s = budget_s
        self.rows = []
        self.details = {}
        self.closing = []  # texts to print after the table
        self.machine = {}
        self.failed = False
        self._lock = threading.RLock()
        self.out.mkdir(parents=True, exist_ok=True)
        self.scratch = self.out  # scripts/gpu-check puts it elsewhere: what victims leave is no result

    def left(self):
        """Seconds until this run must be over."""
        return self.began + self.budget_s - time.monotonic()

    def room_for(self, suite, what, seconds):
        """Whether `seconds` are left; if not, says so in the table."""
        if self.left() >= seconds:
            return True
        self.row(suite, what, NOT_RUN, f"needs {seconds:.0f} s, {max(self.left(), 0):.0f} s left")
        return False

    def row(self, suite, check, result, value, limit=""):
        """Add one line to the table. `result` may be a bool."""
        if isinstance(result, bool):
            result = PASS if result else FAIL
        with self._lock:
            self.failed = self.failed or result == FAIL
            self.rows.append({"suite": suite, "check": check, "result": result, "value": str(value), "limit": str(limit),
                              "at_s": round(time.monotonic() - self.began, 1)})
            self.write()
        return result == PASS

    def detail(self, suite, key, value):
        """Keep everything behind a row."""
        with self._lock:
            self.details.setdefault(suite, {})[key] = value
            self.write()

    def write(self):
        """Write the result file, whole or not at all."""
        with self._lock:
            text = json.dumps({"machine": self.machine, "budget_s": self.budget_s, "quick": self.quick,
                               "took_s": round(time.monotonic() - self.began, 1), "rows": self.rows,
                               "details": self.details}, indent=1, default=str)
            temporary = self.out / "results.json.part"
            temporary.write_text(text + "\n")
            temporary.replace(self.out / "results.json")

    def table(self):
        """The rows as text, failures last so that a cut-off tail still shows them."""
        order = {INFO: 0, PASS: 1, NOT_RUN: 2, FAIL: 3}
        rows = sorted(self.rows, key=lambda r: order[r["result"]])
        widths = [max([len(r[k]) for r in rows] + [4]) for k in ("result", "suite", "check")]
        lines = []
        for r in rows:
            limit = f"  (limit {r['limit']})" if r["limit"] else ""
            lines.append(f"{r['result']:<{widths[0]}} {r['suite']:<{widths[1]}} {r['check']:<{widths[2]}} "
                         f"{r['value'][:110]}{limit}")
        count = {k: sum(r["result"] == k for r in rows) for k in order}
        lines.append(f"{count[PASS]} passed, {count[FAIL]} failed, {count[NOT_RUN]} not run, {count[INFO]} for information; "
                     f"{time.monotonic() - self.began:.0f} of {self.budget_s:.0f} s")
        return "\n".join(lines)
