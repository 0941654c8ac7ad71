# SPDX-License-Identifier: Apache-2.0
"""Runs Rust tests by cargo-nextest: all binaries' tests side by side, each in a process of its own, each with its time
(.config/nextest.toml). Where it is not here, `cargo test` runs them: no times are known then, and nothing is run again."""

import os
import re
import xml.etree.ElementTree

from . import ROOT, needs
from .part import TIMED_OUT

# As many as this that failed are run again, alone: hundreds of programs run beside each other, some
# against the clock.
FEW = 6
# In all of these the whole workspace is chosen: cargo would choose other features for a package
# alone, and build it anew.
BUILD = ["cargo", "test", "--quiet", "--workspace", "--no-run"]


def rust_tests(part, *selection, ignored="default", environment=None):
    """Runs the tests that `selection` chooses, in the words that nextest and cargo test share, and counts them. Those marked
    ignored are left out, or run too ("all"), or run alone ("only")."""
    nextest = needs.nextest()
    if not nextest:
        more = {"default": [], "all": ["--", "--include-ignored"], "only": ["--", "--ignored"]}[ignored]
        return by_cargo(part, [*selection, *more], environment)
    code, found, output = by_nextest(part, nextest, [*selection, f"--run-ignored={ignored}"], environment)
    failed = [test for test in found if test.failed]
    begun = re.search(r"Starting (\d+) tests? across", output)
    if not begun or len(found) != int(begun[1]) or (code and not failed):
        print("\n".join(output.splitlines()[-120:]), flush=True)
        if code == TIMED_OUT:
            return part.fail("cargo nextest: killed, the part's time was up (a build counts; --list names the parts)")
        return part.fail(f"cargo nextest: exit {code}, {len(found)} of {begun[1] if begun else 'no'} tests ran")
    if failed:
        print("\n".join(interesting(output)), flush=True)
    if 0 < len(failed) <= FEW:
        print(f"again, alone: {' '.join(test.name for test in failed)}", flush=True)
        names = " + ".join(f"(binary_id(={test.binary}) and test(={test.name}))" for test in failed)
        # (with the same selection, or all other tests are built for it)
        once_more = [*selection, "--test-threads=1", "--run-ignored=all", "-E", names]
        _, again, _ = by_nextest(part, nextest, once_more, environment)
        steady = {(test.binary, test.name) for test in again if not test.failed}
        part.unsteady += [f"{test.binary} {test.name}" for test in failed if (test.binary, test.name) in steady]
        failed = [test for test in failed if (test.binary, test.name) not in steady]
    part.ok(len(found) - len(failed))
    for test in failed:
        part.fail(f"{test.binary} {test.name}")
        print(f"    alone: {alone(test)}", flush=True)
    if ignored == "default" and (left := re.search(r"\((\d+) tests? skipped\)", output)):
        print(f"note {part.name}: {left[1]} tests are left to scripts/test thorough", flush=True)
    part.times += [(test.seconds, f"{test.binary} {test.name}") for test in found]
    # a harness has no word for a test that could not run: those say so on a line of their own
    for line in sorted({line for test in found for line in test.skips}):
        print(f"note {part.name}: {line}", flush=True)


def alone(test):
    """The command that runs one test, and builds no more than its binary."""
    kind = test.binary.partition("::")[2]
    chosen = "--lib" if not kind else "--bins" if kind.startswith("bin/") else f"--test {kind}"
    setting = "".join(f"{name}={os.environ[name]} " for name in ("CARGO_INCREMENTAL",) if name in os.environ)
    return f"{setting}cargo nextest run --workspace {chosen} -E 'binary_id(={test.binary}) and test(={test.name})'"


class Test:
    """What JUnit's file says of a test."""

    def __init__(self, suite, case):
        self.binary, self.name, self.seconds = suite.get("name"), case.get("name"), float(case.get("time", 0))
        self.failed = any(case.find(kind) is not None for kind in ("failure", "error"))
        said = case.findtext("system-out") or ""
        self.skips = re.findall(r"^SKIPPED: .*", said, re.M)


def by_nextest(part, nextest, selection, environment):
    """(exit code, tests, output) of one run."""
    junit = ROOT / "target/nextest/default/junit.xml"  # wherever Cargo's target folder is
    junit.unlink(missing_ok=True)
    code, output = part.run(nextest, "nextest", "run", "--workspace", *selection, environment=environment, log=False)
    if not junit.is_file():
        return code, [], output
    suites = xml.etree.ElementTree.parse(junit).getroot()
    return code, [Test(suite, case) for suite in suites.iter("testsuite") for case in suite.iter("testcase")], output


def by_cargo(part, selection, environment):
    """As `cargo test` runs them: one binary after the other, the tests of each in one process."""
    code, output = part.run("cargo", "test", "--workspace", "--no-fail-fast", *selection, environment=environment, log=False)
    found = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored", output, re.M)
    part.ok(sum(int(row[0]) for row in found))
    failed, ignored = (sum(int(row[n]) for row in found) for n in (1, 2))
    if ignored:
        part.skip(f"{ignored} tests are left to scripts/test thorough", ignored)
    if code != 0 or not found:
        print("\n".join(interesting(output)), flush=True)
        part.fail(f"cargo test: exit {code}", max(failed, 1))
    for line in sorted(set(re.findall(r"^SKIPPED: .*", output, re.M))):
        print(f"note {part.name}: {line}", flush=True)


def interesting(output):
    """The parts of cargo's or nextest's output that tell what failed: compiler errors, and what failed tests said."""
    kept, keep = [], False
    for line in output.splitlines():
        if line.startswith("failures:") or re.match(r"error(\[E\d+\])?:|\s+(FAIL|TIMEOUT|SIG\w+|TRY \d) \[", line):
            keep = True
        elif line.startswith(("test result:", "     Running", "   Doc-tests", "   Compiling")):
            keep = False
        if keep and not re.match(r"\s+(\d+: |at /|at \./)", line):
            kept.append(line)
    return kept[:300] or output.splitlines()[-80:]
