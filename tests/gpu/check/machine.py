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


def facts(build):
    """Date, GPU, driver, versions, commit. Missing things are None, never an error."""
    gpu = _output(["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.sm,power.limit", "--format=csv,noheader"])
    versions = _output([sys.executable, "-c", TORCH_FACTS])
    commit_file = pathlib.Path(build) / "COMMIT"
    commit = commit_file.read_text().strip() if commit_file.is_file() else _output(["git", "rev-parse", "HEAD"])
    nvcc = _output(["nvcc", "--version"])
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": gpu, "python": platform.python_version(), "kernel": platform.release(), "cores": os.cpu_count(),
        "packages": json.loads(versions) if versions else None,
        "nvcc": nvcc.splitlines()[-2] if nvcc else None,
        "gapprobe": _output([str(pathlib.Path(build) / "gapprobe"), "--version"]), "commit": commit,
    }
