# SPDX-License-Identifier: Apache-2.0
"""An MCP server on stdio: `python -m gapprobe.mcp` (pip install 'gapprobe[mcp]', Python 3.10 or newer).

It only reads: traces, recordings, and what running processes have recorded. An answer has at most 8 KB; what did not fit is
counted in `left_out`.
"""

import json
import os
import sys

try:
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp.types import ToolAnnotations
except ImportError as error:
    sys.exit("gapprobe: %s\n\nhint: pip install 'gapprobe[mcp]' (Python 3.10 or newer)" % error)

from gapprobe import __version__
from gapprobe._read import Failed, run_command

MAX_BYTES = 8192
# A longer text, mostly a kernel's name, is cut in its middle.
MAX_CHARS = 400
TRACES = (".json.gz", ".json", ".gpr", ".gpr.gz", ".gprec.gz", ".sqlite")

server = MCPServer(
    "gapprobe", version=__version__,
    instructions="Why was the GPU idle? Begin with why_idle on a trace; explain(code) says what to change; table() has the figures. "
                 "A promise (predicted_ns) is a replay of the run with that one cause fixed. 'no verdict' means just that: do not guess.")
READS = ToolAnnotations(read_only_hint=True, open_world_hint=False)


def command(*words, **more):
    """As run_command; an error is the client's to read."""
    try:
        return run_command(*words, **more)
    except Failed as error:
        raise ToolError(str(error)) from None


def answer(told, lists=()):
    """JSON of at most MAX_BYTES: long texts cut in the middle, then the lists shortened from their ends, the last one first."""
    told = _short(told)
    over = len(_text(told).encode()) - MAX_BYTES
    for name in reversed(lists):
        if over > 0 and told.get(name):
            rows, over = told[name], over + len(',"left_out":{"":100000}') + len(name)
            keep = len(rows)
            while keep and over > 0:
                keep -= 1
                over -= len(_text(rows[keep]).encode()) + 1
            told.setdefault("left_out", {})[name] = len(rows) - keep
            told[name] = rows[:keep]
    return _text(told)


def _text(told):
    return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _short(told):
    if isinstance(told, dict):
        return {name: _short(value) for name, value in told.items()}
    if isinstance(told, list):
        return [_short(value) for value in told]
    if isinstance(told, str) and len(told) > MAX_CHARS:
        return told[: MAX_CHARS // 2] + "…" + told[-MAX_CHARS // 2:]
    return told


@server.tool(annotations=READS, structured_output=False)
def traces(folder: str = ".") -> str:
    """Files in a folder that may be traces (of gapprobe, torch.profiler, JAX, nsys), newest first."""
    found = [entry for entry in os.scandir(folder) if entry.name.endswith(TRACES) and not entry.name.endswith(".summary.json")]
    found.sort(key=lambda entry: entry.stat().st_mtime, reverse=True)
    return answer({"traces": [{"file": entry.path, "bytes": entry.stat().st_size} for entry in found]}, ["traces"])


@server.tool(annotations=READS, structured_output=False)
def why_idle(trace: str) -> str:
    """The verdict of a trace: its sentence (line), evidence, time by bucket, steps, what each line of code wins alone, what was lost of
    the recording, and further findings: of all that `gapprobe analyze --json` says what is needed first, under the same keys.

    Shares are 0 to 1. share: of the steps' time, what is lost to the cause (the GPU idle for it, or what its fix wins where that is
    more). win: of the step, what the fix of this one cause (in lines: of this one line) saves by the replay; wins do not add up, and null
    promises nothing. step_ns and predicted_ns: the step now, and with the verdict's cause fixed (of a finding: with its own)."""
    told = json.loads(command("analyze", trace, "--json"))
    verdict = ("code", "cause", "confidence", "fix", "share", "site", "step_ns", "predicted_ns", "tied", "inconclusive")
    coverage = ("seen_ns", "steps_seen", "steps_run", "killed")
    # (the first finding is the verdict)
    findings = [{name: finding[name] for name in (*verdict, "win") if name in finding} for finding in told["findings"][1:]]
    return answer({
        "line": told["line"], "verdict": {name: told["verdict"][name] for name in verdict}, "evidence": told["evidence"],
        "buckets_ns": {name: ns for name, ns in told["buckets_ns"].items() if ns}, "steps": told["steps"],
        "lines": {"alone": told["lines"]["alone"]}, "coverage": {name: told["coverage"][name] for name in coverage},
        "losses": {name: n for name, n in told["losses"].items() if n}, "once": told["once"], "findings": findings,
    }, ["evidence", "once", "findings"])


@server.tool(annotations=READS, structured_output=False)
def table(trace: str, report: str = "steps", sort: str = "", limit: int = 20) -> str:
    """Rows of a report: steps, gaps, syncs, phases, cuda_gpu_kern_sum, cuda_api_sum, cuda_gpu_mem_time_sum, nvtx_sum and others
    (an unknown name lists them). sort: a key of the rows, largest first. limit: rows at most, 0 for all."""
    words = ["stats", trace, "-r", report, "--format", "json", "--limit", str(limit)]
    told = json.loads(command(*words, *(["--sort", sort] if sort else [])))
    return answer({"rows": told if isinstance(told, list) else told[report]}, ["rows"])


@server.tool(annotations=READS, structured_output=False)
def explain(code: str) -> str:
    """What a code (GP101) means, how sure it is, an example, what to change."""
    return command("explain", code)[:MAX_BYTES]


@server.tool(annotations=READS, structured_output=False)
def compare(before: str, after: str) -> str:
    """Two runs of the same work: did the step get faster beyond the noise, and what moved."""
    told = json.loads(command("diff", before, after, "--json"))
    return answer(told, [name for name, value in told.items() if isinstance(value, list)])


@server.tool(annotations=READS, structured_output=False)
def ranks(folder: str = ".") -> str:
    """All ranks of a job in one: who is slow, and why (the summaries in a folder). The way on from GP107, waiting for a late rank."""
    told = json.loads(command("summary", folder, "--json"))
    return answer(told, [name for name, value in told.items() if isinstance(value, list)])


@server.tool(annotations=READS, structured_output=False)
def running() -> str:
    """Processes that gapprobe records now; the `recording` of one is a trace, too."""
    told = json.loads(command("ps", "--json", exits=(0, 9)))  # 9: there is none
    return answer(told, ["processes"])


if __name__ == "__main__":
    server.run("stdio")
