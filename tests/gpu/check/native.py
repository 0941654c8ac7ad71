# SPDX-License-Identifier: Apache-2.0
"""Builds the CUDA C++ and C programs on the machine itself: its nvcc, its libraries. All at once, each only once."""

import concurrent.futures
import os
import pathlib
import shutil
import subprocess
import sys

from check.victim import PROGRAMS

# program -> how it is built. "static": the CUDA runtime inside the program; "shared": libcudart.so;
# "shared library": both; "library": a shared object for ctypes; "driver": C against libcuda only.
KINDS = {"count": "static", "cost_launch": "static", "ticker": "library", "driver_api": "driver", "plain": "static",
         "native_sync": "static", "static_steps": "static", "window_steps": "shared", "launch_symbol": "shared library",
         "own_clock": "static"}


def nvcc():
    """Path of nvcc, or None. GPUCHECK_NVCC names another one."""
    named = os.environ.get("GPUCHECK_NVCC")
    for candidate in (named, shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"):
        if candidate and pathlib.Path(candidate).is_file():
            return candidate
    return None


def cupti():
    """{"GAPPROBE_CUPTI": path} of the libcupti in Python's packages, for programs that have none of their own; {} without."""
    for folder in sys.path:
        for path in sorted(pathlib.Path(folder).glob("nvidia/*/lib/libcupti.so.*")) if folder else []:
            return {"GAPPROBE_CUPTI": str(path)}
    return {}


def command(compiler, program, target):
    """The command that builds `program` into `target`."""
    kind = KINDS[program]
    options = ["-O2", "-arch=sm_90", "-ldl", "-o", str(target)]
    extra = os.environ.get("GPUCHECK_NVCC_OPTIONS", "").split()
    if kind in ("static", "shared"):
        return [compiler, *extra, "-cudart", kind, str(PROGRAMS / f"{program}.cu"), *options]
    if kind == "shared library":
        return [compiler, *extra, "-cudart", "shared", "-shared", "-Xcompiler", "-fPIC", str(PROGRAMS / f"{program}.cu"), *options]
    if kind == "library":
        return [compiler, *extra, "-cudart", "static", "-shared", "-Xcompiler", "-fPIC", str(PROGRAMS / f"{program}.cu"), *options]
    return [compiler, *extra, "-cudart", "none", str(PROGRAMS / f"{program}.c"), *options]


def built(plan, *programs):
    """{program: path} of those that could be built; the others get a row that says why not."""
    folder = plan.scratch / "native"
    folder.mkdir(parents=True, exist_ok=True)
    compiler = nvcc()

    def build(program):
        target = folder / (f"lib{program}.so" if KINDS[program].endswith("library") else program)
        if target.is_file():
            return target, ""
        if compiler is None:
            return None, "no nvcc"
        done = subprocess.run(command(compiler, program, target), capture_output=True, text=True, timeout=120)
        return (target, "") if done.returncode == 0 else (None, (done.stderr or done.stdout)[-300:])

    found = {}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for program, (path, why) in zip(programs, pool.map(build, programs)):
            if path is None:
                plan.row("build", program, "NOT RUN" if why == "no nvcc" else "FAIL", why)
            else:
                found[program] = path
    return found
