# SPDX-License-Identifier: Apache-2.0
"""Purpose: what `pip install gapprobe-*.whl` gives a user: the files, where they land, and a run that prints its line; under
every CPython that is here, by pip and by uv. (Whether the library itself loads everywhere: scripts/check-library.)"""

import hashlib
import json
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from runner.parts import interpreters  # noqa: E402
from wheel_tools import TOOLS, install, run, tool  # noqa: E402

MAX_BYTES = 8_000_000
FILES = ROOT / "tests/wheel/files.txt"


def setUpModule():
    global WHEEL, SIM
    made = [pathlib.Path(run(ROOT / "scripts/wheel", "--built", tempfile.mkdtemp(prefix="gapprobe-wheel-"))[0].strip()) for _ in range(2)]
    digests = {hashlib.sha256(file.read_bytes()).hexdigest() for file in made}
    assert len(digests) == 1, f"two wheels of the same files differ: {made}"
    WHEEL = made[0]
    SIM = TOOLS / "wheel-sim"
    run(ROOT / "scripts/sim-build", SIM)


def demo(command, python, *launcher, steps="60"):
    """A training loop under `gapprobe run` on the simulated driver: what it wrote on stderr, and the folder of its traces."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gapprobe-demo-"))
    program = [*launcher, ROOT / "tests/victims/train.py", "--mode", "sync", "--steps", steps]
    _, said = run(*command, "run", "--dir", folder, python, *program, LD_LIBRARY_PATH=SIM / "13.0")
    return said, folder


class Wheel(unittest.TestCase):
    def test_it_holds_these_files_and_is_small(self):
        names = zipfile.ZipFile(WHEEL).namelist()
        self.assertEqual(sorted(names), FILES.read_text().split("\n")[:-1])
        self.assertLessEqual(WHEEL.stat().st_size, MAX_BYTES)

    def test_library_and_command_are_what_was_built(self):
        wheel = zipfile.ZipFile(WHEEL)
        for name, file in (("scripts/gapprobe", "gapprobe"), ("data/libexec/gapprobe/libgapprobe.so", "libgapprobe.so")):
            with self.subTest(file):
                self.assertEqual(wheel.read(f"gapprobe-0.1.0.data/{name}"), (ROOT / "build" / file).read_bytes())

    def test_any_python_3_on_glibc_2_28_takes_it(self):
        self.assertEqual(WHEEL.name, "gapprobe-0.1.0-py3-none-manylinux_2_28_x86_64.whl")
        said, _ = run(sys.executable, "-m", "auditwheel", "show", WHEEL, PYTHONPATH=tool("auditwheel==6.8.2"))
        self.assertIn('"manylinux_2_28_x86_64"', " ".join(said.split()), "by the symbols it takes, too")

    def test_an_index_would_take_its_metadata(self):
        said, _ = run(sys.executable, "-m", "twine", "check", "--strict", WHEEL, PYTHONPATH=tool("twine==7.0.0"))
        self.assertIn("PASSED", said)

    def test_every_crate_that_is_linked_has_its_licence_in_it(self):
        notices = zipfile.ZipFile(WHEEL).read("gapprobe-0.1.0.dist-info/licenses/built/THIRD-PARTY.txt").decode()
        for crate in ("clap", "parquet", "serde_json", "zlib-rs"):
            self.assertIn(f"\n{crate} ", notices)
        self.assertIn("Permission is hereby granted, free of charge", notices)


class Archive(unittest.TestCase):
    def test_unpacked_it_runs_and_is_the_same_twice(self):
        digests = set()
        for _ in range(2):
            folder = pathlib.Path(tempfile.mkdtemp(prefix="gapprobe-archive-"))
            wheel = shutil.copy(WHEEL, folder)
            archive = pathlib.Path(run(ROOT / "scripts/archive", wheel)[0].strip())
            digests.add(hashlib.sha256(archive.read_bytes()).hexdigest())
        self.assertEqual(len(digests), 1)
        run("sha256sum", "--check", "SHA256SUMS", at=folder)
        tarfile.open(archive).extractall(folder)
        home = folder / archive.name.removesuffix(".tar.gz")
        told = json.loads(run(home / "bin/gapprobe", "--version", "--json")[0])
        self.assertEqual(told["library"]["file"], str(home / "libexec/gapprobe/libgapprobe.so"))
        self.assertTrue((home / "licences/THIRD-PARTY.txt").is_file())


class Installed(unittest.TestCase):
    def test_each_cpython_that_is_here_runs_it(self):
        found = interpreters()
        self.assertTrue(found)
        for version, python in found.items():
            with self.subTest(version):
                bin = install(WHEEL, python, by="uv") / "bin"
                library, command = run(bin / "python", "-c", "import gapprobe as g; print(g.library(), g.command())")[0].split()
                self.assertEqual(pathlib.Path(command), bin / "gapprobe")
                self.assertEqual(pathlib.Path(library), bin.parent / "libexec/gapprobe/libgapprobe.so")
                self.assertEqual(run(bin / "gapprobe", "--version"), run(bin / "python", "-m", "gapprobe", "--version"))
                said, folder = demo([bin / "gapprobe"], bin / "python")
                self.assertRegex(said, r"gapprobe: GPU idle \d+%: .*\(.*train\.py:\d+\).*\[GP101\]")
                self.assertEqual(len(list(folder.glob("gapprobe-*.json.gz"))), 1)

    def test_pip_finds_a_place_for_it_in_every_kind_of_prefix(self):
        for how in ("venv", "prefix", "target", "user"):
            with self.subTest(how):
                home = install(WHEEL, sys.executable, by=how)
                packages = next(home.glob("**/gapprobe/__init__.py")).parent.parent
                command = home / "bin/gapprobe"
                out, _ = run(sys.executable, "-c", "import gapprobe as g; print(g.library(), g.command())", PYTHONPATH=packages)
                self.assertEqual(out.split(), [str(home / "libexec/gapprobe/libgapprobe.so"), str(command)])
                said, _ = demo([command], sys.executable)
                self.assertIn("[GP101]", said)

    def test_an_install_that_lost_its_library_says_how_to_mend_it(self):
        home = install(WHEEL, sys.executable, by="venv")
        (home / "libexec/gapprobe/libgapprobe.so").unlink()
        done = subprocess.run([home / "bin/gapprobe", "run", "true"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 125)
        self.assertIn("libgapprobe.so", done.stderr)
        self.assertIn("hint: pip install --force-reinstall", done.stderr)
        (home / "bin/gapprobe").unlink()
        done = subprocess.run([home / "bin/python", "-m", "gapprobe", "--version"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 127)
        self.assertIn("hint: pip install --force-reinstall", done.stderr)

    def test_what_a_shell_and_man_look_for_is_there(self):
        home = install(WHEEL, sys.executable, by="venv")
        for name in ("bash-completion/completions/gapprobe", "zsh/site-functions/_gapprobe", "fish/vendor_completions.d/gapprobe.fish",
                     "man/man1/gapprobe.1", "man/man1/gapprobe-run.1"):
            self.assertGreater((home / "share" / name).stat().st_size, 300, name)

    def test_uninstalled_nothing_stays(self):
        home = install(WHEEL, sys.executable, by="venv")
        run(home / "bin/python", "-m", "pip", "uninstall", "--yes", "gapprobe")
        left = [path for path in home.rglob("*gapprobe*") if "pip" not in path.parts]
        self.assertEqual([path for path in left if path.is_file()], [])


if __name__ == "__main__":
    unittest.main()
