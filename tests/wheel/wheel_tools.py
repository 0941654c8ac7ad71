# SPDX-License-Identifier: Apache-2.0
"""Fresh environments to install a wheel into, and the tools that look at it: from PyPI, into .tools."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOOLS = (ROOT / (os.environ.get("GAPPROBE_TOOLS") or ".tools")).resolve()
PIP = ("--quiet", "--disable-pip-version-check", "--no-warn-script-location", "--root-user-action=ignore")


def run(*words, given=None, at=ROOT, **environment):
    """(stdout, stderr) of a command that must succeed; its environment has nothing of the tests' own Python. `given`: its stdin; `at`:
    its folder."""
    full = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GAPPROBE", "VIRTUAL_ENV", "PIP_"))}
    full.update({name: str(value) for name, value in environment.items()})
    done = subprocess.run([str(word) for word in words], env=full, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=at, input=given)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def tool(requirement, *options):
    """The folder of a package and what it wants, to put on PYTHONPATH."""
    folder = TOOLS / requirement.replace("==", "-")
    if not folder.is_dir():
        TOOLS.mkdir(parents=True, exist_ok=True)
        scratch = pathlib.Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=TOOLS))
        run(sys.executable, "-m", "pip", "install", *PIP, *options, "--target", scratch / "site", requirement)
        if not folder.is_dir():
            (scratch / "site").rename(folder)
        shutil.rmtree(scratch)
    return folder


def environment(requirement):
    """The environment of a program that is more than Python."""
    home = TOOLS / requirement.replace("==", "-")
    if not home.is_dir():
        uv = tool("uv==0.13.9") / "bin/uv"
        run(uv, "venv", "--quiet", "--python", sys.executable, home)
        run(uv, "pip", "install", "--quiet", "--python", home / "bin/python", requirement)
    return home


def install(wheel, python, by, options=()):
    """A new environment that has the wheel; its prefix."""
    home = pathlib.Path(tempfile.mkdtemp(prefix="gapprobe-env-")).resolve()
    pip = (python, "-m", "pip", "install", *PIP, "--no-deps", "--no-index")
    if by == "uv":
        uv = tool("uv==0.13.9") / "bin/uv"
        run(uv, "venv", "--quiet", "--clear", *options, "--python", python, home)
        run(uv, "pip", "install", "--quiet", "--offline", "--python", home / "bin/python", wheel)
    elif by == "venv":
        run(python, "-m", "venv", home)
        run(home / "bin/python", *pip[1:], wheel)
    elif by == "user":
        run(*pip, "--user", "--break-system-packages", wheel, PYTHONUSERBASE=home)
    else:
        run(*pip, f"--{by}", home, wheel)
    return home
