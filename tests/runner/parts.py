# SPDX-License-Identifier: Apache-2.0
"""The parts of the tests and their tiers. The first line of a part's docstring is what `scripts/test --list` says of it."""

import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess

from . import ROOT
from .needs import PYTHON, TARGET, TOOLS
from .rust import BUILD, by_cargo, rust_tests

# After a change: no process of ours beside them, nothing built but themselves.
FAST = ["--lib", "--bins"] + [word for name in (
    "accusations buckets callers causes foreign hostile joining kineto nsys overlaps phases recordings stamps steps tables missing_kernels "
    "uncalled verdicts").split() for word in ("--test", name)]
VERSIONS = ["3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15"]


def fast(part):
    """Unit tests, causes, buckets, readers of small files, the recording's format."""
    rust_tests(part, *FAST)


def build(part):
    """The library as users get it, and what can be read off it; the tests, and with them the command."""
    if built(part):
        part.ok(2)
        part.counted("check-library", "scripts/check-library", "--library")


def rust(part):
    """All Rust tests: the analyzer, the crates' own, programs under the library; what is repeated in `all` a few times."""
    if built(part):
        rust_tests(part, environment=under_test(OF_THE_TESTS))


def style(part):
    """Format, lints, links of the documentation, sizes and names of files."""
    part.check("cargo fmt", "cargo", "fmt", "--all", "--check")
    part.check("clippy", "cargo", "clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings")
    part.check("docs", "cargo", "doc", "--quiet", "--workspace", "--no-deps", "--document-private-items",
               environment={"RUSTDOCFLAGS": "-D warnings -A rustdoc::private_intra_doc_links"})
    part.counted("check-files", "scripts/check-files")


def python(part):
    """The Python package, and this runner."""
    unittest(part, "python", PYTHON, "python/tests")
    unittest(part, "tests/runner", PYTHON, "tests/runner")


def labelled(part):
    """Recordings of labelled programs from an H100: verdict, line of Python and promise, by what their real fix proved; and the verdict said there. What
    is written for programs, by its schemas."""
    if built(part):
        part.counted("labelled", "scripts/causes-replay", "--same", "--gapprobe", OF_THE_TESTS, "tests/gpu/recordings")
        part.counted("schemas", "scripts/check-schemas", "--gapprobe", OF_THE_TESTS)


def perfetto(part):
    """Perfetto's own trace processor (Node)."""
    if not shutil.which("node") or not shutil.which("npm"):
        return part.skip("no node or npm here")
    node_tests(part, "scripts/perfetto")


def browser(part):
    """`gapprobe open` in Perfetto's UI, in a headless Chromium (Node)."""
    # (what cannot be installed has been counted as skipped)
    if (TOOLS / "perfetto-ui/pins").is_file() and built(part):
        node_tests(part, "scripts/perfetto-ui", under_test(OF_THE_TESTS))


def site(part):
    """The documentation site: its links, and what its tutorial shows of the command."""
    # (what cannot be installed has been counted as skipped)
    if (TOOLS / "site/pins").is_file() and built(part):
        part.check("site", "scripts/site", "--gapprobe", OF_THE_TESTS)


def release(part):
    """Library and command as users get them; the verdict as the library links it."""
    if part.check("scripts/build", "scripts/build"):
        part.counted("check-library", "scripts/check-library")
    part.check("verdict as the library links it", "cargo", "clippy", "--quiet", "-p", "gapprobe-verdict", "--lib", "--", "-D", "warnings")


def wheel(part):
    """The wheel as users install it, under each CPython that is here, and under launchers."""
    if as_shipped(part):
        unittest(part, "tests/wheel", PYTHON, "tests/wheel")


def thorough(part):
    """Programs under the files users get, as often as there is reason to (200 kills, all releases, all CPythons, a real PyTorch); long Rust tests."""
    if shipped := as_shipped(part):
        rust_tests(part, "--test", "scenarios", ignored="all", environment={**shipped, "GAPPROBE_THOROUGH": "1"})
        rust_tests(part, *without_scenarios(), ignored="only")


