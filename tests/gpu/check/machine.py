# SPDX-License-Identifier: Apache-2.0
"""What machine and software a result was taken on."""

import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

TORCH_FACTS = """
import json, importlib.metadata as m
v = {}
for name in ("torch", "jax", "cupy-cuda13x", "triton", "nvidia-cuda-cupti", "transformers"):
    try: v[name] = m.version(name)
    except Exception: v[name] = None
print(json.dumps(v))
"""


def _output(command, timeout=30):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu():
    """The CPU's model, and which CPUs share the first one's core."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
        siblings = pathlib.Path("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")
        return f"{model}; CPUs of the first core: {siblings.read_text().strip() if siblings.is_file() else 'unknown'}"
    except OSError:
        return None


def gpus(plan):
    """Those that may be used, as CUDA_VISIBLE_DEVICES names them: what that names already (a lane of gpu-lanes has GPUs of its own), else all the machine has."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(n) for n in range(len((plan.machine.get("gpu") or "").splitlines()))]


def cpu_ticks():
    """Time of all CPUs since boot, ticks: not idle, and stolen by the hypervisor."""
    try:
        ticks = [int(n) for n in pathlib.Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    return {"busy": sum(ticks) - ticks[3] - ticks[4], "stolen": ticks[7]}


def facts(build):
    """Date, GPU, driver, versions, commit. Missing things are None, never an error."""
    gpu = _output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,power.limit", "--format=csv,noheader"])
    versions = _output([sys.executable, "-c", TORCH_FACTS])
    commit_file = pathlib.Path(build) / "COMMIT"
    commit = commit_file.read_text().strip() if commit_file.is_file() else _output(["git", "rev-parse", "HEAD"])
    nvcc = _output(["nvcc", "--version"])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": gpu, "python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count(), "cpu": _cpu(),
        "packages": json.loads(versions) if versions else None,
        "nvcc": nvcc.splitlines()[-2] if nvcc else None,
        "gapprobe": _output([str(pathlib.Path(build) / "gapprobe"), "--version"]), "commit": commit,
    }
