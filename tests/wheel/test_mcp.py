# SPDX-License-Identifier: Apache-2.0
"""Purpose: the MCP server, asked by the official SDK's client over stdio: what it offers only reads, each answer has at most 8 KB,
and the cause of labelled recordings is in it. The skill file names verbs, keys and tools that are there."""

import json
import pathlib
import re
import shutil
import sys
import tempfile
import unittest

from wheel_tools import ROOT, install, run, tool

SDK = "mcp==2.3.0"
RECORDINGS = ROOT / "tests/gpu/recordings"
# asks the server for [tool, arguments]s; prints the tools, then each answer's text, or its error
CLIENT = """
import asyncio, json, sys
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

async def main():
    server = StdioServerParameters(command=sys.executable, args=["-m", "gapprobe.mcp"])
    async with Client(stdio_client(server)) as client:
        offered = (await client.list_tools()).tools
        print(json.dumps([[t.name, t.annotations.read_only_hint, t.description] for t in offered]))
        for name, arguments in json.load(sys.stdin):
            told = await client.call_tool(name, arguments)
            print(json.dumps([told.is_error, told.content[0].text]))

asyncio.run(main())
"""


def setUpModule():
    global BIN
    if sys.version_info < (3, 10):
        raise unittest.SkipTest("the SDK needs Python 3.10")
    wheel = run(ROOT / "scripts/wheel", "--built", tempfile.mkdtemp(prefix="gapprobe-wheel-"))[0].strip()
    home = install(wheel, sys.executable, by="uv")
    run(tool("uv==0.13.9") / "bin/uv", "pip", "install", "--quiet", "--python", home / "bin/python", SDK)
    BIN = home / "bin"


def ask(*calls):
    """What the server offers, and [is an error, text] of each call."""
    lines = [json.loads(line) for line in run(BIN / "python", "-c", CLIENT, given=json.dumps(calls))[0].splitlines()]
    return lines[0], lines[1:]


class Mcp(unittest.TestCase):
    def test_the_cause_of_each_labelled_recording_is_in_its_answer(self):
        labels = json.loads((RECORDINGS / "causes.json").read_text())["recordings"]
        slow = sorted(RECORDINGS.glob("*.slow.gprec.gz"))[::5]
        self.assertGreaterEqual(len(slow), 10)
        _, answers = ask(*(["why_idle", {"trace": str(file)}] for file in slow))
        for file, (is_error, text) in zip(slow, answers):
            with self.subTest(file.name):
                self.assertFalse(is_error, text)
                self.assertLessEqual(len(text.encode()), 8192)
                said = labels[file.name.removesuffix(".gprec.gz")]["causes"]
                self.assertIn(json.loads(text)["verdict"]["cause"], said)

    def test_what_it_offers_only_reads_and_answers_are_bounded(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        one = max(RECORDINGS.glob("*.gprec.gz"), key=lambda file: file.stat().st_size)
        run(BIN / "gapprobe", "export", one, "-o", folder / "trace.json.gz")
        for n in range(200):
            shutil.copy(folder / "trace.json.gz", folder / f"{n:0100}.json.gz")
        before = sorted(folder.iterdir())
        trace = str(folder / "trace.json.gz")
        offered, answers = ask(["traces", {"folder": str(folder)}], ["table", {"trace": trace, "report": "gaps", "limit": 0}],
                               ["table", {"trace": trace, "report": "cuda_gpu_kern_sum", "sort": "instances"}], ["explain", {"code": "GP101"}],
                               ["compare", {"before": trace, "after": trace}], ["running", {}])
        self.assertTrue(all(read_only for _, read_only, _ in offered))
        self.assertEqual(sorted(name for name, _, _ in offered), ["compare", "explain", "ranks", "running", "table", "traces", "why_idle"])
        for is_error, text in answers:
            self.assertFalse(is_error, text)
            self.assertLessEqual(len(text.encode()), 8192)
        self.assertGreater(json.loads(answers[0][1])["left_out"]["traces"], 100)
        files = json.loads(ask(["traces", {"folder": str(RECORDINGS)}])[1][0][1])
        self.assertEqual(len(files["traces"]) + files.get("left_out", {}).get("traces", 0), len(list(RECORDINGS.glob("*.json"))) +
                         len(list(RECORDINGS.glob("*.gprec.gz"))))
        self.assertGreater(json.loads(answers[1][1])["left_out"]["rows"], 100)
        self.assertEqual(sorted(folder.iterdir()), before, "nothing is written")

    def test_what_its_figures_are_is_said_and_true(self):
        trace = RECORDINGS / "copy_pageable.slow.gprec.gz"
        offered, ((_, text),) = ask(["why_idle", {"trace": str(trace)}])
        described = next(description for name, _, description in offered if name == "why_idle")
        for key in ("share", "win", "step_ns and predicted_ns"):
            self.assertRegex(described, rf"\b{key}: ")
        told, whole = json.loads(text), json.loads(run(BIN / "gapprobe", "analyze", trace, "--json")[0])
        self.assertEqual([finding["win"] for finding in told["findings"]], [finding["win"] for finding in whole["findings"][1:]])
        verdict = told["verdict"]
        self.assertAlmostEqual(whole["findings"][0]["win"], 1 - verdict["predicted_ns"] / verdict["step_ns"], 3)
        lost = told["buckets_ns"]["copy_only"] / sum(told["buckets_ns"].values())
        self.assertAlmostEqual(verdict["share"], lost, 2)

    def test_an_error_says_what_to_do(self):
        _, answers = ask(["why_idle", {"trace": "/nowhere.json"}], ["explain", {"code": "GP999"}], ["table", {"trace": "/nowhere.json"}])
        for is_error, text in answers:
            self.assertTrue(is_error)
            self.assertIn("hint: ", text)

    def test_without_the_sdk_it_says_how_to_get_it(self):
        bare = install(pathlib.Path(run(ROOT / "scripts/wheel", "--built", tempfile.mkdtemp())[0].strip()), sys.executable, by="uv")
        with self.assertRaisesRegex(AssertionError, r"hint: pip install 'gapprobe\[mcp\]'"):
            run(bare / "bin/python", "-m", "gapprobe.mcp")


class Skill(unittest.TestCase):
    def test_what_it_names_is_there(self):
        skill = (ROOT / "skills/gapprobe/SKILL.md").read_text()
        self.assertRegex(skill, r"\A---\nname: gapprobe\ndescription: .{50,1024}\nlicense: .*\n---\n")
        self.assertLess(len(skill.split()), 600)
        told = json.loads(run(BIN / "gapprobe", "analyze", next(RECORDINGS.glob("*.slow.gprec.gz")), "--json")[0])
        for key in re.findall(r"`((?:verdict|lines)\.\w+|line|evidence|findings|losses|coverage|once)`", skill):
            value = told
            for part in key.split("."):
                self.assertIn(part, value, key)
                value = value[part]
        for verb in set(re.findall(r"gapprobe (\w+)", skill)) - {"by"}:
            run(BIN / "gapprobe", verb, "--help")


if __name__ == "__main__":
    unittest.main()