def together(part):
    """The tests of each binary in one process, as `cargo test` runs them; scenarios are processes anyway."""
    by_cargo(part, without_scenarios(), None)


def pythons(part):
    """The Python package under each CPython that is here, and the judges of gpu-check."""
    found = interpreters()
    print(f"found {', '.join(found) or 'none'}; not here: {', '.join(v for v in VERSIONS if v not in found) or 'none'}")
    for version, interpreter in found.items():
        unittest(part, f"python {version}", interpreter, "python/tests")
    unittest(part, "tests/gpu", PYTHON, "tests/gpu")


def chaos(part):
    """Random programs under random faults, with gapprobe and without: 95 fixed seeds of the benchmark chaos."""
    shipped = as_shipped(part)
    if not shipped:
        return
    code, output = part.run("cargo", "test", "--quiet", "--workspace", "--bench", "chaos", "--", "short", environment=shipped, log=False)
    runs = re.findall(r"^all +(\d+) +(\d+)$", output, re.M)
    unsteady = re.findall(r"^UNSTEADY: (chaos seed \d+)", output, re.M)
    part.unsteady += unsteady
    failed = len(re.findall(r"^FAILED: ", output, re.M))
    if code or not runs or unsteady:
        print("\n".join(output.splitlines()[-120:]), flush=True)
    if code or not runs:
        part.fail(f"exit {code}", max(failed, 1))
    part.ok(int(runs[-1][0]) - failed if runs else 0)


def loom(part):
    """The rings under loom, and mutants of them."""
    part.counted("loom", "scripts/loom")


def sanitizers(part):
    """Unit tests under AddressSanitizer and ThreadSanitizer (nightly)."""
    part.counted("sanitizers", "scripts/sanitizers")


def sanitized(part):
    """Victims under AddressSanitizer and ThreadSanitizer (nightly)."""
    if shipped := as_shipped(part):
        part.counted("sanitized victims", "scripts/sanitized-victims", environment={**shipped, "GAPPROBE_THOROUGH": "1"})


def fuzz(part):
    """A short run of the fuzz targets (nightly)."""
    part.counted("fuzz", "scripts/fuzz", "--short")


def roots(part):
    """The wheel in a fresh Debian 11 and 13, as a new user begins (debootstrap)."""
    # (all five take twice as long and more; what differs most are these)
    if as_shipped(part):
        part.counted("roots", "scripts/roots", "trixie", "bullseye")


# function, tier, seconds it may take (what it took from nothing on two cores, 2026-11-27, twice and
# more; of thorough half as much again), what it needs (needs.py)
Row = collections.namedtuple("Row", "function tier seconds needs")
PARTS = {row.function.__name__: row for row in (
    Row(fast, "fast", 600, []),
    Row(build, "middle", 900, ["compilers"]),
    Row(rust, "middle", 1200, ["compilers", "nextest", "cupti", "perfetto", "prometheus"]),
    Row(style, "middle", 600, ["lints"]),
    Row(python, "middle", 120, []),
    Row(labelled, "middle", 900, ["compilers", "schemas"]),
    Row(perfetto, "middle", 120, []),
    Row(browser, "middle", 180, ["compilers", "perfetto-ui"]),
    Row(site, "middle", 120, ["compilers", "site"]),
    Row(thorough, "rest", 2400, ["compilers", "nextest", "cupti", "perfetto", "prometheus", "libclang", "cpythons", "torch"]),
    Row(release, "rest", 900, ["compilers", "lints"]),
    Row(wheel, "rest", 600, ["compilers", "cpythons", "torch"]),
    Row(together, "rest", 600, ["compilers", "cupti", "perfetto", "prometheus"]),
    Row(pythons, "rest", 300, ["cpythons"]),
    Row(chaos, "rest", 600, ["compilers"]),
    Row(loom, "rest", 600, ["compilers"]),
    Row(sanitizers, "rest", 900, ["compilers"]),
    Row(sanitized, "rest", 900, ["compilers", "cpythons"]),
    Row(fuzz, "rest", 900, ["compilers"]),
    Row(roots, "rest", 600, ["compilers"]),
)}


