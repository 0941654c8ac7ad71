# SPDX-License-Identifier: Apache-2.0
"""Training with Triton's Proton over five steps, three times, training without it in between: what its user gets, counted by kernel. Proton is imported
before the GPU is used; with --late SECONDS in the midst of the training, so long before its first profile."""

import collections
import functools
import importlib
import json
import os
import sys
import tempfile
import time

from profiled_torch import train
from training import arguments

NAME = "profiled_proton"
MODULE = "triton.profiler"


def kernels(node, found):
    """Adds the kernels of a tree of Proton's: it counts each by the name of a leaf."""
    children = node.get("children") or []
    if not children and node.get("metrics", {}).get("count"):
        found[node["frame"]["name"][:80]] += node["metrics"]["count"]
    for child in children:
        kernels(child, found)


def profile(ctx, step, rest_s):
    if MODULE not in sys.modules:
        importlib.import_module(MODULE)
        time.sleep(rest_s)
    proton = sys.modules[MODULE]
    with tempfile.TemporaryDirectory() as d:
        proton.start(os.path.join(d, "p"), context="shadow")
        for i in range(5):
            step(i)
        ctx.sync()
        proton.finalize()
        with open(os.path.join(d, "p.hatchet")) as f:
            tree = json.load(f)
    found = collections.Counter()
    for root in tree:
        kernels(root, found)
    return [dict(sorted(found.items()))]


def late(parser):
    parser.add_argument("--late", type=float, metavar="SECONDS", help="import Proton once some steps are done, so long before its first profile")


if __name__ == "__main__":
    rest_s = arguments(NAME, late).late
    if rest_s is None:
        importlib.import_module(MODULE)
    train(NAME, functools.partial(profile, rest_s=rest_s), 3, late)
