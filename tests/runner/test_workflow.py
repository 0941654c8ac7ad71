# SPDX-License-Identifier: Apache-2.0
"""The public CI file: its schema and zizmor find nothing in it, and it runs nothing but scripts of this repository."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from runner.needs import TOOLS  # noqa: E402

WORKFLOW = ROOT / ".github/workflows/ci.yml"
LINTERS = ["check-jsonschema==0.39.0", "zizmor==1.32.0"]


def lint(file):
    """Exit codes and words of both linters."""
    folder = TOOLS / "workflow-linters"
    if not (folder / "bin/zizmor").is_file():
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--disable-pip-version-check",
                        "--target", str(folder), *LINTERS], check=True)
    schema = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    security = [str(folder / "bin/zizmor"), "--offline", "--no-progress", "--config", str(ROOT / ".github/zizmor.yml")]
    done = [subprocess.run([*linter, str(file)], env={**os.environ, "PYTHONPATH": str(folder)}, stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True) for linter in (schema, security)]
    return [each.returncode for each in done], "".join(each.stdout for each in done)


class Workflow(unittest.TestCase):
    def test_linters_find_nothing_in_it_and_something_in_a_broken_one(self):
        codes, said = lint(WORKFLOW)
        self.assertEqual(codes, [0, 0], said)
        with tempfile.TemporaryDirectory() as folder:
            broken = pathlib.Path(folder) / "broken.yml"
            broken.write_text(WORKFLOW.read_text().replace("runs-on: ubuntu-latest", "runs-in: x", 1).replace("uses: actions/", "uses: others/"))
            codes, said = lint(broken)
            self.assertNotIn(0, codes, said)

    def test_it_runs_scripts_of_the_repository_alone(self):
        words = re.findall(r"- run: (\S+)", WORKFLOW.read_text())
        for script in set(words) - {"gh"}:
            self.assertTrue((ROOT / script).is_file(), script)
        self.assertLessEqual({"scripts/test", "scripts/wheel", "scripts/archive"}, set(words))


if __name__ == "__main__":
    unittest.main()