# The command that is built with the tests: with assertions, and no second build is needed for it.
OF_THE_TESTS = TARGET / "debug/gapprobe"


def under_test(command):
    """Environment of tests that run programs: the library is what scripts/build made."""
    return {"GAPPROBE_TEST_LIBRARY": str(ROOT / "build/libgapprobe.so"), "GAPPROBE_TEST_COMMAND": str(command)}


def without_scenarios():
    """Selects all Rust tests but programs under the library."""
    tests = [file.stem for file in sorted((ROOT / "analyzer/cli/tests").glob("*.rs"))]
    return ["--lib", "--bins"] + [word for name in tests + ["layout", "driver", "cli"] for word in ("--test", name)]


def built(part):
    """Whether the library and the tests are built from the files of now; seconds where they were."""
    # side by side: each of them has stretches that keep one core busy
    with concurrent.futures.ThreadPoolExecutor() as pool:
        library = pool.submit(part.run, "scripts/build", "--library")
        tests, _ = part.run(*BUILD)
        library, _ = library.result()
    for what, code in (("scripts/build --library", library), (" ".join(BUILD), tests)):
        if code:
            part.fail(f"{what}: exit {code}")
    return library == tests == 0


def as_shipped(part):
    """As `under_test`, with both files as users get them; None where they cannot be built."""
    code, _ = part.run("scripts/build")
    if code:
        part.fail(f"scripts/build: exit {code}")
    return None if code else under_test(ROOT / "build/gapprobe")


def interpreters():
    """{version: path} of the CPythons here: pyenv's, those on the path, those that scripts/cpython unpacked."""
    found = {}
    for version in VERSIONS:
        homes = sorted(pathlib.Path.home().glob(f".pyenv/versions/{version}.*/bin/python3"))
        path = shutil.which(f"python{version}")
        unpacked = TOOLS / "cpython" / version / "usr/bin" / f"python{version}"
        for candidate in [*map(str, homes[-1:]), path or "", str(unpacked), PYTHON]:
            if candidate and is_version(candidate, version):
                found[version] = candidate
                break
    return found


def is_version(interpreter, version):
    """Whether that program is the CPython of that version (a pyenv shim may not be)."""
    try:
        ask = "import sys; print('%d.%d' % sys.version_info[:2])"
        return subprocess.run([interpreter, "-c", ask], capture_output=True, text=True, timeout=30).stdout.strip() == version
    except (OSError, subprocess.TimeoutExpired):
        return False


def node_tests(part, script, environment=None):
    """Runs a script's tests in Node and counts them."""
    code, output = part.run(script, "test", environment=environment)
    part.ok(int((re.findall(r"^# pass (\d+)", output, re.M) or [0])[-1]))
    failed = int((re.findall(r"^# fail (\d+)", output, re.M) or [0])[-1])
    if code or failed:
        part.fail(f"exit {code}", max(failed, 1))


def unittest(part, name, interpreter, folder):
    """Runs the unittests of a folder and counts them."""
    code, output = part.run(interpreter, "-B", "-m", "unittest", "discover", "-s", folder)
    ran = int((re.findall(r"^Ran (\d+) tests? in", output, re.M) or [0])[-1])
    wrong = sum(int(n) for n in re.findall(r"(?:failures|errors)=(\d+)", output))
    missed = sum(int(n) for n in re.findall(r"skipped=(\d+)", output))
    part.ok(ran - wrong - missed)
    if missed:
        part.skip(f"{name}: {missed} of its tests", missed)
    if code != 0 or ran == 0:
        part.fail(f"{name}: exit {code}, {ran} tests ran", max(wrong, 1))
